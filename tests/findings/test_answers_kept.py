"""Answers that are kept on request."""

import json

import polars as pl
import pytest

from bench.load.client import Load, run_load
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.runs.request import KEPT, write_requests
from bench.runs.request_table import read_requests
from bench.study.read import load_workload
from bench.workloads.prompts.kind import prompt_digest
from bench.workloads.schedule import PlannedRequest
from tests.support.command import bench
from tests.support.fake_server import fake_server


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Prompt number {i}."}) + "\n" for i in range(5)))
    return str(file)


def load_of(file, **more):
    return load_workload({"arrival": "burst", "prompts": file, "output_tokens": 3, "endpoint": "chat", **more}, source="t")


def sent(server, workload, model="m", seed="s"):
    return run_load(Target(server.base_url, model), Load(workload, 5, seed)).records


def test_answers_and_their_prompts_are_kept_on_request_without_reasoning(texts, tmp_path):
    with fake_server(reasons=1) as server:
        kept = sent(server, load_of(texts, keep_answers=True, cache="as_is"))
        bare = sent(server, load_of(texts))
    assert {each.answer for each in kept} == {" t1 t2"}  # of three chunks the first is a thought
    lines = {each.prompt_place: each.prompt_digest for each in kept}
    assert lines == {f"line {i + 1}": prompt_digest(f"Prompt number {i}.") for i in range(5)}
    assert len({each.request_digest for each in kept}) == 5
    assert {getattr(each, name) for each in bare for name in KEPT} == {None}
    write_requests([*kept, *bare], tmp_path / "requests.jsonl")
    written = [json.loads(line).keys() for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert [set(KEPT) <= keys for keys in written] == [True] * 5 + [False] * 5
    assert not any(keys & set(KEPT) for keys in written[5:])
    assert list(read_requests(tmp_path / "requests.jsonl")) == [*kept, *bare]


def test_requests_of_two_runs_are_the_same_without_letters(texts):
    for cache, same in (("as_is", 5), ("natural", 0)):
        with fake_server() as server:
            workload = load_of(texts, keep_answers=True, cache=cache)
            one, other = (sent(server, workload, model, seed) for model, seed in (("m", "here"), ("another", "there")))
            assert len({x.request_digest for x in one} & {x.request_digest for x in other}) == same, cache
            assert {x.prompt_digest for x in one} == {x.prompt_digest for x in other}, cache
    # A whole answer is kept too.
    with fake_server() as server:
        workload = load_of(texts, keep_answers=True, stream=False, endpoint="completions")
        assert {each.answer for each in sent(server, workload)} == {"all of it"}
    # Prompts as they are stand in the body as in the file.
    make = exchanges(Target("http://h", "m"), load_of(texts, cache="as_is"), seed="s", schedule_seed="s", vocabulary=500)
    exchange = make(PlannedRequest(0, 0, None, 8))
    body = json.loads(exchange.payload.split(b"\r\n\r\n")[1])
    assert body["messages"][0]["content"].startswith("Prompt number ")
    assert (exchange.place, exchange.digest) == (None, None)  # a load process gets nothing that no record keeps


def test_a_later_turn_with_the_server_s_own_answers_is_another_request_where_they_differ(tmp_path):
    asked = [{"role": "user", "content": text} for text in ("a", "b")]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": [asked[0], {"role": "assistant", "content": "x"}, asked[1]]}))
    turns = {"turns": {"count": 2}, "arrival": "closed", "num_requests": 1}
    chats = load_of(str(tmp_path / "chats.jsonl"), keep_answers=True, cache="as_is", **turns)
    found = []
    for reasons in (False, True):  # " t0 t1 t2" and " t1 t2"
        with fake_server(reasons=reasons) as server:
            found.append([each.request_digest for each in run_load(Target(server.base_url, "m"), Load(chats, 1, "s")).records])
    (first, second), (first_too, second_too) = found
    assert first == first_too and second != second_too and None not in (first, second)


@pytest.mark.long(part="workflows")
def test_of_a_running_server(texts, tmp_path):
    """As a user does it: runs of `bench workload`, parsed. One that keeps nothing has no columns of it."""
    with fake_server() as server:
        kept = ["--set", "keep_answers=true", "--set", "cache=as_is"]
        for name, keep in (("one", kept), ("two", kept), ("none", [])):
            options = ["--base-url", server.base_url, "--model", name, "--output-dir", tmp_path / name, "--num-requests", 5]
            done = bench("workload", *options, "--prompts", texts, "--output-length", 3, *keep)
            assert done.returncode == 0, done.stderr
            done = bench("parse", tmp_path / name)
            assert done.returncode == 0, done.stderr
    table = pl.read_parquet(tmp_path / "one" / "requests.parquet")
    assert set(table["answer"]) == {" t0 t1 t2"}
    assert set(table["prompt_place"]) == {f"line {i + 1}" for i in range(5)}
    assert not {*KEPT} & {*pl.read_parquet(tmp_path / "none" / "requests.parquet").columns}
    assert "kept_answers" not in json.loads((tmp_path / "none" / "summary.json").read_text())

"""The real llama.cpp: started under the guard, measured with our client, and stopped."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from bench.cli import main
from bench.http import get
from bench.load.client import Load, run_load
from bench.load.introduction import introduce
from bench.load.target import Target
from bench.measure.exposition import metric_names
from bench.models.checkpoint import write_checkpoint
from bench.models.checkpoint_record import Checkpoint
from bench.models.gguf import write_gguf
from bench.models.model import whole_config
from bench.parse.validity import verdict
from bench.runs.files import read
from bench.runs.launch import EngineRecord
from bench.servers.engines import managed
from bench.servers.facts import server_info
from bench.servers.launch import resolve_launch
from bench.servers.metrics import find_catalogue
from bench.servers.server import Server
from bench.study.config import Thresholds
from bench.study.plan import Plan
from bench.study.read import load_config, load_workload
from bench.workloads.workload import Workload
from tests.support.project import built
from tests.support.records import checkpoint as made_checkpoint
from tests.support.study import CONTENT, ROOT, TINY

pytestmark = pytest.mark.engine

CONFIG = whole_config(TINY)
LLAMA = managed("llama.cpp")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
ENGINE = {"kind": "llama.cpp", "source": "lock", "locks": ["workflow/envs/llama-cpp-2026.10.11549.lock"]}


@pytest.fixture(scope="module")
def engine():
    return read(EngineRecord, built("llama-cpp", ENGINE))


def spec_of(model=None, **deployment):
    content = {**CONTENT, "engines": {"e": ENGINE}, **({"models": {"m": model}} if model else {})}
    content["deployments"] = {"a": {**CONTENT["deployments"]["a"], "engine": "e", **deployment}}
    return Plan.of(load_config(content, source="t"), root=ROOT).deployments["a"]


def started(launch, folder):
    return Server(launch, cores=1, workers=1, log=folder / "server.log", ready_timeout_s=100, say=print)


def server_of(engine, folder, checkpoint, **deployment):
    return started(resolve_launch(spec_of(**deployment), engine, checkpoint), folder)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return made_checkpoint(path=str(tmp_path_factory.mktemp("checkpoint") / "model"), config=CONFIG)


@pytest.fixture(scope="module")
def launch(engine, tmp_path_factory):
    """Of a GGUF file, which is served as it is: in half precision, so that its size is not that of the shape in float32."""
    folder = tmp_path_factory.mktemp("file")
    write_gguf(CONFIG, folder / "real.gguf", dtype="float16")
    spec = spec_of({"path": str(folder / "real.gguf")}, max_num_seqs=2)
    assert spec.checkpoint is not None
    write_checkpoint("m", spec.model, folder / "checkpoint.json")
    return resolve_launch(spec, engine, read(Checkpoint, folder / "checkpoint.json"))


@pytest.fixture(scope="module")
def server(launch, tmp_path_factory):
    with started(launch, tmp_path_factory.mktemp("server")) as server:
        process = process_of(server)
        yield server
    assert not psutil.pid_exists(process.pid)  # it ends with its context


def process_of(server):
    port = server.base_url.rsplit(":", 1)[1]  # another test's server may run beside it
    below = psutil.Process().children(recursive=True)
    (found,) = (p for p in below if p.cmdline()[1:2] == ["src/bench/servers/llama_server.py"] and port in p.cmdline())
    return found


def send(server, level, **workload):
    workload = Workload(**{"arrival": "burst", "prompt_tokens": 32, "output_tokens": 32, **workload})
    load = Load(workload, level, f"{time.monotonic()}", vocabulary=TINY["vocab_size"], timeout_s=30)
    return run_load(Target(server.base_url, "a"), load).records


def test_a_gguf_file_is_served_as_it_is_on_cores_of_its_own(server, launch):
    """Its KV cache is float16 too."""
    assert launch.settings.random_weights is False and launch.settings.kv_cache_dtype == "float16"
    assert launch.plan.weight_bytes == pytest.approx(
        Path(launch.argv[launch.argv.index("--model") + 1]).stat().st_size, rel=0.01
    )
    assert process_of(server).cpu_affinity() == sorted(os.sched_getaffinity(0))[:1]


def test_lengths_are_exact_and_the_servers_counters_agree(server):
    before, records = metrics(server), send(server, 3)
    after = metrics(server)
    assert {(r.outcome, r.prompt_tokens, r.completion_tokens, r.cached_tokens) for r in records} == {("ok", 32, 32, 0)}
    assert all(0 < r.ttft_s < r.e2e_s for r in records)
    assert [len(r.token_times_s) for r in records] == [32] * 3  # and none for the chunk that ends the stream
    assert after["llamacpp:prompt_tokens_total"] - before["llamacpp:prompt_tokens_total"] == 3 * 32
    assert after["llamacpp:tokens_predicted_total"] - before["llamacpp:tokens_predicted_total"] == 3 * 32


@pytest.mark.long(part="vllm")
def test_it_speculates_and_says_what_it_drafted(engine, checkpoint, tmp_path):
    """Random weights repeat themselves."""
    flags = {"spec-type": "ngram-simple", "spec-ngram-simple-size-n": 2, "spec-ngram-simple-size-m": 4}
    with server_of(engine, tmp_path, checkpoint, max_num_seqs=2, flags=flags) as server:
        records, told = send(server, 8, output_tokens=96), metrics(server)
    assert {(r.outcome, r.completion_tokens) for r in records} == {("ok", 96)}
    drafted, accepted = (sum(getattr(r, name) or 0 for r in records) for name in ("draft_tokens", "accepted_tokens"))
    assert told["llamacpp:spec_decode_num_draft_tokens_total"] == drafted >= accepted > 0
    assert told["llamacpp:spec_decode_num_accepted_tokens_total"] == accepted


def test_chats_are_as_long_as_asked(server):
    """And each prompt is computed whole: the server has no prefix cache here."""
    target = introduce(Target(server.base_url, "tiny"), "chat")
    content = {"arrival": "burst", "endpoint": "chat", "prompt_tokens": 150, "output_tokens": 4}
    records = run_load(target, Load(load_workload(content, source="t"), 2, "chats", vocabulary=500)).records
    told = {(r.outcome, r.prompt_tokens, r.completion_tokens, r.cached_tokens) for r in records}
    assert told == {("ok", 150, 4, 0)}
    assert 0 < target.form("chat").template_tokens < 150
    assert target.form("chat").sdk_differs is None


def test_structured_output_is_output(server):
    """Asked for by the body: whole JSON, or what came of it, whose parts are counted and timed as any other's."""
    for endpoint, body in (
        ("chat", {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}),
        ("completions", {"json_schema": SCHEMA}),
    ):
        target = introduce(Target(server.base_url, "tiny"), endpoint, vocabulary=TINY["vocab_size"])
        content = {"arrival": "burst", "endpoint": endpoint, "prompt_tokens": 60, "body": body}
        answers = {"output_tokens": {"distribution": "natural", "max": 12}}
        (record,) = run_load(target, Load(load_workload({**content, **answers}, source="t"), 1, "json", vocabulary=500)).records
        assert (record.outcome, record.prompt_tokens) == ("ok", 60), endpoint
        assert 0 < record.streamed_least <= record.streamed_tokens <= record.completion_tokens <= 12, endpoint
        assert record.first_output_s == record.first_token_s, endpoint


@pytest.mark.long(part="vllm")
@pytest.mark.parametrize(
    ("endpoint", "pooling", "work"), [("embeddings", "mean", "embedding"), ("rerank", "rank", "reranking")]
)
def test_what_a_pooling_model_answers_is_counted_by_its_prompts(
    engine, checkpoint, tmp_path, monkeypatch, endpoint, pooling, work
):
    """From a request that the SDK reads as we do to a run's summary: no TTFT, and throughput in prompt tokens."""
    with server_of(engine, tmp_path, checkpoint, max_num_seqs=2, flags={"embedding": True, "pooling": pooling}) as server:
        target = introduce(Target(server.base_url, "tiny"), endpoint, stream=False, vocabulary=TINY["vocab_size"])
        assert (target.form(endpoint).omitted, target.form(endpoint).sdk_differs) == ((), None)
        monkeypatch.chdir(tmp_path)
        options = {"set": f"endpoint={endpoint}", "prompt-length": 40, "num-requests": 12, "concurrency": 2}
        options |= {"model": "tiny", "base-url": server.base_url, "output-dir": "run"}
        assert (
            main(["workload", "--scrape", "--set=vocabulary=512", *(f"--{name}={value}" for name, value in options.items())])
            == 0
        )
    assert main(["parse", "run"]) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    wrong = [summary[name] for name in ("wrong_prompt_tokens", "wrong_output_tokens", "uncounted_answers")]
    assert (summary["ok"], wrong) == (12, [0, 0, 0])
    assert (summary["ttft_n"], summary["tpot_n"], summary["e2e_n"]) == (0, 0, 12)
    assert (summary["work"], summary["output_tokens"], summary["prompt_tokens"]) == (work, None, 40)
    assert summary["throughput_tokens_per_s"] == pytest.approx(12 * 40 / summary["duration_s"])
    assert [reason for reason in verdict(summary, Thresholds()).found if reason.part in ("load", "content")] == []


def test_equal_prompts_are_computed_again_in_a_closed_loop_whose_connections_it_closes(server):
    records = send(server, 1, arrival="closed", num_requests=3, output_tokens=4, cache="repeated")
    assert [(r.outcome, r.cached_tokens) for r in records] == [("ok", 0)] * 3


def test_what_it_says_of_itself(server):
    facts = LLAMA.kv_facts({}, server_info(server.base_url))
    assert (facts.kv_blocks, facts.block_size, facts.kv_tokens) == (2, 256, 512)
    assert find_catalogue(metric_names(get(f"{server.base_url}/metrics").text)).missing == []


def test_a_request_longer_than_a_slot_is_an_error(server):
    (record,) = send(server, 1, prompt_tokens=257, output_tokens=1)
    assert record.outcome == "http_error"
    assert "exceeds the available context size (256 tokens)" in record.error


def metrics(server):
    lines = [line.split() for line in get(f"{server.base_url}/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}

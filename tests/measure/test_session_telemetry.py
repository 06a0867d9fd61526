"""A whole session against a running server of each kind: what it asks the server for, what it refuses, and what its runs then say."""

import json
import re

import pytest

from bench.errors import BenchError
from bench.servers.facts import server_info
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.running import session, study_of
from tests.support.study import METRICS, ROOT


@pytest.fixture(autouse=True)
def project(here):
    """Results go below the working directory."""


WORKFLOWS = pytest.mark.long(part="workflows")
SGLANG = {"/server_info": json.dumps({"version": "0.5.23", "disable_radix_cache": False, "api_key": "hidden"})}
TGI = {"/info": json.dumps({"version": "3.3.7"})}
VLLM = {"/version": json.dumps({"version": "0.32.0"})}


def golden(name):
    """That exposition, with what is in flight now."""
    text = (ROOT / f"tests/data/{name}.prom").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("sglang:num_running", "sglang:num_queue", "tgi_batch_current_size", "tgi_queue"))]  # fmt: skip
    running = {"sglang": "sglang:num_running_reqs", "tgi": "tgi_batch_current_size"}.get(name.split("-")[0])
    waiting = {"sglang": "sglang:num_queue_reqs", "tgi": "tgi_queue_size"}.get(name.split("-")[0])
    result = "\n".join(lines)
    return lambda server: result + (f"\n{running} {server.in_flight}\n{waiting} 0\n" if running else "\n")


@pytest.mark.parametrize(
    ("name", "pages", "version", "kv_tokens", "kv_usage"),
    [
        ("sglang-0.5.23", SGLANG, "0.5.23", 3072, 0.9375),
        pytest.param("tgi-3.3.7", TGI, "3.3.7", None, None, marks=WORKFLOWS),
        pytest.param("vllm-0.32.0", VLLM, "0.32.0", 3072, 0.0, marks=WORKFLOWS),
    ],
)
def test_a_server_of_each_kind(content, name, pages, version, kv_tokens, kv_usage):
    with fake_server(exposition=golden(name), pages=pages) as server:
        result, facts, _ = session(study_of(content, server.base_url, warmup=0))
    assert (facts["engine_version"], facts["kv_tokens"]) == (version, kv_tokens)
    assert (result["kv_usage_peak"], result["metrics_missing"]) == (kv_usage, [])
    assert result["ok"] == 2
    assert "hidden" not in json.dumps(facts)


def renamed(server):
    return golden("sglang-0.5.23")(server).replace("sglang:token_usage", "sglang:kv_token_usage")


LACKS = r"/metrics lacks kv_usage \(sglang:token_usage in SGLang 0\.5\.23\)"


def test_a_server_that_lacks_a_metric_is_measured_without_telemetry(content):
    """Where the study does not say so."""
    with fake_server(exposition=renamed, pages=SGLANG) as server:
        result, facts, said = session(study_of(content, server.base_url, warmup=3))
    (told,) = (line for line in said if "without telemetry" in line)
    assert re.search(rf"a: without telemetry: .*{LACKS}; causes and KV cache stay unknown", told)
    assert (facts["kv_tokens"], result["scraped"], result["metrics_missing"], result["ok"]) == (3072, None, [], 2)


def test_what_a_server_says_of_itself():
    for pages, version in ((VLLM, "0.32.0"), (SGLANG, "0.5.23"), (TGI, "3.3.7")):
        with fake_server(pages=pages) as server:
            assert server_info(server.base_url)["version"] == version
    with fake_server(pages={"/version": "[]", "/server_info": "no JSON", "/info": '{"version": 3}'}) as server:
        assert server_info(server.base_url) == {}
    assert server_info("http://127.0.0.1:9") == {}


@WORKFLOWS
@pytest.mark.parametrize("name", ["vllm_simulator", "nim", "vllm_lora"])
def test_a_study_find_and_workload_say_and_do_the_same(tmp_path, content, name):
    """Of metrics at the usual address, and of those that somebody promised."""
    text, into = (ROOT / f"tests/inputs/metrics/{name}.prom").read_text(), tmp_path / "out"
    text = re.sub(r"(vllm:num_requests_(?:running|waiting)\{.*\}) .*", r"\1 0", text)  # a run waits until all is done
    lengths = ("--model", "a", "--prompt-length", "8", "--output-length", "4")
    aim = ("--concurrency", "--slo", "ttft_p90=20s", "--set", "most=1", "--set", "max_runs=1")
    with fake_server(metrics=text, first_s=0.002, gap_s=0.0005) as server:
        address = f"{server.base_url}/metrics"

        def find(*more):
            return bench("find", "--base-url", server.base_url, *lengths, *aim, "--output-dir", into / "find", *more)

        def workload(*more):
            given = ("--num-requests", "2", "--scrape", "--output-dir", into / "one", *more)
            return bench("workload", "--base-url", server.base_url, *lengths, *given)

        *_, said = session(study_of(content, server.base_url, warmup=0))
        told = [[line.partition(": ")[2] for line in said if "without telemetry" in line]]
        told += [[line for line in done.stderr.splitlines() if "without telemetry" in line] for done in (find(), workload())]
        assert told[0] == told[1] == told[2]
        assert len(told[0]) == (name != "vllm_lora")
        records = [json.loads(path.read_text()) for path in into.rglob("run.json")]
        assert {record["scrape_interval_s"] for record in records} == ({0.2} if name == "vllm_lora" else {None})
        assert len(records) == 2
        if told[0]:
            before = len(server.bodies)
            why = told[0][0].removeprefix("without telemetry: ").removesuffix("; causes and KV cache stay unknown")
            for done in (find("--metrics", address), workload("--metrics", address)):
                assert (done.returncode, f"--metrics: {why}." in done.stderr) == (2, True)
            assert all(body["max_tokens"] <= 4 for body in server.bodies[before:])  # first requests alone, and no load
            assert len(server.bodies) - before <= 2
            with pytest.raises(BenchError, match=re.escape(f"engines.e.metrics: {why}.")):
                session(study_of(content, server.base_url, warmup=0, metrics=address))


def half(server, offset):
    """What one of two workers has of a front's load: half of its requests' tokens, and some from before."""
    counted = {"server_generation_tokens": server.generated / 2 + offset, "server_prompt_tokens": server.prompted / 2}
    values = {"running": server.in_flight / 2, "kv_usage": 0.25 if offset else 0.75, **counted}
    return "\n".join(f"{name} {values.get(ours, 0)}" for ours, name in METRICS.items()) + "\n" + CACHE


CACHE = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",engine="0"} 1\n'


def test_a_fleet_is_measured_as_one_server(content):
    """The load goes to the front, whose own metrics nobody asks for; the sums of its workers are the server's."""
    with (
        fake_server(statuses={"/metrics": (500, {})}) as front,
        fake_server(exposition=lambda _: half(front, 0), pages=VLLM) as first,
        fake_server(exposition=lambda _: half(front, 1000), pages={"/version": json.dumps({"version": "0.30.0"})}) as second,
    ):
        result, facts, _ = session(study_of(content, front.base_url, warmup=0, workers=[first.base_url, second.base_url]))
        assert not [path for path, _ in (*first.requests, *second.requests) if path.startswith("/v1/comp")]
        assert not [path for path, _ in front.requests if path == "/metrics"]
    assert (facts["engine_version"], facts["engines"], facts["kv_tokens"]) == ("0.30.0, 0.32.0", 2, 3200)
    assert (result["ok"], result["server_generation_tokens"]) == (2, result["server_tokens_most"])
    assert (result["kv_usage_peak"], result["metrics_missing"], result["scrape_endpoint"]) == (0.5, [], "fleet")
    assert [row["version"] for row in result["workers"]] == ["0.32.0", "0.30.0"]


def test_workers_that_make_no_fleet_are_refused_before_any_run(content):
    with fake_server() as front, fake_server(exposition=lambda _: half(front, 0), pages=VLLM) as first:
        for second, said in (
            (lambda _: "haproxy_up 1\n", r"engines\.e\.workers: .* lacks the metrics of any engine"),
            (golden("tgi-3.3.7"), r"engines\.e\.workers: .* is vllm and .* is tgi, and counts of different"),
        ):
            with fake_server(exposition=second) as other, pytest.raises(BenchError, match=said):
                session(study_of(content, front.base_url, warmup=0, workers=[first.base_url, other.base_url]))

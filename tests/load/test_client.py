"""The client against a server of known truth: what it sends, when, and what it says became of it."""

import json
import pickle
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import httpx2
import openai
import pytest

from bench.errors import BenchError
from bench.load.client import Load, run_load
from bench.load.exchange import Assignment, Exchange
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.workloads.prompts.random_ids import prompt_ids
from bench.workloads.schedule import PlannedRequest
from bench.workloads.workload import Workload
from tests.support.cases import cases
from tests.support.fake_server import STREAM_HEAD, TOKEN, chunk, fake_server, left_open, raw_server
from tests.support.server import eventually


def workload(arrival="burst", **more):
    return Workload.model_validate({"arrival": arrival, "prompt_tokens": 16, "output_tokens": 8, **more})


def send(server, level=8, arrival="burst", *, timeout_s=20.0, processes=None, **more):
    load = Load(workload(arrival, **more), level, "a seed", vocabulary=500, timeout_s=timeout_s, processes=processes)
    result = run_load(Target(server.base_url, "m"), load)
    return result, result.records


def test_burst_sends_all_at_once_and_stamps_agree_with_the_server():
    with fake_server(first_s=0.05, gap_s=0.01) as server:
        result, records = send(server, 32)
    asked = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"
    permitted = subprocess.run([sys.executable, "-c", asked], capture_output=True).returncode == 0
    assert result.processes[0].realtime == permitted  # whether it ran ahead of others
    assert server.peak == 32
    assert [r.outcome for r in records] == ["ok"] * 32
    assert {(r.prompt_tokens, r.completion_tokens, len(r.token_times_s)) for r in records} == {(16, 8, 8)}
    # The server knows when each request arrived and when each chunk was written; both share one clock with the client.
    arrivals, writes = sorted(server.arrivals), sorted(w[0] for w in server.writes)
    firsts = sorted(result.start + r.first_token_s for r in records)
    lag = [first - write for first, write in zip(firsts, writes, strict=True)]
    assert min(lag) >= 0
    assert statistics.median(lag) < 0.5  # loose: other things may run on this machine
    assert arrivals[0] >= result.start
    assert all(r.ttft_s >= 0.05 for r in records)
    for r in records:
        assert r.scheduled_s == 0
        stamps = [r.scheduled_s, r.sent_s, r.headers_s, r.first_token_s, r.last_token_s, r.end_s]
        assert stamps == sorted(stamps)
        assert r.ttft_s == pytest.approx(r.first_token_s - r.sent_s, abs=2e-6)
        assert r.e2e_s == pytest.approx(r.last_token_s - r.sent_s, abs=2e-6)


def test_an_error_ends_an_answer_whose_body_stays_open():
    with raw_server(lambda connection: left_open(connection, STREAM_HEAD + chunk(TOKEN) + chunk({"error": "no slot"}))) as port:
        _, records = send(SimpleNamespace(base_url=f"http://127.0.0.1:{port}"), 3, timeout_s=5.0)
    assert [(r.outcome, r.error, len(r.token_times_s)) for r in records] == [("stream_error", "no slot", 1)] * 3


def test_several_processes_share_the_load_the_start_and_the_clock():
    with fake_server(first_s=0.2) as server:
        result, records = send(server, 12, processes=2)
        closed, _ = send(server, 5, "closed", num_requests=11, processes=2)
    assert len(result.processes) == 2
    assert server.peak == 12
    assert [r.index for r in records] == list(range(12))
    assert {r.scheduled_s for r in records} == {0.0}
    assert all(process.clock_skew_s < 0.1 for process in result.processes)
    assert len(closed.records) == 11


def test_a_run_that_cannot_begin_is_a_readable_error():
    with fake_server() as server:
        url = server.base_url
        with pytest.raises(BenchError, match=r"would not build a request.*OPENAI_API_KEY"):
            run_load(Target(url, "m", api_key="not ascii: é"), Load(workload(), 2, "s"))
    with pytest.raises(BenchError, match=r"does not accept.*Check the address"):
        run_load(Target(url, "m"), Load(workload(), 1, "s"))


def ignores_ctrl_c(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("SigIgn:")[1].split()[0], 16) >> (signal.SIGINT - 1) & 1


@pytest.mark.parametrize(
    "told",
    [
        b"",
        "running",
        *(pytest.param(x, marks=pytest.mark.long(part="kills")) for x in (b"\x80\x04\x95", "assignment", "asked")),
    ],
)
def test_a_load_process_says_nothing_at_ctrl_c_nor_when_its_parent_is_gone(told):
    """Ctrl-C reaches every process of a terminal; the session handles it, and closes the pipes."""
    with fake_server(behaviour="silent") as server:
        payload = exchanges(Target(server.base_url, "m"), workload(), seed="s", vocabulary=100)(
            PlannedRequest(0, 0, 16, 8)
        ).payload
        share = {"exchanges": [Exchange(0, payload)], "connections": 1, "spare": 0, "in_flight": 1, "timeout_s": 20.0}
        process = subprocess.Popen([sys.executable, "-m", "bench.load"], stdin=PIPE, stdout=PIPE, stderr=PIPE, bufsize=0)
        if isinstance(told, bytes):
            process.stdin.write(told)
        else:
            process.stdin.write(pickle.dumps(Assignment(host="127.0.0.1", port=server.port, tls=False, **share)))
            assert process.stdout.read(4) == pickle.dumps(None)
        for _ in range(2 if told in ("asked", "running") else 0):
            process.stdin.write(pickle.dumps(None))
            pickle.load(process.stdout)  # noqa: S301 - our own process
        if told == "running":
            process.stdin.write(pickle.dumps(time.monotonic()))
            assert eventually(lambda: server.in_flight, within=60)
        assert eventually(lambda: ignores_ctrl_c(process), within=60)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert process.poll() is None
        _, said = process.communicate(timeout=10)
    assert said == b""
    assert process.returncode == 1


@cases("content", [{}, {"stream": False}, {"endpoint": "chat"}])
def test_a_request_is_what_the_sdk_would_send(content):
    """Byte for byte, but for the encodings that it would accept."""
    load, request = workload(**content), PlannedRequest(3, 3, 20, 7)
    caught = []

    class Catch(httpx2.BaseTransport):
        def handle_request(self, request):
            caught.append(request)
            return httpx2.Response(200, json={"choices": []})

    target = Target("http://127.0.0.1:8000", "m", "key")
    head, body = exchanges(target, load, seed="s", vocabulary=100)(request).payload.split(b"\r\n\r\n")
    sent = json.loads(body)
    common = {"model": "m", "max_tokens": 7, "temperature": 0, "stream": load.stream, "extra_body": {"ignore_eos": True}}
    if load.stream:
        common["stream_options"] = {"include_usage": True}
    with openai.OpenAI(base_url=f"{target.base_url}/v1", api_key="key", http_client=httpx2.Client(transport=Catch())) as sdk:
        if load.endpoint == "chat":
            sdk.chat.completions.create(messages=sent["messages"], **common)
        else:
            sdk.completions.create(prompt=prompt_ids("s", 3, 20, 100), **common)
    assert body == caught[0].content
    lines = [name + b": " + value for name, value in caught[0].headers.raw if name.lower() != b"accept-encoding"]
    assert head.split(b"\r\n") == [b"POST " + caught[0].url.raw_path + b" HTTP/1.1", *lines]


def test_prompts_are_the_same_on_any_machine_and_share_no_beginning():
    assert prompt_ids("seed", 7, 6, 1000) == [438, 665, 443, 471, 149, 548]
    assert len({tuple(prompt_ids(f"run{run}", i, 64, 1000)[:8]) for run in range(20) for i in range(50)}) == 1000

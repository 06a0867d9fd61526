"""The instrument of benchmarks of the client: a server of known truth."""

import json
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from benchmarks.client.figures import server_figures, stamp_delays_ms
from benchmarks.client.server import FIRST_S, PERIOD_S, prompt_key

from tests.support.cases import cases
from tests.support.study import ROOT


@pytest.fixture
def port():
    """A running server's port."""
    command = [sys.executable, "-m", "benchmarks.client.server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield int(process.stdout.readline())
        process.kill()


def page(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return json.load(answer)


def exchange(connection, path, content):
    """Send a request, read to the end of its answer: (events, arrival of the first byte, arrival of the last)."""
    body = json.dumps(content).encode()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path, len(body)) + body)
    data, first = b"", None
    while not data.endswith(b"0\r\n\r\n"):
        data += connection.recv(65536)
        first = first or time.monotonic()
    events = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return events, first, time.monotonic()


@cases(
    ("path", "asked"),
    [
        (b"/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 64}),
        (b"/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 64}),
    ],
)
def test_records_agree_with_what_a_client_sees(port, path, asked):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        sent = time.monotonic()
        events, first, last = exchange(connection, path, {**asked, **options})
        again, _, _ = exchange(connection, path, {**asked, "max_completion_tokens": 1, "stream": True})
    assert events[-1] == again[-1] == b"[DONE]"
    contents = [json.loads(event) for event in events[:-1]]
    assert sum(bool(content["choices"]) for content in contents) == 64
    assert contents[-1]["usage"]["completion_tokens"] == 64
    assert [json.loads(event)["choices"][0]["finish_reason"] for event in again[:-1]] == ["length"]
    record, second = page(port, "/dump")["requests"]
    assert record["prompt"] == prompt_key(asked.get("prompt") or asked["messages"])
    assert record["connection"] == second["connection"]
    assert len(record["writes"]) == record["chunks"] == 64
    assert sent <= record["arrived"] <= record["writes"][0] <= first
    assert record["writes"][-1] <= last
    # Never before it is due; how late depends on the machine.
    due = [record["arrived"] + FIRST_S + number * PERIOD_S for number in range(64)]
    assert all(write >= at - 1e-9 for write, at in zip(record["writes"], due, strict=True))
    assert page(port, "/reset") == {}
    assert page(port, "/dump")["requests"] == []


def test_figures_of_hand_made_records():
    def record(arrived, prompt):
        writes = [arrived + 0.05, arrived + 0.071]
        return {"prompt": prompt, "connection": 0, "accepted": 0.0, "arrived": arrived, "chunks": 2, "writes": writes}

    requests = [record(1.0, "a"), record(1.1, "b"), record(1.103, "c")]
    dump = {"first_s": 0.05, "period_s": 0.02, "stalls": 0, "requests": requests}
    seen = server_figures(dump, rate=10.0)
    assert (seen["completed"], seen["chunks"], seen["in_flight"]) == (3, 6, 2)
    assert seen["wall_ms"] == pytest.approx(174)
    assert seen["leaves_in_ms"] == pytest.approx(103)
    assert seen["ttft_ms"]["p50"] == pytest.approx(50)
    assert seen["late_ms"]["max"] == pytest.approx(1)
    # The third came 97 ms early, so the schedule begins 97 ms before the first arrival, and the first two were late by that.
    assert seen["delay_ms"]["max"] == pytest.approx(97)
    delays = stamp_delays_ms(dump, {"a": [1.052, 1.074], "b": [1.152]})
    assert delays["mean"] == pytest.approx(2.5)

"""Instruments of other tests and of benchmarks: a server of known truth, and a proxy that slows another down by as much as it says."""

import asyncio
import io
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager

import httpx2
import pytest
from benchmarks.client.figures import server_figures, stamp_delays_ms
from benchmarks.client.server import FIRST_S, PERIOD_S, prompt_key

from tests.support.cases import cases
from tests.support.fake_server import fake_server
from tests.support.server import eventually
from tests.support.slow_proxy import SlowProxy, main
from tests.support.study import ROOT

# The server: its records agree with what a client sees.


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


# The proxy.


@contextmanager
def slowed(target, delay_s):
    """A running proxy: it, its address and its record."""
    record, up, loop = io.StringIO(), threading.Event(), asyncio.new_event_loop()
    proxy, over, ports = SlowProxy(target, delay_s, record), asyncio.Event(), []

    async def serve():
        server = await proxy.serve(0)
        ports.append(server.sockets[0].getsockname()[1])
        up.set()
        async with server:
            await over.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(5)
    try:
        yield proxy, f"http://127.0.0.1:{ports[0]}", record
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(5)
        loop.close()


def stamps(url, tokens):
    """When each event of a streaming answer came, from its sending (s), and the events."""
    begin, told = time.monotonic(), []
    asked = {"prompt": [1] * 4, "max_tokens": tokens, "stream": True}
    with httpx2.stream("POST", f"{url}/v1/completions", json=asked) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {") and '"usage"' not in line:
                told.append((time.monotonic() - begin, line))
    return [at for at, _ in told], [line for _, line in told]


def test_each_token_is_later_by_the_delay_and_all_else_passes_as_it_is():
    with (
        fake_server(first_s=0.02, gap_s=0.01, metrics="up 1\n") as server,
        slowed(server.base_url, 0.02) as (proxy, url, record),
    ):
        _, words = stamps(server.base_url, 20)
        slow, same = stamps(url, 20)
        assert same == words
        assert slow[-1] - slow[0] > 19 * (0.01 + 0.02) * 0.95  # a busy machine makes it longer, nothing shorter
        assert eventually(lambda: "\n" in record.getvalue())  # a client has the last chunk before the proxy writes of it
        truth = json.loads(record.getvalue().splitlines()[0])
        assert (truth["chunks"], truth["delay_ms"]) == (21, 20)  # the last is the usage
        assert truth["held_s"] == pytest.approx(21 * 0.02)
        with httpx2.Client() as client:  # whose connection serves many
            assert [client.get(f"{url}/metrics").text for _ in range(3)] == ["up 1\n"] * 3
            answer = client.post(f"{url}/v1/completions", json={"prompt": [1], "max_tokens": 4, "stream": False})
            assert answer.json()["usage"]["completion_tokens"] == 4
        assert len(proxy.streams) == 1


def test_an_answer_that_breaks_off_breaks_off_behind_the_proxy_too():
    with fake_server(behaviour="truncated") as server, slowed(server.base_url, 0.01) as (_, url, _):
        assert len(stamps(url, 10)[1]) == 2
        server.behaviour = "disconnect"
        with pytest.raises(httpx2.HTTPError):
            stamps(url, 10)


def test_only_servers_of_this_machine_are_slowed_down_and_by_a_time(capsys):
    for target in ("http://192.0.2.1:80", "https://127.0.0.1:80", "http://127.0.0.1"):
        with pytest.raises(ValueError, match="this machine only"):
            SlowProxy(target, 0.0)
    with pytest.raises(SystemExit):
        main(["--target", "http://127.0.0.1:1", "--port", "1", "--delay-ms", "-1"])
    assert "a time of 0 or more" in capsys.readouterr().err

"""The proxy that slows a server down: by as much as it says, and nothing else."""

import asyncio
import io
import json
import threading
import time
from contextlib import contextmanager

import httpx2
import pytest

from tests.support.cases import cases
from tests.support.fake_server import fake_server
from tests.support.slow_proxy import SlowProxy, main


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
    with httpx2.stream(
        "POST", f"{url}/v1/completions", json={"prompt": [1] * 4, "max_tokens": tokens, "stream": True}
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {") and '"usage"' not in line:
                told.append((time.monotonic() - begin, line))
    return [at for at, _ in told], [line for _, line in told]


def test_each_token_is_later_by_the_delay_and_the_answer_the_same():
    with fake_server(first_s=0.02, gap_s=0.01) as server, slowed(server.base_url, 0.02) as (_, url, record):
        _, words = stamps(server.base_url, 20)
        slow, same = stamps(url, 20)
        assert same == words
        assert slow[-1] - slow[0] > 19 * (0.01 + 0.02) * 0.95  # a busy machine makes it longer, nothing shorter
    truth = json.loads(record.getvalue().splitlines()[0])
    assert (truth["chunks"], truth["delay_ms"]) == (21, 20)  # the last is the usage
    assert truth["held_s"] == pytest.approx(21 * 0.02)


def test_all_else_passes_as_it_is_and_a_connection_serves_many():
    with fake_server(metrics="up 1\n", pages={"/health": "{}"}) as server, slowed(server.base_url, 0.05) as (proxy, url, _):
        with httpx2.Client() as client:
            for _ in range(3):
                assert client.get(f"{url}/metrics").text == "up 1\n"
            begin = time.monotonic()
            answer = client.post(f"{url}/v1/completions", json={"prompt": [1], "max_tokens": 4, "stream": False})
            assert answer.json()["usage"]["completion_tokens"] == 4
            assert time.monotonic() - begin < 0.5
        assert not proxy.streams


@cases("behaviour", ["disconnect", "truncated"])
def test_an_answer_that_breaks_off_breaks_off_behind_the_proxy_too(behaviour):
    with fake_server(behaviour=behaviour) as server, slowed(server.base_url, 0.01) as (_, url, _):
        broken = []
        try:
            told = stamps(url, 10)[1]
        except httpx2.HTTPError as error:
            told, broken = [], [error]
        assert broken if behaviour == "disconnect" else len(told) == 2


@cases("target", ["http://192.0.2.1:80", "https://127.0.0.1:80", "http://127.0.0.1"])
def test_only_this_machine(target):
    with pytest.raises(ValueError, match="this machine only"):
        SlowProxy(target, 0.0)


def test_a_delay_that_is_none(capsys):
    with pytest.raises(SystemExit):
        main(["--target", "http://127.0.0.1:1", "--port", "1", "--delay-ms", "-1"])
    assert "a time of 0 or more" in capsys.readouterr().err

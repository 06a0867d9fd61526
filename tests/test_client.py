"""The client against a server of known truth: what it sends, when, and what it says became of it."""

import socket
import statistics
import threading
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import BenchError
from bench.workload import Load, RequestRecord, Target, prompt_ids, run_load
from tests.fake_server import fake_server


def send(server, *, arrival="burst", concurrency=8, num_requests=8, timeout_s=20.0, output_tokens=8):
    load = Load(arrival, concurrency, num_requests, 16, output_tokens, "a seed", 500, timeout_s)
    result = run_load(Target(server.base_url, "m"), load)
    return result, [RequestRecord.of(exchange, result.start) for exchange in result.exchanges]


def test_burst_sends_all_at_once_and_stamps_agree_with_the_server():
    with fake_server(first_s=0.05, gap_s=0.01) as server:
        result, records = send(server, concurrency=32, num_requests=32)
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


def test_the_request_asks_for_exact_lengths_by_token_ids():
    with fake_server() as server:
        send(server, concurrency=2, num_requests=2)
    body = server.bodies[0]
    assert len(body["prompt"]) == 16
    assert all(isinstance(i, int) and 3 <= i < 500 for i in body["prompt"])
    assert (body["max_tokens"], body["ignore_eos"], body["stream"]) == (8, True, True)
    assert body["stream_options"] == {"include_usage": True}
    assert server.bodies[0]["prompt"] != server.bodies[1]["prompt"]


def test_closed_loop_holds_the_level_until_all_are_done():
    with fake_server(first_s=0.02, gap_s=0.002) as server:
        result, records = send(server, arrival="closed", concurrency=4, num_requests=20)
    assert server.peak == 4
    assert len(server.arrivals) == 20
    assert {r.outcome for r in records} == {"ok"}
    ends = sorted(r.end_s for r in records)
    assert records[4].sent_s >= ends[0]  # the fifth leaves when the first has ended
    assert records[4].sent_s - ends[0] < 0.5
    assert result.end - result.start >= 5 * 0.02


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("http_error", "no such model"),
        ("stream_error", "out of memory"),
        ("truncated", None),
        ("disconnect", None),
    ],
)
def test_each_fault_is_its_own_outcome(behaviour, error):
    with fake_server(behaviour=behaviour) as server:
        _, records = send(server, concurrency=3, num_requests=3)
    assert [r.outcome for r in records] == [behaviour] * 3
    assert {r.error for r in records} == {error}
    if behaviour != "http_error":
        assert all(len(r.token_times_s) == 2 and r.ttft_s > 0 for r in records)  # what did come is kept


def test_a_request_that_never_ends_is_a_timeout():
    with fake_server(behaviour="silent") as server:
        begin = time.monotonic()
        _, records = send(server, concurrency=2, num_requests=2, timeout_s=0.3)
    assert [r.outcome for r in records] == ["timeout"] * 2
    assert time.monotonic() - begin < 5


def test_closed_loop_goes_on_after_disconnects():
    with fake_server(behaviour="disconnect") as server:
        _, records = send(server, arrival="closed", concurrency=2, num_requests=6)
    assert len(server.arrivals) == 6
    assert {r.outcome for r in records} == {"disconnect"}


def test_a_server_that_closes_every_connection_ends_the_run():
    def close_each(listening):
        with suppress(OSError):
            while True:
                listening.accept()[0].close()

    with fake_server() as server, socket.create_server(("127.0.0.1", 0)) as closing:
        threading.Thread(target=close_each, args=(closing,), daemon=True).start()
        server.port = closing.getsockname()[1]
        _, records = send(server, arrival="closed", concurrency=2, num_requests=4, timeout_s=30)
        closing.shutdown(socket.SHUT_RDWR)
    assert {r.outcome for r in records} == {"disconnect"}


def test_a_request_that_cannot_be_built_is_a_readable_error():
    with fake_server() as server, pytest.raises(BenchError, match=r"would not build a request.*OPENAI_API_KEY"):
        run_load(Target(server.base_url, "m", api_key="not ascii: é"), Load("burst", 2, 2, 4, 4, "s"))


def test_no_server_is_a_readable_error():
    with fake_server() as server:
        url = server.base_url
    with pytest.raises(BenchError, match=r"does not accept.*Check the address"):
        run_load(Target(url, "m"), Load("burst", 1, 1, 4, 4, "s"))


@given(seed=st.text(max_size=20), index=st.integers(0, 10**6), length=st.integers(1, 300), vocabulary=st.integers(16, 200_000))
def test_prompts_are_exact_reproducible_and_within_the_vocabulary(seed, index, length, vocabulary):
    ids = prompt_ids(seed, index, length, vocabulary)
    assert len(ids) == length
    assert ids == prompt_ids(seed, index, length, vocabulary)
    assert all(3 <= i < vocabulary for i in ids)


def test_prompts_are_the_same_on_any_machine():
    assert prompt_ids("seed", 7, 6, 1000) == [438, 665, 443, 471, 149, 548]


def test_no_two_prompts_share_a_beginning():
    firsts = {tuple(prompt_ids(f"run{run}", i, 64, 1000)[:8]) for run in range(20) for i in range(50)}
    assert len(firsts) == 1000

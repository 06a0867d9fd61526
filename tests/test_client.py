"""The client against a server of known truth: what it sends, when, and what it says became of it."""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import BenchError
from bench.study import Workload
from bench.workload import Load, PlannedRequest, Target, client, prime, prompt_ids, run_load
from bench.workload.payload import Payloads
from tests.fake_server import fake_server


def workload(arrival="burst", **more):
    return Workload.model_validate({"arrival": arrival, "prompt_tokens": 16, "output_tokens": 8, **more})


def send(server, level=8, arrival="burst", *, timeout_s=20.0, processes=None, **more):
    load = Load(workload(arrival, **more), level, "a seed", vocabulary=500, timeout_s=timeout_s, processes=processes)
    result = run_load(Target(server.base_url, "m"), load)
    return result, result.records


def test_burst_sends_all_at_once_and_stamps_agree_with_the_server():
    with fake_server(first_s=0.05, gap_s=0.01) as server:
        result, records = send(server, 32)
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
        send(server, 2)
    body = server.bodies[0]
    assert len(body["prompt"]) == 16
    assert all(isinstance(i, int) and 3 <= i < 500 for i in body["prompt"])
    assert (body["max_tokens"], body["ignore_eos"], body["stream"]) == (8, True, True)
    assert body["stream_options"] == {"include_usage": True}
    assert server.bodies[0]["prompt"] != server.bodies[1]["prompt"]


def test_closed_loop_holds_the_level_until_all_are_done():
    with fake_server(first_s=0.02, gap_s=0.002) as server:
        result, records = send(server, 4, "closed", num_requests=20)
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
        _, records = send(server, 3)
    assert [r.outcome for r in records] == [behaviour] * 3
    assert {r.error for r in records} == {error}
    if behaviour != "http_error":
        assert all(len(r.token_times_s) == 2 and r.ttft_s > 0 for r in records)  # what did come is kept


def test_a_request_that_never_ends_is_a_timeout():
    with fake_server(behaviour="silent") as server:
        begin = time.monotonic()
        _, records = send(server, 2, timeout_s=0.3)
    assert [r.outcome for r in records] == ["timeout"] * 2
    assert time.monotonic() - begin < 5


def test_closed_loop_goes_on_after_disconnects():
    with fake_server(behaviour="disconnect") as server:
        _, records = send(server, 2, "closed", num_requests=6)
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
        _, records = send(server, 2, "closed", num_requests=4, timeout_s=30)
        closing.shutdown(socket.SHUT_RDWR)
    assert {r.outcome for r in records} == {"disconnect"}


def test_a_request_that_cannot_be_built_is_a_readable_error():
    with fake_server() as server, pytest.raises(BenchError, match=r"would not build a request.*OPENAI_API_KEY"):
        run_load(Target(server.base_url, "m", api_key="not ascii: é"), Load(workload(), 2, "s"))


def test_no_server_is_a_readable_error():
    with fake_server() as server:
        url = server.base_url
    with pytest.raises(BenchError, match=r"does not accept.*Check the address"):
        run_load(Target(url, "m"), Load(workload(), 1, "s"))


def test_an_open_loop_never_waits_for_an_answer():
    with fake_server(first_s=0.5, gap_s=0.0) as server:
        _, records = send(server, 50.0, "constant", num_requests=25)
    assert server.peak == 25  # all left before the first answer came
    assert [r.scheduled_s for r in records] == pytest.approx([i / 50 for i in range(25)], abs=1e-6)
    assert all(r.sent_s >= r.scheduled_s for r in records)
    assert statistics.median(r.sent_s - r.scheduled_s for r in records) < 0.1  # loose: other things may run on this machine


def test_the_next_turn_follows_the_end_of_the_one_before_it():
    turns = {"count": 3, "new_tokens": 4, "think_s": 0.05}
    with fake_server() as server:
        _, records = send(server, 2, turns=turns)
    assert [(r.index, r.after, r.prompt_asked) for r in records[:3]] == [(0, None, 16), (1, 0, 28), (2, 1, 40)]
    assert len(records) == 6
    for record in records:
        if record.after is not None:
            assert record.sent_s >= records[record.after].end_s + 0.05
    first = [body["prompt"] for body in server.bodies if len(body["prompt"]) == 16]
    last = [body["prompt"] for body in server.bodies if len(body["prompt"]) == 40]
    assert sorted(p[:16] for p in last) == sorted(first)


def test_several_processes_share_the_load_the_start_and_the_clock():
    with fake_server(first_s=0.2) as server:
        result, records = send(server, 12, processes=3)
        closed, _ = send(server, 5, "closed", num_requests=11, processes=2)
    assert len(result.processes) == 3
    assert server.peak == 12
    assert [r.index for r in records] == list(range(12))
    assert {r.scheduled_s for r in records} == {0.0}
    assert all(process.clock_skew_s < 0.01 for process in result.processes)
    assert len(closed.records) == 11


def test_a_process_whose_clock_is_off_is_found_out(monkeypatch):
    skewed = "import time; m = time.monotonic; time.monotonic = lambda: m() + 5; from bench.wire.__main__ import main; main()"
    monkeypatch.setattr(client, "WIRE", (sys.executable, "-c", skewed))
    with fake_server() as server:
        result, _ = send(server, 2, timeout_s=1.0)
    assert result.processes[0].clock_skew_s == pytest.approx(5, abs=0.1)


def group_ends(group, within_s=5.0):
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_the_load_ends_with_sigterm_in_the_middle_of_it():
    """Answers that stream in must not swallow the signal."""
    program = (
        "import signal, sys\n"
        "from bench.study import Workload\n"
        "from bench.workload import Load, Target, run_load\n"
        "def end(*_): raise SystemExit(7)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "run_load(Target(sys.argv[1], 'm'), Load(Workload(arrival='burst', **{k: dict(distribution='fixed', tokens=n) "
        "for k, n in (('prompt_tokens', 16), ('output_tokens', 1000))}), 16, 's'))\n"
    )
    with fake_server(gap_s=0.001) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", program, server.base_url], stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout.readline() == b"ready\n"
        end = time.monotonic() + 20
        while server.in_flight < 16 and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 7
        process.stdout.close()
        assert group_ends(process.pid)  # no load process lives on


def test_a_load_process_ends_with_its_parent():
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.wire"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.close()
    assert process.wait(10) != 0
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("content", [{}, {"stream": False}, {"endpoint": "chat"}])
def test_a_request_is_what_the_sdk_would_send(content):
    """Byte for byte, but for the encodings that it would accept."""
    load, request = workload(**content), PlannedRequest(3, 3, 20, 7)
    caught = []

    class Catch(httpx2.BaseTransport):
        def handle_request(self, request):
            caught.append(request)
            return httpx2.Response(200, json={"choices": []})

    with fake_server() as server:
        target = Target(server.base_url, "m", "key")
        payload = Payloads(target, load, seed="s", vocabulary=100).of(request)
    sdk = openai.OpenAI(base_url=f"{target.base_url}/v1", api_key="key", http_client=httpx2.Client(transport=Catch()))
    common = {"model": "m", "max_tokens": 7, "temperature": 0, "stream": load.stream, "extra_body": {"ignore_eos": True}}
    if load.stream:
        common["stream_options"] = {"include_usage": True}
    head, body = payload.split(b"\r\n\r\n")
    sent = json.loads(body)
    if load.endpoint == "chat":
        sdk.chat.completions.create(messages=sent["messages"], **common)
    else:
        sdk.completions.create(prompt=prompt_ids("s", 3, 20, 100), **common)
    sdk.close()
    assert body == caught[0].content
    lines = [name + b": " + value for name, value in caught[0].headers.raw if name.lower() != b"accept-encoding"]
    assert head.split(b"\r\n") == [b"POST " + caught[0].url.raw_path + b" HTTP/1.1", *lines]


@pytest.mark.parametrize(("template", "each"), [(0, 1), (7, 1), (11, 2)])
def test_a_chat_is_as_long_as_the_server_counts(template, each):
    with fake_server(chat_template=template, tokens_a_letter=each) as server:
        _, records = send(server, 2, endpoint="chat", prompt_tokens=33)
    assert {(r.outcome, r.prompt_asked, r.prompt_tokens) for r in records} == {("ok", 33, 33)}
    texts = [body["messages"][0]["content"] for body in server.bodies]
    assert texts[0] != texts[1]


def test_whole_answers_have_an_end_and_no_first_token():
    with fake_server() as server:
        _, records = send(server, 3, stream=False)
    assert {(r.outcome, r.ttft_s, r.completion_tokens) for r in records} == {("ok", None, 8)}
    assert all(r.e2e_s >= 0.05 for r in records)


def test_what_prompts_share_is_sent_once_before_the_run():
    load = Load(workload(cache="shared", shared_prefix=0.5), 4, "s", vocabulary=500)
    with fake_server() as server:
        target = Target(server.base_url, "m")
        assert prime(target, load).prompt_tokens == 8
        run_load(target, load)
        assert prime(target, Load(workload(), 4, "s")) is None
    primer, *prompts = [body["prompt"] for body in server.bodies]
    assert all(prompt[:8] == primer for prompt in prompts)
    assert len({tuple(prompt) for prompt in prompts}) == 4


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

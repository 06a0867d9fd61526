"""The client against a server of known truth: what it sends, when, and what it says became of it."""

import json
import os
import pickle
import queue
import select
import shutil
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import BenchError
from bench.load import client
from bench.load import loop as load_loop
from bench.load.assignment import Assignment
from bench.load.client import Load, PreparedLoad, run_load
from bench.load.connection import Address, Connection
from bench.load.exchange import Exchange
from bench.load.introduction import introduce
from bench.load.loop import Loop
from bench.load.payload import Payloads
from bench.load.records import record_of
from bench.load.schedule import PlannedRequest
from bench.load.target import Target
from bench.prompts.random_ids import prompt_ids
from bench.study import Workload
from tests.support.fake_server import (
    STREAM,
    STREAM_HEAD,
    TOKEN,
    chunk,
    fake_server,
    left_open,
    raw_server,
    read_head,
    read_request,
)


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
        ("truncated", "the stream ended after 2 chunks with tokens, without [DONE], a finish_reason or a usage"),
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


def test_an_error_ends_an_answer_whose_body_stays_open():
    with raw_server(lambda connection: left_open(connection, STREAM_HEAD + chunk(TOKEN) + chunk({"error": "no slot"}))) as port:
        _, records = send(SimpleNamespace(base_url=f"http://127.0.0.1:{port}"), 3, timeout_s=5.0)
    assert [(r.outcome, r.error, len(r.token_times_s)) for r in records] == [("stream_error", "no slot", 1)] * 3


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
    assert {r.outcome for r in records[2:]} == {"disconnect"}  # the first two are shorter, and may end before


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
    assert all(process.clock_skew_s < 0.1 for process in result.processes)
    assert len(closed.records) == 11


def test_a_process_says_whether_it_ran_ahead_of_others():
    asked = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"
    permitted = subprocess.run([sys.executable, "-c", asked], capture_output=True).returncode == 0
    with fake_server() as server:
        result, _ = send(server, 2)
    assert result.processes[0].realtime == permitted


def test_a_process_whose_clock_is_off_is_found_out(monkeypatch):
    skewed = "import time; m = time.monotonic; time.monotonic = lambda: m() + 5; from bench.load.__main__ import main; main()"
    monkeypatch.setattr(client, "PROCESS", (sys.executable, "-c", skewed))
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
        "from bench.load.client import Load, run_load\nfrom bench.load.target import Target\n"
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
        [sys.executable, "-m", "bench.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.close()
    assert process.wait(10) != 0
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("told", [b"", pickle.dumps("x")[:3], "assignment", "asked", "running"])
def test_a_load_process_says_nothing_at_ctrl_c_nor_when_its_parent_is_gone(told):
    """Ctrl-C reaches every process of a terminal; the session handles it, and closes the pipes."""
    with fake_server(behaviour="silent") as server:
        load, request = workload(), PlannedRequest(0, 0, 16, 8)
        payload = Payloads(Target(server.base_url, "m"), load, seed="s", vocabulary=100).of(request)
        share = {"exchanges": [Exchange(0, payload)], "connections": 1, "spare": 0, "in_flight": 0, "timeout_s": 20.0}
        assignment = pickle.dumps(Assignment(host="127.0.0.1", port=server.port, tls=False, **share))
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if isinstance(told, bytes):
            process.stdin.write(told)
            process.stdin.flush()
            time.sleep(1)
        else:
            process.stdin.write(assignment)
            process.stdin.flush()
            assert process.stdout.read(4) == pickle.dumps(None)
        if told in ("asked", "running"):
            for _ in range(2):
                process.stdin.write(b"?")
                process.stdin.flush()
                process.stdout.read(8)
        if told == "running":
            process.stdin.write(struct.pack("d", time.monotonic()))
            process.stdin.flush()
            time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert process.poll() is None
        _, said = process.communicate(timeout=10)
    assert said == b""
    assert process.returncode == 1


@pytest.mark.parametrize("content", [{}, {"stream": False}, {"endpoint": "chat"}, {"endpoint": "responses"}])
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
    if load.endpoint == "responses":
        common |= {"max_output_tokens": common.pop("max_tokens"), "store": False}
        common.pop("stream_options")
        sdk.responses.create(input=sent["input"], **common)
    elif load.endpoint == "chat":
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
        ttfts = []
        target = introduce(Target(server.base_url, "m"), "chat", answered=ttfts.append)
        assert len(ttfts) == len(server.bodies)
        assert all(0.02 <= ttft < 5 for ttft in ttfts)
        server.bodies.clear()
        records = run_load(target, Load(workload(endpoint="chat", prompt_tokens=33), 2, "s")).records
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
        assert [record.prompt_tokens for record in PreparedLoad(target, load).prime()] == [8]
        run_load(target, load)
        assert PreparedLoad(target, Load(workload(), 4, "s")).prime() == []
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


# The loop itself, against servers that go wrong below HTTP.


def request(body_bytes=2):
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % body_bytes + b"x" * body_bytes


def drive(port, exchanges=1, *, connections=1, in_flight=1, spare=0, timeout_s=5.0, before=None, reuses=True):
    """The records of `exchanges` (a number of small ones, or themselves) that this process sends; `before` sees the loop first."""
    if isinstance(exchanges, int):
        exchanges = [Exchange(i, request()) for i in range(exchanges)]
    loop = Loop(Address("127.0.0.1", port, None), timeout_s=timeout_s, spare=spare, reuses=reuses)
    try:
        loop.open(connections)
        if before:
            before(loop)
        start = time.monotonic()
        loop.run(exchanges, start, in_flight)
    finally:
        loop.close()
    return [record_of(exchange, start) for exchange in exchanges]


def answers(*pieces, pause_s=0.0):
    """A handler that answers each request with `pieces`, one packet each."""

    def handle(connection):
        while read_request(connection):
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause_s)

    return handle


def fill(stack, listening):
    """Make a listener drop whoever else would connect to it: its queue is full."""
    listening.listen(0)
    for _ in range(3):
        filling = stack.enter_context(socket.socket())
        filling.setblocking(False)
        filling.connect_ex(listening.getsockname())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that nobody has signed but itself, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    options = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    )
    files = [folder / "cert.pem", folder / "key.pem"]
    subprocess.run(["openssl", *options.split(), "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


@pytest.fixture
def server_tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def test_tls_trusts_the_authority_that_the_environment_names(certificate, server_tls, monkeypatch):
    with fake_server(tls=server_tls) as server:
        with pytest.raises(BenchError, match="signed by an authority that is not trusted here"):
            send(server, 1)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        _, records = send(server, 3, "closed", num_requests=6, prompt_tokens=20_000)  # longer than a TLS record
    assert {(r.outcome, r.error) for r in records} == {("ok", None)}
    assert [len(r.token_times_s) for r in records] == [r.output_asked for r in records]


def test_tls_begins_when_the_connection_is_there(certificate, server_tls):
    """Over a network, connect takes a round trip; here, until the queue has room and the kernel tries again, after a second."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        tls = ssl.create_default_context(cafile=certificate[0])
        address = Address("127.0.0.1", listening.getsockname()[1], tls)
        listening.accept()[0].close()
        fill(stack, listening)

        def handshake(accepted):
            with accepted, suppress(OSError), server_tls.wrap_socket(accepted, server_side=True) as secure:
                secure.recv(1)

        def accept():
            with suppress(OSError):
                while True:
                    threading.Thread(target=handshake, args=(listening.accept()[0],), daemon=True).start()

        loop = Loop(address, timeout_s=5)
        stack.callback(loop.close)
        stack.callback(listening.shutdown, socket.SHUT_RDWR)
        connection = Connection(address)
        assert connection.proceed() == select.EPOLLOUT  # asked too early
        connection.close()
        threading.Timer(0.1, accept).start()
        loop.open(1, within_s=10)
        assert loop._idle[0].sock.version()


def test_what_tls_had_read_before_it_failed_is_kept():
    with raw_server(answers(STREAM)) as port:
        connection = Connection(Address("127.0.0.1", port, None))
    connection.close()
    reads = iter([b"a", b"b", ConnectionResetError(104, "reset"), ConnectionResetError(104, "reset"), ssl.SSLWantReadError()])

    def recv(_):
        if isinstance(read := next(reads), Exception):
            raise read
        return read

    connection.sock = SimpleNamespace(recv=recv)
    assert connection._recv_tls(9) == b"ab"
    with pytest.raises(ConnectionResetError):
        connection._recv_tls(9)
    with pytest.raises(BlockingIOError):
        connection._recv_tls(9)


BODY = STREAM.removeprefix(STREAM_HEAD)
PLAIN = b'data: {"choices":[{"text":"t"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("answer", "closes"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n" + PLAIN, True),  # its end is that of the connection
        (b"HTTP/1.1 200 OK\r\nConnection:close\r\nTransfer-Encoding:chunked\r\n\r\n" + BODY, False),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length:%d\r\n\r\n" % len(PLAIN) + PLAIN, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: %d\r\n\r\n" % len(PLAIN) + PLAIN, False),
    ],
)
def test_a_connection_that_is_to_end_carries_no_other_request(answer, closes):
    again = []

    def handle(connection):
        if read_request(connection):
            connection.sendall(answer)
            if not closes:
                again.append(read_request(connection))

    with raw_server(handle) as port:
        assert [r.outcome for r in drive(port, 3)] == ["ok"] * 3
    assert not any(again)


DONE = STREAM.removesuffix(b"0\r\n\r\n")
LINES = STREAM_HEAD + chunk(TOKEN) + b"f\r\ndata:[DONE]\r\n\r\n\r\n"


@pytest.mark.parametrize("pieces", [[DONE], [LINES], [STREAM_HEAD, chunk(TOKEN), chunk(b"[DONE]")], [STREAM]])
def test_a_connection_of_one_request_is_closed_at_done(pieces):
    """As the SDKs do: the end of the body may never come, and whoever stands before the server must not wait for it."""
    closed = queue.Queue()

    def handle(connection):
        read_request(connection)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.02)
        closed.put(connection.recv(1))

    with raw_server(handle) as port:
        records = drive(port, 3, reuses=False)
        assert [(r.outcome, r.done) for r in records] == [("ok", True)] * 3
        assert [closed.get(timeout=2) for _ in range(3)] == [b""] * 3


def test_words_of_an_answer_do_not_end_it():
    said = chunk({"choices": [{"text": "data: [DONE]"}]})
    with raw_server(answers(STREAM_HEAD, said, said, chunk(b"[DONE]"), pause_s=0.02)) as port:
        assert [len(r.token_times_s) for r in drive(port, 2, reuses=False)] == [2, 2]


def test_headers_without_a_space_are_read():
    connections = []

    def handle(connection):
        connections.append(connection)
        answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding:chunked\r\n\r\n" + BODY)(connection)

    with raw_server(handle) as port:
        assert [r.outcome for r in drive(port, 3)] == ["ok"] * 3
    assert len(connections) == 2  # one of them found the address


@pytest.mark.parametrize("interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"])
@pytest.mark.parametrize("answer", [STREAM, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(PLAIN) + PLAIN])
@pytest.mark.parametrize("pause_s", [0.0, 0.02])
def test_an_interim_answer_is_none(interim, answer, pause_s):
    with raw_server(answers(interim, answer, pause_s=pause_s)) as port:
        records = drive(port, 2)
    assert [(r.outcome, r.status) for r in records] == [("ok", 200)] * 2


LONG = 16 << 20  # more than the sockets' buffers hold


def test_an_answer_may_begin_before_the_request_was_read():
    def handle(connection):
        length, read = read_head(connection)
        if length:
            connection.sendall(STREAM_HEAD)
            time.sleep(0.1)
            while read < length:
                read += len(connection.recv(1 << 20))
            connection.sendall(BODY)

    with raw_server(handle) as port:
        (record,) = drive(port, [Exchange(0, request(LONG))])
    assert (record.outcome, record.error) == ("ok", None)


@pytest.mark.parametrize("kept", [True, False])
def test_an_answer_that_refuses_the_request_s_body_is_read(kept):
    """And a connection with the rest of a body to write is not used again."""
    text = b'{"error":{"message":"too large"}}'

    def handle(connection):
        if read_head(connection)[0]:
            connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: %d\r\n\r\n" % len(text) + text)
            time.sleep(0.05)
            while kept and connection.recv(1 << 20):
                pass

    with raw_server(handle) as port:
        records = drive(port, [Exchange(i, request(LONG)) for i in range(3)], timeout_s=2)
    assert [(r.outcome, r.status, r.error) for r in records] == [("http_error", 413, "too large")] * 3


def test_a_lost_connection_says_how():
    def handle(connection):
        if read_request(connection):
            connection.sendall(STREAM[:-20])
            time.sleep(0.05)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed

    with raw_server(handle) as port:
        (record,) = drive(port)
    assert (record.outcome, record.error) == ("disconnect", "Connection reset by peer")


def test_bytes_that_are_no_answer_are_named():
    with raw_server(answers(b"220 mail.example ESMTP\r\n\r\n")) as port:
        (record,) = drive(port)
    assert record.outcome == "disconnect"
    assert "no HTTP response" in record.error


@pytest.mark.parametrize(
    ("silent", "failure"), [(True, ("timeout", "no connection within 0.5 s")), (False, ("disconnect", "Connection refused"))]
)
def test_a_request_that_gets_no_connection_says_so(silent, failure):
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve():
            listening.accept()[0].close()  # the one that finds the address
            with listening.accept()[0] as connection:
                read_request(connection)
                if silent:
                    fill(stack, listening)
                else:
                    listening.close()
                connection.sendall(STREAM.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        records = drive(listening.getsockname()[1], 2, timeout_s=0.5)
        thread.join(5)
    assert [(r.outcome, r.error) for r in records] == [("ok", None), failure]


def test_a_spare_connection_that_fails_is_nobody_s_fault(monkeypatch):
    """The first connection takes its time, the spare one is refused: the request waits for its own."""
    opened = []

    class Slow(Connection):
        def __init__(self, address):
            opened.append(self)
            self.until = time.monotonic() + (0.2 if len(opened) == 1 else 0.0)
            other = SimpleNamespace(family=address.family, sockaddr=refusing.getsockname(), tls=None)
            super().__init__(address if len(opened) == 1 else other)

        def proceed(self):
            return select.EPOLLOUT if time.monotonic() < self.until else super().proceed()

    monkeypatch.setattr(load_loop, "Connection", Slow)
    with socket.socket() as refusing, raw_server(answers(STREAM)) as port:
        refusing.bind(("127.0.0.1", 0))  # and never listens
        first, second = Exchange(0, request(), due_s=0.0), Exchange(1, request(), after=(0,))
        records = drive(port, [first, second], connections=0, in_flight=0, spare=2)
    assert len(opened) > 1
    assert [(r.outcome, r.error) for r in records] == [("ok", None)] * 2


def test_a_process_without_descriptors_says_what_to_raise():
    def silent(connection):
        read_request(connection)
        connection.recv(1)

    exchanges = [Exchange(i, request(), due_s=0.0) for i in range(40)]
    command = ["bash", "-c", 'ulimit -n 30; exec "$0" -m bench.load', sys.executable]
    with raw_server(silent) as port, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assignment = Assignment("127.0.0.1", port, False, exchanges, connections=2, spare=2, in_flight=0, timeout_s=5.0)
        process.stdin.write(pickle.dumps(assignment) + b"??" + struct.pack("d", time.monotonic()))
        process.stdin.flush()
        assert pickle.load(process.stdout) is None  # noqa: S301 - our own process
        process.stdout.read(16)
        said = pickle.load(process.stdout)  # noqa: S301
    assert "Too many open files" in said
    assert "`ulimit -n`" in said


def test_a_connection_that_the_server_has_closed_is_not_sent_on():
    """The kernel knows of the close; epoll was not asked since."""
    closed = []

    def handle(connection):
        if len(closed) < 3:  # the one that finds the address, and two that lie idle
            closed.append(connection)
        else:
            answers(STREAM)(connection)

    def closes_are_in(loop):
        assert all(select.select([connection.sock], [], [], 5)[0] for connection in loop._idle)

    with raw_server(handle) as port:
        (record,) = drive(port, connections=2, before=closes_are_in)
    assert (record.outcome, record.error) == ("ok", None)


def test_spare_connections_that_grew_old_are_renewed_before_they_are_needed(monkeypatch):
    """Two of three are used at 0 and old soon after; behind one that never was, they do not count as ready for 0.6 s."""
    monkeypatch.setattr(load_loop, "_IDLE_S", 0.05)
    accepted = []

    def handle(connection):
        accepted.append(time.monotonic())
        answers(STREAM)(connection)

    exchanges = [Exchange(i, request(), due_s=0.0 if i < 2 else 0.6) for i in range(5)]
    with raw_server(handle) as port:
        records = drive(port, exchanges, connections=3, in_flight=0, spare=3)
    assert [r.outcome for r in records] == ["ok"] * 5
    assert len(accepted) == 1 + 3 + 2
    assert max(accepted) < exchanges[-1].scheduled

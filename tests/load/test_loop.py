"""The client's loop, and its connections, against servers that go wrong below HTTP."""

import itertools
import pickle
import queue
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest

from bench.load import loop as load_loop
from bench.load.connection import Address, Connection
from bench.load.exchange import Assignment, Exchange
from bench.load.loop import Loop
from tests.support.cases import cases
from tests.support.fake_server import STREAM, STREAM_HEAD, TOKEN, chunk, raw_server, read_head, read_request
from tests.support.wire import answers, drive, request, reset, self_signed


def fill(stack, listening):
    """Make a listener drop whoever else would connect to it: its queue is full."""
    listening.listen(0)
    for _ in range(3):
        filling = stack.enter_context(socket.socket())
        filling.setblocking(False)
        filling.connect_ex(listening.getsockname())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server_tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


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

        loop = Loop(address, Assignment("127.0.0.1", 0, True, [], 5.0))
        stack.callback(loop.close)
        stack.callback(listening.shutdown, socket.SHUT_RDWR)
        connection = Connection(address)
        assert connection.proceed() == select.EPOLLOUT  # asked too early
        connection.close()
        threading.Timer(0.1, accept).start()
        loop.open(within_s=10)
        assert loop._idle[0].sock.version()


BODY = STREAM.removeprefix(STREAM_HEAD)
PLAIN = b'data: {"choices":[{"text":"t"}]}\n\ndata: [DONE]\n\n'


@cases(
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


@cases("pieces", [[DONE], [LINES], [STREAM_HEAD, chunk(TOKEN), chunk(b"[DONE]")], [STREAM]])
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


def test_an_interim_answer_is_none():
    plain = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(PLAIN) + PLAIN
    for interim in (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"):
        for answer, pause_s in itertools.product((STREAM, plain), (0.0, 0.02)):
            with raw_server(answers(interim, answer, pause_s=pause_s)) as port:
                assert [(r.outcome, r.status) for r in drive(port, 2)] == [("ok", 200)] * 2, (interim, answer)


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


@cases("kept", [True, False])
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


def test_a_lost_connection_and_bytes_that_are_no_answer_are_named():
    def lost(connection):
        if read_request(connection):
            connection.sendall(STREAM[:-20])
            reset(connection)

    with raw_server(lost) as port:
        (record,) = drive(port)
    assert (record.outcome, record.error) == ("disconnect", "Connection reset by peer")
    with raw_server(answers(b"220 mail.example ESMTP\r\n\r\n")) as port:
        (record,) = drive(port)
    assert record.outcome == "disconnect"
    assert "no HTTP response" in record.error


@cases(
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


def test_a_process_without_descriptors_says_what_to_raise():
    def silent(connection):
        read_request(connection)
        connection.recv(1)

    exchanges = [Exchange(i, request(), due_s=0.0) for i in range(40)]
    command = ["bash", "-c", 'ulimit -n 30; exec "$0" -m bench.load', sys.executable]
    with raw_server(silent) as port, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assignment = Assignment("127.0.0.1", port, False, exchanges, connections=2, spare=2, in_flight=0, timeout_s=5.0)
        process.stdin.write(b"".join(map(pickle.dumps, (assignment, None, None, time.monotonic()))))
        process.stdin.flush()
        ready, _, _, said = (pickle.load(process.stdout) for _ in range(4))  # noqa: S301 - our own process
    assert ready is None
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

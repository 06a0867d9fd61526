"""The load's own loop against servers that go wrong below HTTP."""

import socket
import struct
import subprocess
import time

from bench.load.connection import Address
from bench.load.exchange import Assignment, Exchange
from bench.load.loop import Loop
from bench.load.records import record_of
from tests.support.fake_server import read_request


def request(body_bytes=2):
    """A request of so many bytes."""
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % body_bytes + b"x" * body_bytes


def drive(port, exchanges=1, *, connections=1, in_flight=1, spare=0, timeout_s=5.0, before=None, reuses=True):
    """The records of `exchanges` (a number of small ones, or themselves) that this process sends; `before` sees the loop first."""
    if isinstance(exchanges, int):
        exchanges = [Exchange(i, request()) for i in range(exchanges)]
    how = {"connections": connections, "spare": spare, "in_flight": in_flight, "reuses": reuses}
    assignment = Assignment("127.0.0.1", port, False, exchanges, timeout_s, **how)
    loop = Loop(Address("127.0.0.1", port, None), assignment)
    try:
        loop.open()
        if before:
            before(loop)
        start = time.monotonic()
        loop.run(start)
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


def reset(connection):
    """Let a close of the connection be a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def self_signed(folder):
    """A certificate for 127.0.0.1 that nobody has signed but itself, and its key."""
    files = [folder / "cert.pem", folder / "key.pem"]
    options = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(["openssl", *options.split(), "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files

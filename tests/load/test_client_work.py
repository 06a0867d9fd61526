"""What a chunk costs the load generator, counted: system calls, other calls, and memory that stays. `benchmarks.client` measures time.

The servers of these streams act within the loop's own calls of `poll`, so that each count is the same on any machine.
"""

import socket
import sys
import time
import tracemalloc
from collections import Counter

from bench.load import loop as load_loop
from bench.load.connection import Address
from bench.load.exchange import Assignment, Exchange
from bench.load.loop import Loop
from tests.support.fake_server import STREAM_HEAD, chunk

STREAMS = load_loop._MANY  # from so many on, a wake waits for more
TOKEN = chunk({"id": "c", "choices": [{"index": 0, "text": " word", "finish_reason": None}], "padding": "x" * 200})
REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


def work(monkeypatch, chunks):
    """Calls by name, and bytes that stay allocated, of streams of so many chunks, all of which write at once."""
    monkeypatch.setattr(load_loop, "_TICK_S", 3600.0)  # how often it ticks would depend on the machine
    pieces = iter([STREAM_HEAD, *[TOKEN] * chunks, b"0\r\n\r\n"])
    exchanges = [Exchange(i, REQUEST, output_asked=chunks) for i in range(STREAMS)]
    calls, written = Counter(), 0

    def profiled(frame, event, called):
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call":
            calls[called.__name__] += 1
            if called.__name__ == "poll" and all(x.sent and len(x.reads) == written for x in exchanges):
                write()

    def write():
        nonlocal written
        written += 1
        piece = next(pieces)
        for connection in accepted:
            connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0), backlog=STREAMS) as listening:
        at = ("127.0.0.1", listening.getsockname()[1])
        sent = Assignment(*at, False, exchanges, 60.0, connections=STREAMS, in_flight=STREAMS)
        loop = Loop(Address(*at, None), sent)
        listening.accept()[0].close()
        loop.open()
        accepted = [listening.accept()[0] for _ in range(STREAMS)]
    tracemalloc.start()
    sys.setprofile(profiled)
    try:
        loop.run(time.monotonic())
    finally:
        sys.setprofile(None)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        loop.close()
        for connection in accepted:
            connection.close()
    assert {x.failure for x in exchanges} == {None}
    return calls, kept


def test_a_chunk_costs_one_read_and_a_handful_of_calls(monkeypatch):
    (few, few_kept), (many, many_kept) = work(monkeypatch, 2), work(monkeypatch, 12)
    chunks = 10 * STREAMS
    each = {name: (many[name] - few[name]) / chunks for name in many}
    assert each["poll"] < 1 / 32  # a wake takes what has come
    costs = {name: round(calls) for name, calls in each.items() if calls > 0.05}
    assert costs == {"recv": 1, "monotonic": 1, "get": 1, "append": 2, "len": 1}
    # The bytes themselves with what Python adds to them, a stamp, and a place in each of two lists.
    assert (many_kept - few_kept) / chunks < len(TOKEN) + sys.getsizeof(b"") + sys.getsizeof(1.0) + 2 * 8 * 1.5

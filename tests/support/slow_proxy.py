"""A proxy that makes a server's streaming answers slower by a known time a token.

    python -m tests.support.slow_proxy --target http://127.0.0.1:8000 --port 8001 --delay-ms 5

Everything is forwarded. Of an answer of `text/event-stream`, the first chunk is held back by the delay, the second by twice as much,
and so on, each from when it came: the stream runs a fixed time a token behind, and TPOT rises by the delay, whatever the load. A chunk
is an event (`data: …` and an empty line), the usage at the end too; `[DONE]` is behind by as much as the one before. Loopback only. The
truth is written to --record, a line of JSON a stream: `chunks`, `delay_ms`, `held_s` (the last chunk's) and `late_s` (by how much the
worst chunk was later than it should have been).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

__all__ = ["SlowProxy", "main"]

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEAD = 64 * 1024
_PIECE = 64 * 1024
_DONE = b"[DONE]"


class SlowProxy:
    """The proxy, between one client and one server.

    Attributes:
        streams: the truth of each stream that has ended.
    """

    def __init__(self, target: str, delay_s: float, record: TextIO | None = None) -> None:
        address = urlsplit(target)
        if address.scheme != "http" or address.hostname not in _LOOPBACK or not address.port:
            raise ValueError(f"--target {target}: give http://127.0.0.1:PORT. The proxy talks to this machine only.")
        self._host, self._port = str(address.hostname), int(address.port)
        self._delay_s = delay_s
        self._record = record
        self.streams: list[dict[str, float]] = []

    async def serve(self, port: int) -> asyncio.Server:
        """Listen on loopback; port 0 takes a free one."""
        return await asyncio.start_server(self._connection, "127.0.0.1", port, backlog=2048, limit=_HEAD)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client's connection, and one of its own to the server; requests go up unchanged, and answers come down one by one."""
        try:
            above, up = await asyncio.open_connection(self._host, self._port, limit=_HEAD)
        except OSError:
            writer.close()
            return
        upward = asyncio.create_task(_copy(reader, up))
        upward.add_done_callback(lambda _: up.close())  # a client that is gone: nothing is waited for any more
        try:
            while await self._answer(above, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass  # an answer that ends early ends early here too
        finally:
            upward.cancel()
            for end in (up, writer):
                with suppress(ConnectionError):
                    end.close()

    async def _answer(self, above: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One answer; whether another may follow on the connection."""
        head = await above.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        writer.write(head)
        status = int(head.split(b" ", 2)[1])
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            await self._chunked(above, writer, slow=b"text/event-stream" in fields.get(b"content-type", b""))
        elif b"content-length" in fields:
            await _exactly(above, writer, int(fields[b"content-length"]))
        elif status >= 200 and status not in (204, 304):
            await _copy(above, writer)
            return False
        await writer.drain()
        return b"close" not in fields.get(b"connection", b"")

    async def _chunked(self, above: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        """A body in chunks, each of them held back where it is a stream of events."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(_send_when_due(due, writer))
        events = 0
        try:
            while True:
                line = await above.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                body = await above.readexactly(size + 2)
                if slow and size:
                    events += sum(event.startswith(b"data:") and _DONE not in event for event in body.split(b"\n"))
                due.put_nowait((time.monotonic() + (events * self._delay_s if slow else 0.0), line + body))
                if not size:
                    break
        finally:
            due.put_nowait((0.0, b""))
            late_s = await sending
        if slow:
            self._told(events, late_s)

    def _told(self, events: int, late_s: float) -> None:
        truth = {"chunks": events, "delay_ms": 1000 * self._delay_s, "held_s": events * self._delay_s, "late_s": late_s}
        self.streams.append(truth)
        if self._record:
            print(json.dumps(truth), file=self._record, flush=True)


async def _send_when_due(due: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> float:
    """Write what is due in its order until an empty piece comes; by how much the worst was late (s)."""
    worst = 0.0
    while True:
        when, piece = await due.get()
        if not piece:
            return worst
        await asyncio.sleep(max(0.0, when - time.monotonic()))
        worst = max(worst, time.monotonic() - when)
        writer.write(piece)
        await writer.drain()


async def _exactly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    while size:
        piece = await reader.read(min(size, _PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        writer.write(piece)
        await writer.drain()
        size -= len(piece)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All that comes, until its end; which is passed on."""
    with suppress(ConnectionError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _run(options: argparse.Namespace, record: TextIO | None) -> None:
    proxy = SlowProxy(options.target, options.delay_ms / 1000, record)
    server = await proxy.serve(options.port)
    print(f"127.0.0.1:{options.port} → {options.target}, {options.delay_ms:g} ms a token", file=sys.stderr, flush=True)
    async with server:
        await server.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, metavar="URL", help="the server, http://127.0.0.1:PORT")
    parser.add_argument("--port", type=int, required=True, help="where the proxy listens")
    parser.add_argument("--delay-ms", type=float, required=True, help="milliseconds a token")
    parser.add_argument("--record", type=Path, help="where the truth of each stream goes, as lines of JSON")
    options = parser.parse_args(arguments)
    if not 0 <= options.delay_ms < float("inf"):
        parser.error(f"--delay-ms is {options.delay_ms:g}: a time of 0 or more")
    with suppress(KeyboardInterrupt):
        if options.record:
            with options.record.open("a") as record:
                asyncio.run(_run(options, record))
        else:
            asyncio.run(_run(options, None))


if __name__ == "__main__":
    main()

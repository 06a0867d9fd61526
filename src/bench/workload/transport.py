"""The transport under the openai SDK: it holds a request until its moment, and stamps what comes back.

The SDK builds each request before the clock starts and then waits here; connections are open by then. At its moment
a request is one write to a socket. Each piece of the answer is stamped as it arrives and kept, unparsed; the SDK gets the
whole response after the run. So neither the SDK's work nor any parsing lies between a token and its stamp.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import cast

import httptools
import httpx2

__all__ = ["Exchange", "StampedTransport", "current_exchange", "now"]

now = time.monotonic  # the one clock: CLOCK_MONOTONIC, which all processes of a machine share


@dataclass(eq=False, slots=True)
class Exchange:
    """One request and what became of it. Times are seconds on `now`'s clock; None where it did not happen.

    Attributes:
        index: number of the request in its run.
        payload: the request's bytes.
        scheduled: when it was due; sent: when it was handed to the socket.
        headers: when the response's head was complete; end: when its last byte was in.
        pieces: (arrival, body bytes) of each read, in order.
        failure: `disconnect` or `timeout`, where the exchange did not end by itself.
    """

    index: int
    payload: bytes = b""
    scheduled: float | None = None
    sent: float | None = None
    headers: float | None = None
    end: float | None = None
    status: int | None = None
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    failure: str | None = None
    built: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


current_exchange: ContextVar[Exchange] = ContextVar("current_exchange")


class _Connection(asyncio.Protocol):
    """One keep-alive connection that carries one exchange at a time."""

    def __init__(self, timeout_s: float, done: Callable[[_Connection, Exchange], None]) -> None:
        self._timeout_s = timeout_s
        self._done = done
        self._exchange: Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.alive = False

    def start(self, exchange: Exchange) -> None:
        """Send `exchange` now."""
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        exchange.sent = now()
        self._socket.write(exchange.payload)
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._finish, "timeout")

    def close(self) -> None:
        if self.alive:
            self._socket.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)  # uvloop's class is not registered as one
        self.alive = True

    def data_received(self, data: bytes) -> None:
        self._arrival = now()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._finish("disconnect")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio gives it
        self.alive = False
        self._finish("disconnect")

    # What the parser calls.

    def on_headers_complete(self) -> None:
        if self._exchange:
            self._exchange.headers = self._arrival
            self._exchange.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._exchange:
            self._exchange.pieces.append((self._arrival, body))

    def on_message_complete(self) -> None:
        self._finish(None)

    def _finish(self, failure: str | None) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if self._timer:
            self._timer.cancel()
        exchange.failure = failure
        exchange.end = now() if failure else self._arrival
        if failure or not self._parser.should_keep_alive():
            self.close()
            self.alive = False
        self._done(self, exchange)


class StampedTransport(httpx2.AsyncBaseTransport):
    """Holds built requests, sends each when told, and answers the SDK when the run is over.

    Args:
        base_url: the server's address.
        timeout_s: an exchange without its end after this time fails as `timeout`.
        done: called with each exchange at its end, on the event loop, before anything else happens there.
    """

    def __init__(self, base_url: str, *, timeout_s: float, done: Callable[[Exchange], None]) -> None:
        url = httpx2.URL(base_url)
        self._host, self._tls = url.host, url.scheme == "https"
        self._port = url.port or (443 if self._tls else 80)
        self._timeout_s = timeout_s
        self._done = done
        self._idle: deque[_Connection] = deque()
        self._all: list[_Connection] = []

    async def open(self, count: int) -> None:
        """Open connections until `count` are idle and alive, 64 at a time, so that no listen queue overflows.

        Raises:
            OSError: the server does not accept.
        """
        self._idle = deque(connection for connection in self._idle if connection.alive)
        while (missing := count - len(self._idle)) > 0:
            await asyncio.gather(*(self._connect() for _ in range(min(missing, 64))))

    async def _connect(self) -> None:
        context = ssl.create_default_context() if self._tls else None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._timeout_s, self._ended), self._host, self._port, ssl=context
        )
        self._idle.append(connection)
        self._all.append(connection)

    def send(self, exchange: Exchange) -> bool:
        """Send `exchange` now on an open connection; False where none is left."""
        while self._idle:
            connection = self._idle.popleft()
            if connection.alive:
                connection.start(exchange)
                return True
        return False

    def _ended(self, connection: _Connection, exchange: Exchange) -> None:
        if connection.alive:
            self._idle.append(connection)
        self._done(exchange)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Keep the request's bytes, wait for the end of the run, and give the SDK its response."""
        exchange = current_exchange.get()
        target = request.url.raw_path
        head = [request.method.encode() + b" " + target + b" HTTP/1.1"]
        head += [name + b": " + value for name, value in request.headers.raw if name.lower() != b"accept-encoding"]
        exchange.payload = b"\r\n".join(head) + b"\r\n\r\n" + await request.aread()
        exchange.built.set()
        await exchange.released.wait()
        if exchange.failure or exchange.status is None:
            raise httpx2.ReadError(exchange.failure or "not sent", request=request)
        return httpx2.Response(exchange.status, content=b"".join(body for _, body in exchange.pieces), request=request)

    async def aclose(self) -> None:
        for connection in self._all:
            connection.close()

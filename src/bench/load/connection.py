"""One keep-alive connection: opened without blocking, and read in such a way that a chunk costs a system call and two appends."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable

import httptools

from bench.load.exchange import Exchange

READ_SIZE = 65536  # bytes of a read; convention
# What the parser raises on bytes that are no answer.
UNREADABLE = (httptools.HttpParserError, httptools.HttpParserUpgrade)
_STATUS = slice(9, 10)  # the first digit, in a status line such as HTTP/1.1 200 OK
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_DONE = (b"data: [DONE]", b"data:[DONE]")


def says_done(data: bytes) -> bool:
    """Whether a read ends with the event that ends a stream."""
    return data.rstrip(b"\r\n").endswith(_DONE)


class Address:
    """A server as sockets know it: found by one connection that works, so that no other has to ask for its name.

    Raises:
        OSError: nothing accepts there.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self.host, self.tls = host, tls
        with socket.create_connection((host, port), timeout=10) as found:
            self.family, self.sockaddr = found.family, found.getpeername()


class Connection:
    """One connection that carries one exchange at a time.

    Attributes:
        recv: reads what is there; raises BlockingIOError where nothing is, returns b"" at the end of the stream.
        exchange: the exchange in flight; None while idle.
        fast: whether only a read whose tail looks like a last chunk is looked at: an answer in chunks, its head complete.
        since: when it became idle. unsent: what is left to write of a request. used: whether an answer has come over it.
    """

    __slots__ = (
        *("_address", "_ended", "_fed", "_head", "_head_complete", "_parser", "_until_close"),
        *("exchange", "fast", "fd", "open", "recv", "reusable", "since", "sock", "unsent", "used"),
    )

    def __init__(self, address: Address) -> None:
        sock: socket.socket = socket.socket(address.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if (error := sock.connect_ex(address.sockaddr)) not in (0, errno.EINPROGRESS):
            sock.close()
            raise OSError(error, os.strerror(error))
        self.recv: Callable[[int], bytes] = sock.recv
        self.sock, self.fd = sock, sock.fileno()
        self._address = address
        self.open, self.reusable, self.used = False, True, False
        self.exchange: Exchange | None = None
        self.since = 0.0
        self.unsent = b""
        self._reset()

    def _reset(self) -> None:
        self.fast = False
        self._head = b""
        self._head_complete = self._until_close = self._ended = False
        self._parser: httptools.HttpResponseParser | None = None
        self._fed = 0

    def _recv_tls(self, size: int) -> bytes:
        """All that the TLS layer holds: what it has decrypted already wakes no epoll."""
        parts = []
        try:
            while part := self.sock.recv(size):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not parts:
                raise BlockingIOError from None
        except OSError:
            # What came before a failure counts; the next read meets the failure again.
            if not parts:
                raise
        return b"".join(parts)

    def proceed(self) -> int:
        """Go on with opening, or with a request that did not go out at once; the epoll events to wait for next.

        Raises:
            OSError: the connection failed.
        """
        if not self.open:
            if not isinstance(self.sock, ssl.SSLSocket):
                # Called again, connect reports the state: the event may be one of a connection that had this descriptor before.
                error = self.sock.connect_ex(self._address.sockaddr)
                if error in (errno.EINPROGRESS, errno.EALREADY):
                    return select.EPOLLOUT
                if error not in (0, errno.EISCONN):
                    raise OSError(error, os.strerror(error))
                if tls := self._address.tls:  # which wants a socket that is connected
                    self.sock = tls.wrap_socket(self.sock, server_hostname=self._address.host, do_handshake_on_connect=False)
                    self.recv = self._recv_tls
            if isinstance(self.sock, ssl.SSLSocket):
                try:
                    self.sock.do_handshake()
                except ssl.SSLWantReadError:
                    return select.EPOLLIN
                except ssl.SSLWantWriteError:
                    return select.EPOLLOUT
            self.open = True
        if self.unsent:
            self.write(self.unsent)
        return select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0)

    def start(self, exchange: Exchange) -> bool:
        """Send `exchange`; whether all of it went.

        Raises:
            OSError: the connection failed.
        """
        self.exchange = exchange
        self._reset()
        return self.write(exchange.payload)

    def write(self, data: bytes) -> bool:
        """Write `data`, or keep what does not go at once for `proceed`; whether all of it went."""
        try:
            sent = self.sock.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent = 0
        self.unsent = data[sent:] if sent < len(data) else b""
        return not self.unsent

    def quiet(self) -> bool:
        """Whether an idle connection is as it was left: all that a server has to say on it is that it closes it.

        That may have come since epoll was last asked.
        """
        try:
            self.recv(1)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def complete(self, data: bytes) -> bool:
        """Whether the answer ends with `data`, the exchange's latest read; empty at the end of the stream.

        Called for the first reads of an answer and for those that may be its last. In an answer of chunks the last one is known by
        its bytes; the whole is parsed after the run, and an answer that was taken for complete too early shows there as truncated.
        Every other answer is parsed here.

        Raises:
            UNREADABLE: these bytes are not an HTTP response.
        """
        exchange = self.exchange
        assert exchange is not None
        if not data:
            return self._until_close
        if not self._head_complete:
            self._head += data
            # 100 Continue or 103 Early Hints come ahead of the answer.
            while (end := self._head.find(b"\r\n\r\n")) >= 0 and self._head[_STATUS] == b"1":
                self._head = self._head[end + 4 :]
            if end < 0:
                return False
            self._head_complete = True
            version, *lines = self._head[:end].lower().split(b"\r\n")
            fields = {name.strip(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
            self.fast = fields.get(b"transfer-encoding", b"").endswith(b"chunked")
            self._until_close = not self.fast and b"content-length" not in fields
            closes = b"close" in fields.get(b"connection", b"") or version.startswith(b"http/1.0")
            self.reusable = not (closes or self._until_close)
            if self.fast and len(self._head) == end + 4:
                return False
        if self.fast:
            tail = data if len(data) >= len(_LAST_CHUNK) else b"".join(exchange.reads[-len(_LAST_CHUNK) :])
            if tail.endswith(_LAST_CHUNK):
                return True
            if not tail.endswith(b"\r\n\r\n"):
                return False
        return self._parsed(exchange)

    def _parsed(self, exchange: Exchange) -> bool:
        """Whether the parser finds the end; it is fed only what it has not seen."""
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        for read in exchange.reads[self._fed :]:
            self._parser.feed_data(read)
        self._fed = len(exchange.reads)
        return self._ended

    def on_message_complete(self) -> None:
        """Called by the parser (httptools)."""
        self._ended = self._parser is not None and self._parser.get_status_code() >= 200

    def close(self) -> None:
        """Close it at once."""
        self.sock.close()

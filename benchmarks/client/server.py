"""A server of known truth: every chunk has a due time, and the moment of each write is recorded.

One thread, one epoll, no framework, so that what a client reports can be checked against what happened. A completion's first chunk is
due `FIRST_S` after its request arrived and the others `PERIOD_S` apart, on an absolute schedule of its own: a late chunk delays
no other. The number of chunks is the request's max_tokens. All times are seconds on CLOCK_MONOTONIC (`time.monotonic`).

    POST /v1/completions, /v1/chat/completions    server-sent events in chunked transfer encoding
    GET  /v1/models, /health, /metrics            what clients look at before they start
    GET  /dump                                    the records since the last reset, as JSON (see `TruthServer.dump`)
    GET  /reset                                   forget them, and end the streams that still run
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import mmap
import os
import select
import socket
import struct
import sys
from array import array
from collections import deque
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

FIRST_S = 0.050
PERIOD_S = 0.020
MODEL = "truth"
STATE_FORMAT = "2d"  # what the file maps: requests arrived, requests ended
_WRITES_BETWEEN_POLLS = 48  # arrivals are stamped when they are read: look for them at least every half millisecond
_ACCEPTED_BETWEEN_POLLS = 16
_PARSED_BETWEEN_POLLS = 8  # a request takes some 20 µs to understand, and has 50 ms
_SPIN_S = 0.0012  # epoll's timeout counts whole milliseconds: closer to a due time than this, the server spins


def prompt_key(prompt: Any) -> str:
    """What identifies a prompt: a digest of the text or of the list of token ids."""
    return hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:16]


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(content: dict[str, Any]) -> bytes:
    return _http_chunk(b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n")


_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: truth\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


@lru_cache(maxsize=1024)
def _payloads(chat: bool, chunks: int, prompt_tokens: int, usage: bool) -> tuple[bytes, bytes, bytes]:
    """(head and first chunk, a chunk, last chunk with usage, [DONE] and the end), each one write, as vLLM words them."""

    def content(choices: list[dict[str, Any]], used: dict[str, int] | None = None) -> dict[str, Any]:
        kind, name = ("chatcmpl", "chat.completion.chunk") if chat else ("cmpl", "text_completion")
        event = {"id": f"{kind}-0123456789abcdef", "object": name, "created": 1750000000, "model": MODEL, "choices": choices}
        return event | ({"usage": used} if used else {})

    def token(finish: str | None) -> bytes:
        said = {"delta": {"content": "a"}} if chat else {"text": "a"}
        return _event(content([{"index": 0, **said, "logprobs": None, "finish_reason": finish, "stop_reason": None}]))

    used = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + chunks, "completion_tokens": chunks}
    last = token("length") + (_event(content([], used)) if usage else b"") + _http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    return _HEAD + (last if chunks == 1 else token(None)), token(None), last


class _Connection:
    __slots__ = ("accepted", "arrived", "buffer", "fd", "number", "socket", "stream")

    def __init__(self, accepted_socket: socket.socket, accepted: float, number: int) -> None:
        self.socket = accepted_socket
        self.fd = accepted_socket.fileno()
        self.accepted = accepted
        self.arrived = accepted
        self.number = number
        self.buffer = b""
        self.stream: _Stream | None = None


class _Stream:
    """One request: `slot` is where its next write's stamp goes; -1 as `fd` says that the client went away."""

    __slots__ = ("accepted", "arrived", "body", "chunk", "due", "end", "fd", "first", "last", "number", "slot", "start")

    def __init__(
        self, connection: _Connection, body: bytes, payloads: tuple[bytes, bytes, bytes], start: int, end: int
    ) -> None:
        self.fd = connection.fd
        self.accepted = connection.accepted
        self.arrived = connection.arrived
        self.number = connection.number
        self.body = body
        self.first, self.chunk, self.last = payloads
        self.start, self.slot, self.end = start, start, end
        self.due = connection.arrived + FIRST_S


class TruthServer:
    """The server; `run` serves for ever."""

    def __init__(self, state: Path) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(8192)  # the kernel cuts it to net.core.somaxconn
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._unread: deque[_Connection] = deque()
        self._accepted = 0
        self._shared = _map(state)
        self._state = memoryview(self._shared).cast("d")
        self._stamps = array("d", bytes(8 * 500_000))
        self._forget()

    def _forget(self) -> None:
        self._streams: list[_Stream] = []
        self._opening: deque[_Stream] = deque()  # before their first chunk, and after it: each ordered by due time, because
        self._running: deque[_Stream] = deque()  # the earliest is always written first and then due one period later
        self._used = 0
        self._stalls = 0
        self._state[:] = memoryview(array("d", [0, 0]))

    def run(self) -> None:
        """Serve: read what came, understand a little of it, write what is due, half a millisecond at most, and so on.

        It sleeps when nothing is due soon.
        """
        poll, unread = self._epoll.poll, self._unread
        while True:
            due = min((queue[0].due for queue in (self._opening, self._running) if queue), default=None)
            wait = 1.0 if due is None else due - monotonic()
            events = poll(0 if unread or wait < _SPIN_S else wait - 0.001, 2048)
            if events:
                self._read(events)
            for _ in range(min(len(unread), _PARSED_BETWEEN_POLLS)):
                self._parse(unread.popleft())
            if due is not None:
                self._write()

    # Reading.

    def _read(self, events: list[tuple[int, int]]) -> None:
        """Read and stamp. What the bytes say waits, so that a burst's arrivals are stamped as they are."""
        listener, connections = self._listener.fileno(), self._connections
        for fd, _ in events:
            if fd == listener:
                self._accept()
                continue
            connection = connections[fd]
            try:
                data = connection.socket.recv(262144)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if data:
                connection.arrived = monotonic()
                connection.buffer += data
                self._unread.append(connection)
            else:
                self._close(connection)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_BETWEEN_POLLS):
            try:
                accepted, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ECONNABORTED):
                    return
                raise
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(accepted, monotonic(), self._accepted)
            self._accepted += 1
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, select.EPOLLIN)

    def _close(self, connection: _Connection) -> None:
        if connection.stream is not None:
            connection.stream.fd = -1
        if self._connections.pop(connection.fd, None) is None:
            return
        self._epoll.unregister(connection.fd)
        connection.socket.close()

    def _parse(self, connection: _Connection) -> None:
        """Take the request off the buffer once it is whole."""
        head, mark, rest = connection.buffer.partition(b"\r\n\r\n")
        if not mark or connection.fd not in self._connections:
            return
        length = 0
        at = head.lower().find(b"content-length:")
        if at >= 0:
            length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        connection.buffer = rest[length:]
        method, target, _ = head.split(b" ", 2)
        path = target.split(b"?", 1)[0]
        if method == b"POST" and path in (b"/v1/completions", b"/v1/chat/completions"):
            self._complete(connection, path, rest[:length])
        else:
            self._answer(connection, *self._page(connection, path))

    def _complete(self, connection: _Connection, path: bytes, body: bytes) -> None:
        request = json.loads(body)
        chat = path == b"/v1/chat/completions"
        chunks = request.get("max_completion_tokens") or request.get("max_tokens") or 16
        if not request.get("stream"):
            self._answer(connection, 400, b'{"error": {"message": "this server only streams"}}', b"application/json")
            return
        prompt = request["messages"] if chat else request["prompt"]
        usage = bool((request.get("stream_options") or {}).get("include_usage"))
        start = self._used
        self._used += chunks
        if self._used > len(self._stamps):
            self._stamps.extend(array("d", bytes(8 * max(chunks, 500_000))))
        payloads = _payloads(chat, chunks, len(prompt), usage)
        connection.stream = stream = _Stream(connection, body, payloads, start, self._used)
        self._streams.append(stream)
        self._opening.append(stream)
        self._state[0] += 1

    def _page(self, connection: _Connection, path: bytes) -> tuple[int, bytes, bytes]:
        """(status, body, content type) of everything that is no completion."""
        plain, structured = b"text/plain; version=0.0.4", b"application/json"
        if path == b"/v1/models":
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "truth", "root": MODEL, "max_model_len": 4096}
            return 200, json.dumps({"object": "list", "data": [model]}).encode(), structured
        if path == b"/health":
            return 200, b"", plain
        if path == b"/metrics":
            running = len(self._opening) + len(self._running)
            gauges = {"num_requests_running": running, "num_requests_waiting": 0, "kv_cache_usage_perc": 0}
            lines = [f'# TYPE vllm:{key} gauge\nvllm:{key}{{model_name="{MODEL}"}} {value}\n' for key, value in gauges.items()]
            return 200, "".join(lines).encode(), plain
        if path == b"/dump":
            return 200, json.dumps(self.dump()).encode(), structured
        if path == b"/reset":
            for other in [other for other in self._connections.values() if other is not connection]:
                self._close(other)
            self._forget()
            return 200, b"{}", structured
        return 404, b'{"error": {"message": "no such page"}}', structured

    @staticmethod
    def _answer(connection: _Connection, status: int, body: bytes, content_type: bytes) -> None:
        head = b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, content_type, len(body))
        connection.socket.setblocking(True)
        try:
            connection.socket.sendall(head + body)
        except OSError:
            pass  # the client is gone; the next read finds out
        finally:
            connection.socket.setblocking(False)

    # Writing.

    def _write(self) -> None:
        """Write what is due, earliest first. This loop is the server's whole cost under load."""
        opening, running, stamps, write = self._opening, self._running, self._stamps, os.write
        for _ in range(_WRITES_BETWEEN_POLLS):
            queue = opening if not running or (opening and opening[0].due < running[0].due) else running
            if not queue:
                return
            stream = queue[0]
            now = monotonic()
            if stream.due > now:
                return
            queue.popleft()
            slot = stream.slot
            data = stream.chunk
            if slot == stream.start:
                data = stream.first
            elif slot + 1 == stream.end:
                data = stream.last
            try:
                if write(stream.fd, data) != len(data):
                    raise BrokenPipeError
            except BlockingIOError:  # its client does not read: the chunk waits
                self._stalls += 1
                stream.due += 0.001
                queue.append(stream)
                continue
            except OSError:
                self._state[1] += 1
                continue
            stamps[slot] = now
            stream.slot = slot = slot + 1
            if slot == stream.end:
                self._state[1] += 1
            else:
                stream.due += PERIOD_S
                running.append(stream)

    def dump(self) -> dict[str, Any]:
        """What happened since the last reset.

        Returns:
            `first_s`, `period_s`: the schedule. `stalls`: writes that had to wait for a client that did not read.
            `requests`: one a request in order of arrival, with `prompt` (`prompt_key`), `connection` (number), `accepted` (of its
            connection), `arrived`, `chunks` asked for, and `writes`: the time just before the write of each chunk.
        """
        requests = []
        for stream in self._streams:
            request = json.loads(stream.body)
            requests.append(
                {
                    "prompt": prompt_key(request.get("prompt", request.get("messages"))),
                    "connection": stream.number,
                    "accepted": stream.accepted,
                    "arrived": stream.arrived,
                    "chunks": stream.end - stream.start,
                    "writes": self._stamps[stream.start : stream.slot].tolist(),
                }
            )
        return {"first_s": FIRST_S, "period_s": PERIOD_S, "stalls": self._stalls, "requests": requests}


def _map(path: Path) -> mmap.mmap:
    """A file in memory, through which another process sees the state at no cost to the server."""
    path.write_bytes(bytes(struct.calcsize(STATE_FORMAT)))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def main(state: str) -> None:
    """Serve, and print the port on 127.0.0.1. Args: state: file that the counters are mapped into."""
    server = TruthServer(Path(state))
    print(server.port, flush=True)
    gc.disable()
    server.run()


if __name__ == "__main__":
    main(sys.argv[1])

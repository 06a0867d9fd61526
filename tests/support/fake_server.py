"""An instrument, not a mock: an HTTP server whose timing is known, to measure the client and to make faults happen.

Runs in a thread with its own event loop. `behaviour` decides what a completion does; every connection and request is recorded.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from bench.servers.metrics import exposition_names

_PAGES = {"/v1/models": '{"data": []}'}


@dataclass
class FakeServer:
    """What the server does, and what it saw.

    Attributes:
        behaviour: `ok`, `http_error`, `truncated`, `disconnect` (after some chunks) or `silent`.
        gone: whether it closes every connection without an answer, as what stands before a dead server does.
        first_s, gap_s: time from arrival to the first chunk, and between chunks. first_of: the former by the model that is asked for.
        arrivals, peak: arrival of each request (monotonic), and the most in flight at once.
        writes: per request, the time of writing each chunk.
        exposition: makes the answer of /metrics, which is `metrics` otherwise, its token counters risen by `prompted` and `generated`.
        prompted, generated: tokens so far.
        token_offset: added to the number of tokens that it says it made.
        ends: after how many tokens each answer ends by itself, in turn; asked for with `ignore_eos`, none does. None: none ever does.
        unlimited: tokens that every answer has, whatever was asked for. usage: whether answers have counts, streams where asked for.
        chat_template, turn_template, tokens_a_letter: how it counts text: tokens of a chat's template, of what that adds for each
            further turn, and of a letter after a space. reasons: tokens of reasoning with which each streamed chat begins.
        pages: what it answers elsewhere, JSON by path; `{}` where nothing stands, and an empty list of models.
        tls: what it talks TLS with; None: it talks plainly. port: where it listens; 0: where there is room.
        prefix: the path below which it answers; elsewhere is nothing.
        refuse: status and headers with which it refuses a completion, by how many came before it; None where it does not.
        answers: status and content (text as it is, else JSON) that it answers with instead, by the request's body; None: it completes.
        statuses: status and headers that it answers with elsewhere, by path.
        keys: headers without which it answers 401, and repeats what it was given; requests: path and headers of each.
        slots: requests that it answers at once, while the others wait; None for any number.
        line: in which each waits for the first chunk of those before it; None: all begin at once.
        echoes: every so many-th completion is refused, with the request's head in the error, as some proxies do; 0: none.
        authorization: the header of that name that came last. connections: on how many a request came.
    """

    behaviour: str = "ok"
    gone: bool = False
    first_s: float = 0.02
    gap_s: float = 0.005
    first_of: dict[str, float] = field(default_factory=dict)
    token_offset: int = 0
    chat_template: int = 0
    turn_template: int = 0
    reasons: int = 0
    tokens_a_letter: float = 1
    port: int = 0
    arrivals: list[float] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    writes: list[list[float]] = field(default_factory=list)
    peak: int = 0
    in_flight: int = 0
    metrics: str = ""
    exposition: Callable[[FakeServer], str] | None = None
    prompted: int = 0
    generated: int = 0
    pages: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    prefix: str = ""
    refuse: Callable[[int], tuple[int, dict[str, str]] | None] | None = None
    answers: Callable[[dict[str, Any]], tuple[int, Any] | None] = lambda _: None
    statuses: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    echoes: int = 0
    ends: list[int] | None = None
    unlimited: int | None = None
    usage: bool = True
    slots: asyncio.Semaphore | None = None
    line: asyncio.Lock | None = None
    authorization: str = ""
    connections: int = 0

    @property
    def base_url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"


async def answer(server: FakeServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = False
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            arrival = time.monotonic()
            server.connections += not asked
            asked = True
            if server.gone:
                return
            path = head.split(b" ")[1].decode()
            length = next((int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")), 0)
            body = json.loads(await reader.readexactly(length)) if length else {}
            lines = (line.partition(": ") for line in head.decode().split("\r\n")[1:-2])
            headers = {name.lower(): value for name, _, value in lines}
            server.authorization = next(
                (x for x in head.decode().split("\r\n") if x.lower().startswith("authorization:")), server.authorization
            )
            server.requests.append((path, headers))
            refused = _refusal(server, path, headers)
            path = path.removeprefix(server.prefix)
            if refused:
                writer.write(refused)
            elif path in ("/v1/completions", "/v1/chat/completions"):
                async with server.slots or nullcontext():
                    await _complete(server, body, arrival, writer)
            else:
                told = server.exposition(server) if server.exposition else _counting(server)
                text = told if path == "/metrics" else server.pages.get(path, _PAGES.get(path, "{}"))
                writer.write(_whole(200, text))
            await writer.drain()
            if writer.is_closing():
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _counting(server: FakeServer) -> str:
    """`metrics` with what the server has counted since added to the first series of each token counter."""
    text = server.metrics
    for counter, tokens in (("server_prompt_tokens", server.prompted), ("server_generation_tokens", server.generated)):
        for name in exposition_names([counter]):
            series = rf"^({re.escape(name)}(?:\{{[^\n]*\}})? )(\S+)"
            text = re.sub(series, lambda found, n=tokens: f"{found[1]}{float(found[2]) + n}", text, count=1, flags=re.MULTILINE)
    return text


def _refusal(server: FakeServer, path: str, headers: dict[str, str]) -> bytes | None:
    """The answer to a request that has no business here."""
    if not path.startswith(server.prefix):
        return _empty(404, {})
    if path.removeprefix(server.prefix) in server.statuses:
        return _empty(*server.statuses[path.removeprefix(server.prefix)])
    if any(headers.get(name) != value for name, value in server.keys.items()):
        return _whole(401, json.dumps({"error": {"message": f"wrong key: {headers}"}}))
    return None


def _whole(status: int, text: str) -> bytes:
    """An answer that is not streamed."""
    return b"HTTP/1.1 %d Told\r\ncontent-length: %d\r\n\r\n%b" % (status, len(text.encode()), text.encode())


def _empty(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} No\r\n{lines}content-length: 0\r\n\r\n".encode()


def _prompt_tokens(server: FakeServer, body: dict[str, Any]) -> int:
    if isinstance(body.get("prompt"), list):
        return len(body["prompt"])
    messages = body.get("messages", [])
    text = body.get("prompt") or "".join(message.get("content") or "" for message in messages)
    template = server.chat_template + len(messages) // 2 * server.turn_template if messages else 0
    return template + int(text.count(" ") * server.tokens_a_letter) + text.count(".")


async def _complete(  # noqa: PLR0912, PLR0915
    server: FakeServer, body: dict[str, Any], arrival: float, writer: asyncio.StreamWriter
) -> None:
    server.arrivals.append(arrival)
    server.bodies.append(body)
    given = server.answers(body)
    limit, finish = server.unlimited or body.get("max_tokens") or body.get("max_completion_tokens") or 16, "length"
    if server.ends and not body.get("ignore_eos") and (end := server.ends[(len(server.bodies) - 1) % len(server.ends)]) < limit:
        limit, finish = end, "stop"
    server.in_flight += 1
    server.peak = max(server.peak, server.in_flight)
    try:
        if server.refuse and (refused := server.refuse(len(server.arrivals) - 1)):
            writer.write(_empty(*refused))
            return
        if given:
            writer.write(_whole(given[0], given[1] if isinstance(given[1], str) else json.dumps(given[1])))
            return
        if server.echoes and len(server.arrivals) % server.echoes == 0:
            text = json.dumps(
                {"error": {"message": f"upstream refused: {'x' * 180} {server.authorization} <script>alert(1)</script>"}}
            )
            streamed = not len(server.arrivals) % (2 * server.echoes)
            writer.write(STREAM_HEAD + chunk(text.encode()[2:]) + b"0\r\n\r\n" if streamed else _whole(401, text))
            return
        if server.behaviour == "http_error":
            writer.write(_whole(404, json.dumps({"error": {"message": "no such model", "code": 404}})))
            return
        usage = {"prompt_tokens": _prompt_tokens(server, body), "completion_tokens": limit + server.token_offset}
        counts = {"usage": usage} if server.usage else {}
        if not body["stream"]:
            await asyncio.sleep(server.first_s + server.gap_s * limit)
            server.prompted += _prompt_tokens(server, body)
            server.generated += limit + server.token_offset
            said = "all of it"
            choice = {"message": {"role": "assistant", "content": said}} if "messages" in body else {"text": said}
            writer.write(_whole(200, json.dumps({"choices": [choice], **counts})))
            return
        writer.write(STREAM_HEAD)
        writes: list[float] = []
        server.writes.append(writes)
        if server.behaviour == "silent":
            await asyncio.sleep(30)
        async with server.line or nullcontext():
            await asyncio.sleep(server.first_of.get(str(body.get("model")), server.first_s))
        server.prompted += _prompt_tokens(server, body)
        for i in range(limit):
            if i:
                await asyncio.sleep(server.gap_s)
            if i == 2 and server.behaviour == "disconnect":
                writer.transport.abort()
                return
            if i == 2 and server.behaviour == "truncated":
                break
            writes.append(time.monotonic())
            server.generated += 1
            key = "reasoning_content" if i < server.reasons else "content"
            text = {"delta": {key: f" t{i}"}} if "messages" in body else {"text": f" t{i}"}
            last = {"finish_reason": finish} if server.ends and i == limit - 1 else {}
            writer.write(chunk({"choices": [{"index": 0, **text, **last}]}))
        if server.behaviour == "ok":
            server.generated += server.token_offset
            if body.get("stream_options", {}).get("include_usage"):
                writer.write(chunk({"choices": [], **counts}))
            writer.write(chunk(b"[DONE]"))
        writer.write(b"0\r\n\r\n")
    finally:
        server.in_flight -= 1


@contextmanager
def fake_server(**options: Any) -> Iterator[FakeServer]:
    """A running FakeServer."""
    server = FakeServer(**options)
    loop = asyncio.new_event_loop()
    up = threading.Event()
    over = asyncio.Event()

    async def serve() -> None:
        listening = await asyncio.start_server(
            lambda r, w: answer(server, r, w), "127.0.0.1", server.port, backlog=2048, ssl=server.tls
        )
        server.port = listening.sockets[0].getsockname()[1]
        up.set()
        await over.wait()
        listening.close()
        if server.tls:
            await asyncio.sleep(0.1)  # a client that refuses the certificate may just be saying so
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert up.wait(5)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(5)
        loop.close()


# For faults below HTTP: what a server sends, byte by byte.
TOKEN = {"choices": [{"index": 0, "text": "t"}]}
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: Any) -> bytes:
    """An event in a chunk of its own."""
    raw = b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"
    return b"%x\r\n" % len(raw) + raw + b"\r\n"


STREAM = STREAM_HEAD + chunk(TOKEN) + chunk(TOKEN) + chunk(b"[DONE]") + b"0\r\n\r\n"


def read_head(connection: socket.socket) -> tuple[int, int]:
    """Read a request's head; how long its body is, and how much of that came along. (0, 0) where the peer has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1024)
        if not piece:
            return 0, 0
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]), len(body)


def read_request(connection: socket.socket) -> bool:
    """Read a whole request; whether there was one."""
    length, read = read_head(connection)
    while read < length:
        read += len(connection.recv(1 << 20))
    return length > 0


def left_open(connection: socket.socket, answer: bytes) -> None:
    """Send `answer` to a request with a body, and wait until the client closes."""
    with suppress(IndexError):  # a GET
        if read_request(connection):
            connection.sendall(answer)
            connection.recv(1)


@contextmanager
def raw_server(handle: Callable[[socket.socket], object]) -> Iterator[int]:
    """The port of a server that gives each connection to `handle`, in a thread of its own, and closes it afterwards."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            handle(connection)

    def accept(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, args=(listening,), daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(5)

"""An instrument: a server that refuses what it is asked to refuse, in the words of a real one, and else answers as asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Refusal = tuple[int, Any]  # status, and the body: text as it is, anything else as JSON


@dataclass
class StrictServer:
    """What the server does, and what it saw.

    Attributes:
        refuse: the refusal of a body; None where it is accepted. template: tokens that a chat's template adds. each: tokens a letter.
        usage: whether answers have counts: in a stream only where asked for. ends_early: tokens after which every answer ends by
            itself unless `ignore_eos` came. unlimited: tokens that every answer has, whatever was asked for.
        models: what /v1/models answers. metrics: what /metrics answers. cuts: whether a stream breaks off after its first event.
        bodies: of requests, in their order. connections: that were opened.
    """

    refuse: Callable[[dict[str, Any]], Refusal | None] = lambda _: None
    template: int = 0
    each: float = 1
    usage: bool = True
    ends_early: int | None = None
    unlimited: int | None = None
    models: Any = field(default_factory=lambda: {"data": [{"id": "m"}]})
    metrics: str = ""
    cuts: bool = False
    base_url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)


@contextmanager
def strict_server(**options: Any) -> Iterator[StrictServer]:
    """Run one."""
    server = StrictServer(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """No lines."""

        def whole(self, status: int, body: Any) -> None:
            text = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            self.whole(200, {"/v1/models": server.models, "/metrics": server.metrics}.get(self.path, ""))

        def do_POST(self) -> None:
            server.connections.add(self.client_address)
            server.paths.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith("completions"):
                self.whole(404, {"detail": "Not Found"})
                return
            server.bodies.append(body)
            if refusal := server.refuse(body):
                self.whole(*refusal)
                return
            chat = "messages" in body
            prompt = body["messages"][0]["content"] if chat else body["prompt"]
            count = (
                len(prompt)
                if isinstance(prompt, list)
                else int(server.template + server.each * prompt.count(" ")) + prompt.count(".")
            )
            limit = server.unlimited or body.get("max_tokens") or body.get("max_completion_tokens") or 16
            given = limit if body.get("ignore_eos") or server.ends_early is None else min(limit, server.ends_early)
            counts = {"prompt_tokens": count, "completion_tokens": given, "total_tokens": count + given}
            finish = "length" if given == limit else "stop"
            shown = {"usage": counts} if server.usage else {}
            key = "message" if not body.get("stream") else "delta"
            if not body.get("stream"):
                text = " w" * given
                choice = {key: {"role": "assistant", "content": text}} if chat else {"text": text}
                self.whole(200, {"id": "1", "object": "o", "created": 1, "model": "m",
                                 "choices": [{"index": 0, "finish_reason": finish, **choice}], **shown})  # fmt: skip
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            events: list[Any] = [
                {"choices": [{"index": 0, "finish_reason": finish if i == given - 1 else None, **({key: {"content": " w"}} if chat else {"text": " w"})}]}
                for i in range(given)
            ]  # fmt: skip
            if body.get("stream_options", {}).get("include_usage"):
                events.append({"choices": [], **shown})
            for event in [*events, "[DONE]"]:
                line = (
                    event
                    if isinstance(event, str)
                    else json.dumps({"id": "1", "object": "o", "created": 1, "model": "m", **event})
                )
                data = f"data: {line}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                if server.cuts:
                    self.close_connection = True
                    return
            self.wfile.write(b"0\r\n\r\n")

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    server.base_url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def refusing(
    *fields: str, status: int = 400, words: str = "Unsupported parameter: {}"
) -> Callable[[dict[str, Any]], Refusal | None]:
    """Refuses bodies that have one of these; `token_ids`: a prompt that is a list. Args: words: of the refusal."""

    def refuse(body: dict[str, Any]) -> Refusal | None:
        for name in fields:
            if isinstance(body.get("prompt"), list) if name == "token_ids" else name in body:
                return status, {"error": {"message": re.sub(r"\{\}", name, words)}}
        return None

    return refuse

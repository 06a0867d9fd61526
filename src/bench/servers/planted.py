"""A server whose capacity is planted: it plays vLLM without a model, for `bench demo` and for tests.

    python -m bench.servers.planted --port 0

It prints the port where it listens. Other flags are taken and mean nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest

_VERSION = "0.32.0"  # of vLLM, whose metrics it has; convention
_HEAD = b"HTTP/1.1 200 OK\r\n"
_PAGES = {"/version": json.dumps({"version": _VERSION}).encode(), "/v1/models": b'{"data": []}'}


@dataclass
class Planted:
    """A number of slots, each of which answers one request at a time, at one speed; the others wait in line.

    Attributes:
        slots: requests that are answered at once. first_s: from a slot to the first token (s). step_s: between two tokens (s).
    """

    slots: int = 8
    first_s: float = 0.04
    step_s: float = 0.004

    def answer_s(self, tokens: int) -> float:
        """How long an answer of so many tokens takes (s)."""
        return self.first_s + (tokens - 1) * self.step_s

    def highest_rate(self, tokens: int) -> float:
        """The most answers of so many tokens that it gives (requests/s)."""
        return self.slots / self.answer_s(tokens)

    async def serve(self, port: int = 0) -> None:
        """Listen until the task ends; prints the port."""
        metrics, free = _Metrics(), asyncio.Semaphore(self.slots)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while head := await reader.readuntil(b"\r\n\r\n"):
                    lines = head.lower().split(b"\r\n")
                    length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
                    body = json.loads(await reader.readexactly(length)) if length else {}
                    path = head.split(b" ")[1].decode()
                    if path == "/v1/completions":
                        await self._complete(body, free, metrics, writer)
                    else:
                        page = generate_latest(metrics.registry) if path == "/metrics" else _PAGES.get(path, b"{}")
                        writer.write(_HEAD + b"content-length: %d\r\n\r\n" % len(page) + page)
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        listening = await asyncio.start_server(connected, "127.0.0.1", port, backlog=1024)
        print(listening.sockets[0].getsockname()[1], flush=True)
        await listening.serve_forever()

    async def _complete(
        self, body: dict[str, Any], free: asyncio.Semaphore, metrics: _Metrics, writer: asyncio.StreamWriter
    ) -> None:
        arrival = time.monotonic()
        with metrics.waiting.track_inprogress():
            await free.acquire()
        metrics.usage.inc(1 / self.slots)
        try:
            with metrics.running.track_inprogress():
                await self._answer(body, arrival, metrics, writer)
        finally:
            metrics.usage.dec(1 / self.slots)
            free.release()

    async def _answer(self, body: dict[str, Any], arrival: float, metrics: _Metrics, writer: asyncio.StreamWriter) -> None:
        """A stream, whatever was asked for."""
        begin, tokens = time.monotonic(), int(body["max_tokens"])
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": tokens}
        metrics.prompted.inc(usage["prompt_tokens"])
        writer.write(_HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(tokens):
            await asyncio.sleep(begin + self.first_s + number * self.step_s - time.monotonic())
            metrics.generated.inc()
            if number:
                metrics.itl.observe(self.step_s)
            _event(writer, json.dumps({"choices": [{"index": 0, "text": " t"}]}))
        _event(writer, json.dumps({"choices": [], "usage": usage}))
        _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        queued, ended = begin - arrival, time.monotonic()
        metrics.ttft.observe(queued + self.first_s)
        metrics.queue.observe(queued)
        metrics.prefill.observe(self.first_s)
        metrics.decode.observe(ended - begin - self.first_s)
        metrics.e2e.observe(ended - arrival)


class _Metrics:
    """vLLM's, as far as they are read; of times the sum and the count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"documentation": "", "registry": self.registry}
        self.running, self.waiting = (Gauge(f"vllm:num_requests_{name}", **own) for name in ("running", "waiting"))
        self.usage = Gauge("vllm:kv_cache_usage_perc", **own)
        self.prompted, self.generated = (Counter(f"vllm:{name}_tokens", **own) for name in ("prompt", "generation"))
        for name in ("num_preemptions", "prefix_cache_queries", "prefix_cache_hits"):
            Counter(f"vllm:{name}", **own)
        self.ttft = Summary("vllm:time_to_first_token_seconds", **own)
        self.itl = Summary("vllm:inter_token_latency_seconds", **own)
        self.queue, self.prefill, self.decode = (
            Summary(f"vllm:request_{name}_time_seconds", **own) for name in ("queue", "prefill", "decode")
        )
        self.e2e = Summary("vllm:e2e_request_latency_seconds", **own)


def _event(writer: asyncio.StreamWriter, data: str) -> None:
    raw = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n" % len(raw) + raw + b"\r\n")


if __name__ == "__main__":
    asyncio.run(Planted().serve(int(sys.argv[sys.argv.index("--port") + 1])))

"""A server whose capacity is planted: it plays vLLM without a model, for `bench demo` and for tests.

    python -m bench.servers.planted --port 0

It prints the port where it listens. Other flags are taken and mean nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

_VERSION = "0.32.0"  # of vLLM, whose metrics it has; convention
_HEAD = b"HTTP/1.1 200 OK\r\n"
_COUNTERS = ("num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total")
_TIMES = {
    "time_to_first_token_seconds": "ttft",
    "inter_token_latency_seconds": "itl",
    "request_queue_time_seconds": "queue",
    "request_prefill_time_seconds": "prefill",
    "request_decode_time_seconds": "decode",
    "e2e_request_latency_seconds": "e2e",
}


@dataclass
class Planted:
    """A number of slots, each of which answers one request at a time, at one speed; the others wait in line.

    Attributes:
        slots: requests that are answered at once. first_s: from a slot to the first token (s). step_s: between two tokens (s).
    """

    slots: int = 8
    first_s: float = 0.04
    step_s: float = 0.004
    running: int = 0
    waiting: int = 0
    prompted: int = 0
    generated: int = 0
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def answer_s(self, tokens: int) -> float:
        """How long an answer of so many tokens takes (s)."""
        return self.first_s + (tokens - 1) * self.step_s

    def highest_rate(self, tokens: int) -> float:
        """The most answers of so many tokens that it gives (requests/s)."""
        return self.slots / self.answer_s(tokens)

    async def serve(self, port: int = 0) -> None:
        """Listen until the task ends; prints the port."""
        free = asyncio.Semaphore(self.slots)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while head := await reader.readuntil(b"\r\n\r\n"):
                    lines = head.lower().split(b"\r\n")
                    length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
                    body = json.loads(await reader.readexactly(length)) if length else {}
                    path = head.split(b" ")[1].decode()
                    if path == "/v1/completions":
                        await self._complete(body, free, writer)
                    else:
                        text = self._page(path).encode()
                        writer.write(_HEAD + b"content-length: %d\r\n\r\n" % len(text) + text)
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        listening = await asyncio.start_server(connected, "127.0.0.1", port, backlog=1024)
        print(listening.sockets[0].getsockname()[1], flush=True)
        await listening.serve_forever()

    async def _complete(self, body: dict[str, Any], free: asyncio.Semaphore, writer: asyncio.StreamWriter) -> None:
        prompt, tokens, arrival = len(body["prompt"]), int(body["max_tokens"]), time.monotonic()
        self.waiting += 1
        async with free:
            self.waiting -= 1
            self.running += 1
            try:
                await self._answer(body, prompt, tokens, arrival, writer)
            finally:
                self.running -= 1

    async def _answer(
        self, body: dict[str, Any], prompt: int, tokens: int, arrival: float, writer: asyncio.StreamWriter
    ) -> None:
        begin = time.monotonic()

        async def token(number: int) -> None:
            await asyncio.sleep(begin + self.first_s + number * self.step_s - time.monotonic())
            self.generated += 1
            self._observe("itl", self.step_s, number > 0)

        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        if body.get("stream"):
            writer.write(_HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        self.prompted += prompt
        for number in range(tokens):
            await token(number)
            if body.get("stream"):
                _event(writer, json.dumps({"choices": [{"index": 0, "text": " t"}]}))
        if body.get("stream"):
            _event(writer, json.dumps({"choices": [], "usage": usage}))
            _event(writer, "[DONE]")
            writer.write(b"0\r\n\r\n")
        else:
            text = json.dumps({"choices": [{"index": 0, "text": " t" * tokens}], "usage": usage}).encode()
            writer.write(_HEAD + b"content-length: %d\r\n\r\n" % len(text) + text)
        queued, ended = begin - arrival, time.monotonic()
        for name, seconds in (
            ("ttft", queued + self.first_s),
            ("queue", queued),
            ("prefill", self.first_s),
            ("decode", ended - begin - self.first_s),
            ("e2e", ended - arrival),
        ):
            self._observe(name, seconds)

    def _observe(self, name: str, seconds: float, counts: bool = True) -> None:
        total, count = self.sums.get(name, (0.0, 0))
        self.sums[name] = (total + seconds, count + 1) if counts else (total, count)

    def _page(self, path: str) -> str:
        if path == "/metrics":
            return self._metrics()
        return {"/version": json.dumps({"version": _VERSION}), "/v1/models": '{"data": []}'}.get(path, "{}")

    def _metrics(self) -> str:
        gauges = {
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "kv_cache_usage_perc": self.running / self.slots,
        }
        counters = dict.fromkeys(_COUNTERS, 0) | {
            "prompt_tokens_total": self.prompted,
            "generation_tokens_total": self.generated,
        }
        lines = [f"# TYPE vllm:{name} gauge\nvllm:{name} {value}" for name, value in gauges.items()]
        lines += [f"# TYPE vllm:{name} counter\nvllm:{name} {value}" for name, value in counters.items()]
        for name, key in _TIMES.items():
            total, count = self.sums.get(key, (0.0, 0))
            lines.append(f"# TYPE vllm:{name} histogram\nvllm:{name}_sum {total}\nvllm:{name}_count {count}")
            lines.append(f'vllm:{name}_bucket{{le="+Inf"}} {count}')
        return "\n".join(lines) + "\n"


def _event(writer: asyncio.StreamWriter, data: str) -> None:
    raw = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n" % len(raw) + raw + b"\r\n")


if __name__ == "__main__":
    asyncio.run(Planted().serve(int(sys.argv[sys.argv.index("--port") + 1])))

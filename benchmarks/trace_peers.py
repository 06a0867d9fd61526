"""What a tool sends of a Mooncake trace, as the server sees it: requests, prompt tokens, prefix-cache hits, and when.

The tool is run against a proxy that stamps each request's arrival and passes its bytes on; tokens and hits are by vLLM's own counters.
Restart the server between tools: what its cache holds of one would be another's hits. It prints a line, beside what the file says.
The nth request to arrive is set against the nth due, as each tool's prompts are its own: overtaking understates how late requests are.

    .venv/bin/python -m benchmarks.trace_peers trace.jsonl http://127.0.0.1:8000 -- aiperf profile --url {url} ...
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from bench.http import get
from bench.workloads.schedule import expected_cached_tokens, schedule
from bench.workloads.workload import Workload

_GENERATES = (b"POST /v1/completions", b"POST /v1/chat/completions")


async def relayed(port: int, server: str, stamps: list[float]) -> asyncio.Server:
    """A proxy on `port` that stamps each request for an answer."""
    target = urlsplit(server)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, stamped: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(2**16):
                # A request begins a read of its own: none of these clients sends one before the answer to the last.
                if stamped and data.startswith(_GENERATES):
                    stamps.append(time.monotonic())
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(pass_on(reader, behind[1], stamped=True), pass_on(behind[0], writer, stamped=False))

    return await asyncio.start_server(connected, "127.0.0.1", port, backlog=1024)


def counters(server: str) -> np.ndarray:
    """vLLM's prompt tokens, and those of them that its prefix cache served, so far."""
    names = ("vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total")
    lines = [line for line in get(f"{server}/metrics", timeout_s=30).text.splitlines() if line.startswith(names)]
    return np.array([sum(float(line.split()[-1]) for line in lines if line.startswith(name)) for name in names])


async def run(given: argparse.Namespace) -> tuple[list[float], np.ndarray]:
    """When each request arrived (s), and what the counters rose by."""
    stamps: list[float] = []
    before = counters(given.server)
    async with await relayed(given.port, given.server, stamps):
        words = [word.replace("{url}", f"http://127.0.0.1:{given.port}") for word in given.tool]
        tool = await asyncio.create_subprocess_exec(*words, stdout=subprocess.DEVNULL)
        if await tool.wait():
            raise SystemExit(f"{words[0]} failed")
    return stamps, counters(given.server) - before


def main() -> None:
    """Run one tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("server")
    parser.add_argument("--port", type=int, default=9499)
    parser.add_argument("--cache-block", type=int, default=16, help="tokens of a block of the server's KV cache")
    parser.add_argument("tool", nargs="+", help="the command, with {url}")
    given = parser.parse_args()
    planned = schedule(Workload.model_validate({"arrival": "trace", "trace": str(given.trace)}), 1.0, "peers")
    tokens = sum(request.prompt_tokens for request in planned)
    allowed = expected_cached_tokens(planned, given.cache_block)
    stamps, (counted, hits) = asyncio.run(run(given))
    sent, due = np.array(stamps[-len(planned) :]), np.array([request.due_s for request in planned])
    late = "not known"
    if len(sent) == len(due):
        late = "P50 {:.0f} ms, P99 {:.0f} ms".format(*np.percentile((sent - due) - (sent - due).min(), (50, 99)) * 1e3)
    print(f"requests {len(stamps)} of {len(planned)}; prompt tokens {counted:,.0f} of {tokens:,} ({counted / tokens - 1:+.2%})")
    print(
        f"hits {hits / counted:.1%} of the prompts, the file allows {allowed / tokens:.1%}; late, against the most punctual: {late}"
    )


if __name__ == "__main__":
    main()

"""Send one run's load and keep every stamp."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import httpx2
import openai
import uvloop

from bench.errors import BenchError
from bench.workload.prompts import prompt_ids
from bench.workload.transport import Exchange, StampedTransport, current_exchange, now

__all__ = ["Arrival", "Load", "LoadResult", "Target", "run_load"]


Arrival = Literal["burst", "closed"]


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server: `base_url` without `/v1`, and the name under which it serves the model."""

    base_url: str
    model: str
    api_key: str = "none"


@dataclass(frozen=True)
class Load:
    """What is sent: `num_requests` requests of exact lengths, all at once or `concurrency` at a time.

    `seed` makes the prompts; `vocabulary` bounds their ids.
    """

    arrival: Arrival
    concurrency: int
    num_requests: int
    prompt_tokens: int
    output_tokens: int
    seed: str
    vocabulary: int = 1000
    timeout_s: float = 600.0


@dataclass(frozen=True)
class LoadResult:
    """What happened. Times are seconds on CLOCK_MONOTONIC.

    Attributes:
        exchanges: one a request, in the order of their index.
        start, end: the first request's schedule, and the last exchange's end.
        loop_lag_s: delays of the client's event loop, one sample every 10 ms.
        cpu_s: CPU time of the client's process between start and end.
    """

    exchanges: list[Exchange]
    start: float
    end: float
    loop_lag_s: list[float]
    cpu_s: float


def run_load(target: Target, load: Load) -> LoadResult:
    """Send `load` to `target` and return when every exchange has ended.

    Raises:
        BenchError: the server does not accept connections.
    """
    return uvloop.run(_run(target, load))


async def _run(target: Target, load: Load) -> LoadResult:
    exchanges = [Exchange(i) for i in range(load.num_requests)]
    waiting: deque[Exchange] = deque(exchanges)
    left = load.num_requests
    finished = asyncio.Event()
    reconnecting: set[asyncio.Task[None]] = set()

    def send_next() -> None:
        exchange = waiting.popleft()
        exchange.scheduled = now() if exchange.scheduled is None else exchange.scheduled
        if not transport.send(exchange):
            reconnecting.add(task := asyncio.create_task(send_on_a_new_connection(exchange)))
            task.add_done_callback(reconnecting.discard)

    async def send_on_a_new_connection(exchange: Exchange) -> None:
        """The server closed the one that this request was to take; `sent` is stamped when the new one is open."""
        with suppress(OSError):
            await transport.open(1)
        if not transport.send(exchange):
            exchange.failure, exchange.end = "disconnect", now()
            on_end(exchange)

    def on_end(_: Exchange) -> None:
        nonlocal left
        left -= 1
        if load.arrival == "closed" and waiting:
            send_next()
        if left == 0:
            finished.set()

    transport = StampedTransport(target.base_url, timeout_s=load.timeout_s, done=on_end)
    async with httpx2.AsyncClient(transport=transport) as http:
        sdk = openai.AsyncOpenAI(
            base_url=f"{target.base_url.rstrip('/')}/v1", api_key=target.api_key, http_client=http, max_retries=0
        )
        tasks = [asyncio.create_task(_build(sdk, target, load, exchange)) for exchange in exchanges]
        await _all_built(exchanges, tasks)
        in_flight = min(load.concurrency, load.num_requests)
        try:
            await transport.open(in_flight)
        except OSError as error:
            for task in tasks:
                task.cancel()
            raise BenchError(
                f"{target.base_url} does not accept {in_flight} connections: {error}. "
                "Check the address, that the server runs, and `ulimit -n`."
            ) from error
        lags: list[float] = []
        with _quiet_memory():
            sampler = asyncio.create_task(_sample_lag(lags))
            await asyncio.sleep(0.02)
            cpu, start = _cpu_s(), now()
            for exchange in exchanges[:in_flight]:
                exchange.scheduled = start
            for _ in range(in_flight):
                send_next()
            await finished.wait()
            end, cpu = now(), _cpu_s() - cpu
            sampler.cancel()
        for exchange in exchanges:
            exchange.released.set()
        await asyncio.gather(*tasks, return_exceptions=True)
    return LoadResult(exchanges, start, end, lags, cpu)


async def _all_built(exchanges: list[Exchange], tasks: list[asyncio.Task[None]]) -> None:
    """Wait until every request is built.

    Raises:
        BenchError: the SDK refused one; the others would wait for it for ever.
    """

    async def every_one() -> None:
        for exchange in exchanges:
            await exchange.built.wait()

    built = asyncio.create_task(every_one())
    # A task ends before it is released only where it failed.
    await asyncio.wait([built, *tasks], return_when=asyncio.FIRST_COMPLETED)
    if not built.done():
        built.cancel()
        errors = [task.exception() for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        raise BenchError(f"the openai SDK would not build a request: {errors[0]!r}. Check the model's name and OPENAI_API_KEY.")


async def _build(sdk: openai.AsyncOpenAI, target: Target, load: Load, exchange: Exchange) -> None:
    current_exchange.set(exchange)
    await sdk.completions.with_raw_response.create(
        model=target.model,
        prompt=prompt_ids(load.seed, exchange.index, load.prompt_tokens, load.vocabulary),
        max_tokens=load.output_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )


async def _sample_lag(lags: list[float], period_s: float = 0.01) -> None:
    while True:
        due = now() + period_s
        await asyncio.sleep(period_s)
        lags.append(max(0.0, now() - due))


@contextmanager
def _quiet_memory() -> Iterator[None]:
    """No garbage collection while the clock runs: a full collection stops the loop for tens of milliseconds."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

"""A replay of requests on a server whose steps take a known time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from bench.predict.limits import Limits
from bench.predict.server import ReplayedServer, Request, Seen
from bench.predict.step_time import StepTime
from bench.workloads.pacer import Pacer
from bench.workloads.schedule import PlannedRequest

REPLAY_SCHEMA = {
    "index": pl.Int64,
    "prompt_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "sent_s": pl.Float64,
    "admitted_s": pl.Float64,
    "first_token_s": pl.Float64,
    "end_s": pl.Float64,
    "preemptions": pl.Int64,
    "request_class": pl.String,
}


@dataclass(frozen=True)
class Replay:
    """What a server did.

    Attributes:
        requests: one row a request that was answered, `REPLAY_SCHEMA`. seen: by the server. kv_peak: highest
            share of the blocks in use. waiting_mean: requests that wait, over time.
    """

    requests: pl.DataFrame
    seen: Seen
    kv_peak: float | None
    waiting_mean: float


def replay(
    requests: Sequence[PlannedRequest],
    limits: Limits,
    step: StepTime,
    *,
    held: int | None = None,
    overhead_s: float = 0.0,
    turnaround_s: float = 0.0,
    wake_s: float = 0.0,
    noise: float = 0.0,
    seed: int = 1,
) -> Replay:
    """Replay planned requests on a server.

    Args:
        held: requests (conversations) that a closed loop keeps in flight; None where they come when they are due. overhead_s: from the
            client to the queue. turnaround_s: of the client, between an answer and the next request of a closed loop. wake_s: what a
            step takes longer that finds the server idle. noise: standard deviation of ln time of one step.
    """
    server = ReplayedServer(limits, step, wake_s=wake_s, noise=noise, seed=seed)
    server.prime(max((plan.shared_tokens for plan in requests), default=0))  # as before each measured run
    if held is not None:  # each end lets the next one go, whenever that was due
        requests = [plan if plan.due_s is None else replace(plan, due_s=None) for plan in requests]
    coming = Pacer(requests, held, turnaround_s=turnaround_s)
    answered: list[Request] = []
    while True:
        while coming.at + overhead_s <= server.now:
            sent, plan = coming.pop()
            if not server.offer(plan, sent, sent + overhead_s):
                coming.finished(plan, sent)
        if server.busy:
            server.begin(coming.at + overhead_s)
            ended = server.finish()
            answered += ended
            for request in ended:
                coming.finished(request.plan, request.end)
        elif math.isfinite(coming.at):
            server.wait_until(coming.at + overhead_s)
        else:
            break
    blocks, seen = (limits.blocks or 1) - 1, server.seen
    return Replay(
        answered_table(answered),
        seen,
        1 - seen.free / blocks if blocks else None,
        seen.waited_s / server.now if server.now else 0.0,
    )


def answered_table(answered: Sequence[Request]) -> pl.DataFrame:
    """One row for each of the requests that were answered: `REPLAY_SCHEMA`."""
    rows = [
        (
            plan.index,
            plan.prompt_tokens,
            plan.output_tokens,
            r.sent,
            r.admitted,
            r.first,
            r.end,
            r.preemptions,
            plan.request_class,
        )
        for r in answered
        for plan in (r.plan,)
    ]
    return pl.DataFrame(rows, schema=REPLAY_SCHEMA, orient="row")


def latency(requests: pl.DataFrame, metric: str) -> pl.Series:
    """TTFT, E2E or TPOT of each request (s); null where an answer of one token has no TPOT. Args: requests: of `REPLAY_SCHEMA`."""
    ttft, e2e = pl.col("first_token_s") - pl.col("sent_s"), pl.col("end_s") - pl.col("sent_s")
    after = pl.when(pl.col("output_tokens") > 1).then((e2e - ttft) / (pl.col("output_tokens") - 1))
    return requests.select({"ttft": ttft, "e2e": e2e, "tpot": after}[metric]).to_series()

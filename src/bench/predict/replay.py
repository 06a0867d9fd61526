"""A replay of requests on a server whose steps take a known time."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from bench.predict.limits import Limits
from bench.predict.server import ReplayedServer, Request, Seen
from bench.predict.step_time import StepTime
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
    coming = Coming(requests, held, turnaround_s)
    answered: list[Request] = []
    while True:
        while coming.at + overhead_s <= server.now:
            plan, sent = coming.pop()
            if not server.offer(plan, sent, sent + overhead_s):
                coming.follow(plan, sent)
        if server.busy:
            server.begin(coming.at + overhead_s)
            ended = server.finish()
            answered += ended
            for request in ended:
                coming.follow(request.plan, request.end)
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


class Coming:
    """The requests that are not sent yet."""

    def __init__(self, requests: Sequence[PlannedRequest], held: int | None = None, turnaround_s: float = 0.0) -> None:
        self._turnaround_s = turnaround_s
        self._followers: dict[int, list[PlannedRequest]] = defaultdict(list)
        for request in requests:
            for before in request.after:
                self._followers[before].append(request)
        self._awaited = {request.index: len(request.after) for request in requests if request.after}
        self._ended = dict.fromkeys(self._awaited, 0.0)  # when the last one before it ended, of those that have
        roots = [request for request in requests if not request.after]
        first = roots if held is None else roots[:held]
        self._heap = [(0.0 if held is not None else request.due_s or 0.0, request.index, request) for request in first]
        heapq.heapify(self._heap)
        self._next = deque(() if held is None else roots[held:])

    @property
    def at(self) -> float:
        """When the next one is sent; infinite where that is not known or there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> tuple[PlannedRequest, float]:
        """The next one, and when it is sent."""
        at, _, plan = heapq.heappop(self._heap)
        return plan, at

    def follow(self, plan: PlannedRequest, at: float) -> None:
        """Enter the requests that an answer releases."""
        followers = self._followers.get(plan.index, ())
        for follower in followers:
            index = follower.index
            self._awaited[index] -= 1
            self._ended[index] = max(self._ended[index], at)
            if not self._awaited[index]:
                heapq.heappush(self._heap, (self._ended[index] + follower.think_s, index, follower))
        if not followers and self._next:
            heapq.heappush(self._heap, (at + self._turnaround_s, self._next[0].index, self._next.popleft()))

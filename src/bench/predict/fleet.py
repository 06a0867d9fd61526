"""Replays of requests on a server whose steps take a known time, and on many behind a router."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

import numpy as np
import polars as pl

from bench.predict.limits import Limits
from bench.predict.server import ReplayedServer, Seen
from bench.predict.step_time import StepTime
from bench.workloads.pacer import Pacer
from bench.workloads.schedule import PlannedRequest

REPLAY_SCHEMA = {
    "index": pl.Int64,
    "output_tokens": pl.Int64,
    "sent_s": pl.Float64,
    "admitted_s": pl.Float64,
    "first_token_s": pl.Float64,
    "end_s": pl.Float64,
    "preemptions": pl.Int64,
    "request_class": pl.String,
    "instance": pl.Int64,
}
#: Which instance a request goes to: one after the other; any; the one with the fewest requests; of two that are drawn, the one with
#: fewer; that of the conversation's first turn, which goes to the one with the fewest.
Router = Literal["round-robin", "random", "least-requests", "power-of-two", "session"]
_NEVER = math.inf


@dataclass(frozen=True)
class Scaling:
    """How instances are added and taken away.

    Attributes:
        sustained_rps: requests/s (conversations/s) of one. start_up_s: until a further one is ready. low, high: shares of what all
            sustain, below and above which their number changes, to the middle of both. every_s: between two decisions.
    """

    sustained_rps: float
    start_up_s: float = 0.0
    low: float = 0.6
    high: float = 0.8
    every_s: float = 60.0

    def wanted(self, rate: float, instances: int) -> int:
        """Instances for an arrival rate, where there are `instances`."""
        if self.low <= rate / (self.sustained_rps * max(1, instances)) <= self.high:
            return instances
        return max(1, math.ceil(rate / self.sustained_rps / ((self.low + self.high) / 2) - 1e-9))


@dataclass(frozen=True)
class FleetReplay:
    """What a fleet did.

    Attributes:
        requests: one row a request that was answered, `REPLAY_SCHEMA`. paid_s: instance-seconds, from the decision to start one until
            it has stopped. history: (s, instances that are ready), at each change. seen: by all.
    """

    requests: pl.DataFrame
    paid_s: float
    history: tuple[tuple[float, int], ...]
    seen: Seen


@dataclass(eq=False)
class _Instance:
    """One of the fleet. Attributes: due: when its steps end (s). paid_from, stopped: of what is paid (s)."""

    number: int
    server: ReplayedServer
    paid_from: float
    stopped: float = _NEVER
    due: float = _NEVER


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
) -> FleetReplay:
    """Replay planned requests on one server.

    Args:
        held: requests (conversations) that a closed loop keeps in flight; None where they come when they are due. overhead_s: from the
            client to the queue. turnaround_s: of the client, between an answer and the next request of a closed loop. wake_s: what a
            step takes longer that finds the server idle. noise: standard deviation of ln time of one step.
    """
    if held is not None:  # each end lets the next one go, whenever that was due
        requests = [plan if plan.due_s is None else replace(plan, due_s=None) for plan in requests]

    def make(_: int, now: float) -> ReplayedServer:
        server = ReplayedServer(limits, step, now=now, wake_s=wake_s, noise=noise, seed=seed)
        server.prime(max((plan.shared_tokens for plan in requests), default=0))  # as before each measured run
        return server

    coming = Pacer(requests, held, turnaround_s=turnaround_s)
    return _Fleet(coming, make, "round-robin", overhead_s=overhead_s).run(1)


def replay_fleet(
    plans: Sequence[PlannedRequest],
    make: Callable[[int, float], ReplayedServer],
    number: int,
    router: Router,
    *,
    scaling: Scaling | None = None,
    overhead_s: float = 0.0,
    until_s: float = 0.0,
    seed: int = 1,
) -> FleetReplay:
    """Replay the requests of an open loop on a fleet.

    Each request, and each turn of a conversation, is sent to an instance by the router. A prefix cache serves what its own instance
    has seen and not evicted, also of what all prompts share.

    Args:
        plans: in the order of `due_s`; a turn follows the answer before it. make: an instance of that number, whose clock starts then
            (s). number: of them at first, all ready. scaling: None for a fixed number. overhead_s: from the client to the queue.
            until_s: the fleet is there for so long at least, with requests or without. seed: of a router that draws.
    """
    fleet = _Fleet(Pacer(plans), make, router, scaling=scaling, overhead_s=overhead_s, until_s=until_s, seed=seed)
    return fleet.run(number)


class _Fleet:
    def __init__(
        self,
        coming: Pacer[PlannedRequest],
        make: Callable[[int, float], ReplayedServer],
        router: Router,
        *,
        scaling: Scaling | None = None,
        overhead_s: float = 0.0,
        until_s: float = 0.0,
        seed: int = 1,
    ) -> None:
        self._coming, self._make, self._router, self._scaling = coming, make, router, scaling
        self._overhead_s, self._until, self._last = overhead_s, until_s, until_s
        self._random, self._turn, self._order = np.random.default_rng(seed), count(), count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._instances: list[_Instance] = []
        self._ready: list[_Instance] = []
        self._starting = self._came = 0
        self._home: dict[int, _Instance] = {}
        self._answered: list[tuple[object, ...]] = []  # of `REPLAY_SCHEMA`
        self._history: list[tuple[float, int]] = []

    def run(self, number: int) -> FleetReplay:
        for _ in range(number):
            self._ready.append(self._start(0.0, 0.0))
        self._note(0.0)
        if self._scaling:
            self._at(self._scaling.every_s, self._look)
        while True:
            coming = self._coming.at + self._overhead_s
            due = self._events[0][0] if self._events else _NEVER
            if coming == _NEVER and not self._working() and due > self._until:
                break
            if coming <= due:
                self._arrive()
            else:
                moment, _, act = heapq.heappop(self._events)
                act(moment)
        paid_s = sum(max(0.0, min(each.stopped, self._last) - each.paid_from) for each in self._instances)
        table = pl.DataFrame(self._answered, schema=REPLAY_SCHEMA, orient="row")
        seen = [each.server.seen for each in self._instances]
        return FleetReplay(table, paid_s, tuple(self._history), Seen.by_all(seen) if len(seen) > 1 else seen[0])

    def _working(self) -> bool:
        return any(each.server.busy for each in self._instances)

    def _at(self, moment: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), act))

    # Requests

    def _arrive(self) -> None:
        sent, plan = self._coming.pop()
        self._came += not plan.after
        self._last = max(self._last, sent)
        instance = self._chosen(plan)
        if not instance.server.offer(plan, sent, sent + self._overhead_s):
            self._coming.finished(plan, sent)
            return
        self._home[plan.conversation] = instance
        self._go_on(instance)

    def _chosen(self, plan: PlannedRequest) -> _Instance:
        ready = self._ready
        match self._router:
            case "round-robin":
                return ready[next(self._turn) % len(ready)]
            case "random":
                return ready[int(self._random.integers(len(ready)))]
            case "power-of-two":
                return min((ready[int(i)] for i in self._random.integers(len(ready), size=2)), key=_requests)
            case "session" if self._home.get(plan.conversation) in ready:
                return self._home[plan.conversation]
        first = next(self._turn) % len(ready)  # among equals in turn
        return min((ready[(first + i) % len(ready)] for i in range(len(ready))), key=_requests)

    def _go_on(self, instance: _Instance) -> None:
        """Begin its next steps, once all that comes now has come, or note when those under way end, which may have changed."""
        server = instance.server
        if server.ends is None and server.busy:
            self._at(server.now, lambda _: self._begin(instance))
        elif server.ends is not None and server.ends != instance.due:
            instance.due = server.ends
            self._at(server.ends, lambda moment: self._finish(instance, moment))

    def _begin(self, instance: _Instance) -> None:
        if instance.server.ends is None:
            instance.server.begin()
            self._go_on(instance)

    def _finish(self, instance: _Instance, moment: float) -> None:
        if instance.due != moment:
            return  # the steps were cut short
        instance.due = _NEVER
        for request in instance.server.finish():
            plan, moments = request.plan, (request.sent, request.admitted, request.first, request.end)
            row = (plan.index, plan.output_tokens, *moments, request.preemptions, plan.request_class, instance.number)
            self._answered.append(row)
            self._last = max(self._last, request.end)
            self._coming.finished(plan, request.end)
        if instance.server.busy:
            self._begin(instance)  # before the requests that these ends let go can be there
        elif instance not in self._ready:
            instance.stopped = moment

    # Instances

    def _start(self, moment: float, start_up_s: float) -> _Instance:
        instance = _Instance(len(self._instances), self._make(len(self._instances), moment + start_up_s), moment)
        self._instances.append(instance)
        return instance

    def _look(self, moment: float) -> None:
        """Change the number of instances by the requests since the last decision."""
        scaling = self._scaling
        assert scaling
        there = len(self._ready) + self._starting
        wanted, self._came = scaling.wanted(self._came / scaling.every_s, there), 0
        for _ in range(wanted - there):
            started = self._start(moment, scaling.start_up_s)
            self._starting += 1
            self._at(moment + scaling.start_up_s, lambda at, started=started: self._join(started, at))  # type: ignore[misc]
        for instance in sorted(self._ready, key=_requests)[: max(0, min(there - wanted, len(self._ready) - 1))]:
            self._ready.remove(instance)  # which answers what it has
            instance.stopped = _NEVER if instance.server.busy else moment
        self._note(moment)
        if self._coming.at < _NEVER or self._working() or moment < self._until:
            self._at(moment + scaling.every_s, self._look)

    def _join(self, instance: _Instance, moment: float) -> None:
        self._starting -= 1
        self._ready.append(instance)
        self._note(moment)

    def _note(self, moment: float) -> None:
        if not self._history or self._history[-1][1] != len(self._ready):
            self._history.append((moment, len(self._ready)))


def _requests(instance: _Instance) -> int:
    return instance.server.in_flight


def latency(requests: pl.DataFrame, metric: str) -> pl.Series:
    """TTFT, E2E or TPOT of each request (s); null where an answer of one token has no TPOT. Args: requests: of `REPLAY_SCHEMA`."""
    ttft, e2e = pl.col("first_token_s") - pl.col("sent_s"), pl.col("end_s") - pl.col("sent_s")
    after = pl.when(pl.col("output_tokens") > 1).then((e2e - ttft) / (pl.col("output_tokens") - 1))
    return requests.select({"ttft": ttft, "e2e": e2e, "tpot": after}[metric]).to_series()

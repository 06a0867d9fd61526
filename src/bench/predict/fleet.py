"""Many replayed servers behind a router."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
import polars as pl

from bench.predict.replay import answered_table
from bench.predict.server import ReplayedServer, Seen
from bench.predict.state import Request
from bench.workloads.pacer import Pacer
from bench.workloads.schedule import PlannedRequest

Router = Literal["round-robin", "random", "least-requests", "power-of-two", "session"]
#: Which instance a request goes to, in a few words.
ROUTERS: dict[Router, str] = {
    "round-robin": "one after the other",
    "random": "any",
    "least-requests": "the one with the fewest requests",
    "power-of-two": "of two that are drawn, the one with fewer",
    "session": "that of the conversation's first turn, which goes to the one with the fewest",
}
_NEVER = math.inf


@dataclass(frozen=True)
class Scaling:
    """How instances are added and taken away.

    Attributes:
        usable_rps: requests/s (conversations/s) that one sustains. low, high: shares of that, below and above which their number
            changes, to the middle of both. every_s: between two decisions. least, most: instances.
    """

    usable_rps: float
    low: float = 0.6
    high: float = 0.8
    every_s: float = 60.0
    least: int = 1
    most: int = 1_000_000

    def wanted(self, rate: float, instances: int) -> int:
        """Instances for an arrival rate, where there are `instances`."""
        load = rate / (self.usable_rps * max(1, instances))
        if self.low <= load <= self.high and instances >= self.least:
            return min(instances, self.most)
        return max(self.least, min(self.most, math.ceil(rate / self.usable_rps / ((self.low + self.high) / 2) - 1e-9)))


@dataclass(frozen=True)
class Instances:
    """What a fleet is made of.

    Attributes:
        make: a server of the given number, whose clock starts then (s). number: of them at first, all ready. start_up_s: until a
            further one is ready. scaling: None for a fixed number.
    """

    make: Callable[[int, float], ReplayedServer]
    number: int
    start_up_s: float = 0.0
    scaling: Scaling | None = None


@dataclass(frozen=True)
class FleetReplay:
    """What a fleet did.

    Attributes:
        requests: one row a request that was answered, `REPLAY_SCHEMA` and `instance`. paid_s: instance-seconds, from the decision to
            start one until it has stopped. history: (s, instances that are ready, that are paid for), at each change. seen: by all.
    """

    requests: pl.DataFrame
    paid_s: float
    history: tuple[tuple[float, int, int], ...]
    seen: Seen


@dataclass
class _Instance:
    """One of the fleet; `due` is when its steps end."""

    number: int
    server: ReplayedServer
    paid_from: float
    due: float = _NEVER


@dataclass
class _Start:
    paid_from: float
    cancelled: bool = False


def replay_fleet(
    plans: Sequence[PlannedRequest],
    instances: Instances,
    router: Router,
    *,
    overhead_s: float = 0.0,
    until_s: float = 0.0,
    seed: int = 1,
) -> FleetReplay:
    """Replay the requests of an open loop on a fleet.

    Each request, and each turn of a conversation, is sent to an instance by the router. A prefix cache serves what its own instance
    has seen and not evicted, also of what all prompts share.

    Args:
        plans: in the order of `due_s`; a turn follows the answer before it. overhead_s: from the client to the queue. until_s: the
            fleet is there for so long at least, with requests or without.
    """
    return _Fleet(plans, instances, router, overhead_s, until_s, seed).run()


class _Fleet:
    def __init__(
        self,
        plans: Sequence[PlannedRequest],
        instances: Instances,
        router: Router,
        overhead_s: float,
        until_s: float,
        seed: int,
    ) -> None:
        self._coming = Pacer(plans)
        self._instances, self._router, self._overhead_s = instances, router, overhead_s
        self._random = np.random.default_rng(seed)
        self._numbers, self._order, self._turn = count(), count(), count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._ready: list[_Instance] = []
        self._stopping: list[_Instance] = []  # which answer what they have
        self._starts: list[_Start] = []
        self._seen: list[Seen] = []
        self._home: dict[int, _Instance] = {}
        self._of: dict[int, int] = {}
        self._answered: list[Request] = []
        self._came = 0
        self._paid_s = 0.0
        self._history: list[tuple[float, int, int]] = []
        self._until = self._last = until_s

    def run(self) -> FleetReplay:
        for _ in range(self._instances.number):
            self._add(0.0, paid_from=0.0)
        self._note(0.0)
        if self._instances.scaling:
            self._at(self._instances.scaling.every_s, self._look)
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
        there = [*self._ready, *self._stopping]
        paid_from = [instance.paid_from for instance in there] + [start.paid_from for start in self._starts]
        self._paid_s += sum(max(0.0, self._last - moment) for moment in paid_from)
        table = answered_table(self._answered)
        return FleetReplay(
            table.with_columns(instance=pl.Series([self._of[index] for index in table["index"]], dtype=pl.Int64)),
            self._paid_s,
            tuple(self._history),
            Seen.by_all(self._seen),
        )

    def _working(self) -> bool:
        return any(each.server.busy for each in (*self._ready, *self._stopping))

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
        self._of[plan.index] = instance.number
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
            case "session" if plan.conversation in self._home and self._home[plan.conversation] in ready:
                return self._home[plan.conversation]
        first = next(self._turn) % len(ready)  # among equals in turn
        return min((ready[(first + i) % len(ready)] for i in range(len(ready))), key=_requests)

    def _go_on(self, instance: _Instance) -> None:
        """Begin its next steps, or note when those under way end, which may have changed."""
        server = instance.server
        if server.ends is None and server.busy:
            server.begin()
        if server.ends is not None and server.ends != instance.due:
            instance.due = server.ends
            self._at(server.ends, lambda moment: self._finish(instance, moment))

    def _finish(self, instance: _Instance, moment: float) -> None:
        if instance.due != moment:
            return  # the steps were cut short
        instance.due = _NEVER
        for request in instance.server.finish():
            self._answered.append(request)
            self._last = max(self._last, request.end)
            self._coming.finished(request.plan, request.end)
        if instance in self._stopping and not instance.server.busy:
            self._stop(instance, moment)
        else:
            self._go_on(instance)

    # Instances

    def _add(self, moment: float, paid_from: float) -> None:
        number = next(self._numbers)
        instance = _Instance(number, self._instances.make(number, moment), paid_from)
        self._ready.append(instance)
        self._seen.append(instance.server.seen)

    def _start(self, moment: float) -> None:
        start = _Start(moment)
        self._starts.append(start)

        def ready(at: float) -> None:
            if not start.cancelled:
                self._starts.remove(start)
                self._add(at, start.paid_from)
                self._note(at)

        self._at(moment + self._instances.start_up_s, ready)

    def _cancel(self, moment: float) -> None:
        start = self._starts.pop()
        start.cancelled = True
        self._paid_s += moment - start.paid_from

    def _stop(self, instance: _Instance, moment: float) -> None:
        """Only for an instance that has answered all that it had."""
        self._stopping.remove(instance)
        self._paid_s += moment - instance.paid_from
        self._note(moment)

    def _look(self, moment: float) -> None:
        """Change the number of instances by the requests since the last decision."""
        scaling = self._instances.scaling
        assert scaling
        there = len(self._ready) + len(self._starts)
        wanted = scaling.wanted(self._came / scaling.every_s, there)
        self._came = 0
        for _ in range(wanted - there):
            self._start(moment)
        for _ in range(min(there - wanted, len(self._starts))):
            self._cancel(moment)
        for instance in sorted(self._ready, key=_requests)[: max(0, len(self._ready) + len(self._starts) - wanted)]:
            self._ready.remove(instance)
            self._stopping.append(instance)
            if not instance.server.busy:
                self._stop(instance, moment)
        self._note(moment)
        if self._coming.at < _NEVER or self._working() or moment < self._until:
            self._at(moment + scaling.every_s, self._look)

    def _note(self, moment: float) -> None:
        ready = len(self._ready)
        now = ready, ready + len(self._starts) + len(self._stopping)
        if not self._history or self._history[-1][1:] != now:
            self._history.append((moment, *now))


def _requests(instance: _Instance) -> int:
    return instance.server.in_flight

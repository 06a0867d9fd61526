"""How many equal instances a load takes that was not measured: a peak, a day of traffic or a recorded trace, by replays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bench.errors import BenchError
from bench.fields import MOST_REQUESTS
from bench.predict.asked import Traffic
from bench.predict.calibrate import REPLAYS, Calibrated, Member, ensemble_interval, members, typical
from bench.predict.calibration import Doubt, Interval
from bench.predict.carried import carried, longer, rates_carried, replayed
from bench.predict.fleet import FleetReplay, Router, Scaling
from bench.predict.limits import Limits
from bench.predict.predict import Predicted, doubts
from bench.statistics.textbook import least
from bench.study.slo import Slo
from bench.workloads.schedule import PlannedRequest
from bench.workloads.workload import Workload

HOUR_S = 3600.0  # seconds of an hour; derived
# instances that stand for a larger fleet: at its peak, and over a day at most; measured: docs/explanation/prediction.md
_TOGETHER, _MOST = 4, 16
_MOST_INSTANCES = 1024  # most instances that are tried; convention
_REQUESTS = 400_000  # requests of a day that a few instances replay for all; convention


class NotPredictedError(Exception):
    """Replays must not be relied on. Attributes: doubts: why."""

    def __init__(self, found: Sequence[Doubt]) -> None:
        super().__init__()
        self.doubts = found


@dataclass(frozen=True)
class Question:
    """What is asked of a fleet of equal instances.

    Attributes:
        limits: of each scheduler. tracked: takes servers that are replayed one after the other, and what for; shows how far it is.
    """

    model: Calibrated
    limits: Limits
    workload: Workload
    slos: Sequence[Slo]
    router: Router
    tracked: Callable[[Sequence[Any], str], Iterable[Any]] = lambda items, _: items

    @property
    def asked(self) -> dict[str, Any]:
        """What a fleet has to meet, and how its requests are shared out, for another program."""
        return {"slos": list(map(str, self.slos)), "router": self.router}

    @property
    def members(self) -> list[Member]:
        """Servers that the runs allow for."""
        return members(self.model, self.limits, count=REPLAYS)

    @property
    def typical(self) -> Member:
        """The one in their middle."""
        return typical(self.model, self.limits)

    def refuse(self, *replays: FleetReplay) -> None:
        """Raises: NotPredictedError: the replays went beyond anything measured."""
        if found := list(doubts(self.model, replays)):
            raise NotPredictedError(found)


@dataclass(frozen=True)
class PeakFleet:
    """What a peak takes.

    Attributes:
        alone: what one instance without others does at the rate that it sustains. behind: what one of so many sustains behind the
            router (requests/s), by their number: of one, and of about as many as the peak takes, or of four that stand for more.
            rates: the same of each member, for the last of them. instances: that the peak takes.
    """

    alone: Predicted
    behind: dict[int, Interval]
    rates: list[float]
    instances: Interval


def for_peak(asked: Question, peak: float) -> PeakFleet:
    """Args: peak: requests/s (conversations/s).

    Raises:
        BenchError: no rate is within the SLOs. NotPredictedError: what was measured does not tell.
    """
    workload, slos = asked.workload, asked.slos
    rates = rates_carried(asked.tracked(asked.members, "One instance"), workload, slos)
    if not min(rates):
        asked.refuse(replayed(asked.typical, 1, workload, slos, 1e-3, asked.router))
        raise BenchError(f"no rate is clearly within {' and '.join(map(str, slos))}: even a request alone may take longer.")
    behind = {1: ensemble_interval(rates)}
    alone = carried(asked.model, workload, slos, behind[1].value, asked.limits)
    if alone.doubts:
        raise NotPredictedError(alone.doubts)
    number = min(_TOGETHER, math.ceil(peak / behind[1].value))
    while number not in behind:  # those that share a queue sustain more each, so that fewer may do
        servers = asked.tracked(asked.members, f"{number} behind {asked.router}")
        rates = rates_carried(servers, workload, slos, instances=number, router=asked.router)
        if not min(rates):
            raise BenchError(f"no rate is clearly within the SLOs of {number} instances behind {asked.router}.")
        behind[number] = ensemble_interval(rates)
        number = max(1, min(number, math.ceil(peak / behind[number].value)))
    most = max(behind)
    asked.refuse(replayed(asked.typical, most, workload, slos, behind[most].high * most, asked.router))
    return PeakFleet(alone, behind, rates, needed(peak, behind))


def needed(peak: float, rates: Mapping[int, Interval]) -> Interval:
    """The instances that sustain a rate.

    Args:
        rates: that one of so many sustains (requests/s), of one alone and of some numbers behind the router; any other number has that
            of the next lower one, since more share a queue better.
    """

    def number(end: str) -> int:
        each = ((count, getattr(rates[max(size for size in rates if size <= count)], end)) for count in itertools.count(1))
        return next(count for count, rate in each if count * rate >= peak * (1 - 1e-9))

    return Interval(*map(number, ("value", "high", "low")))


@dataclass(frozen=True)
class Hour:
    """What an hour takes. Attributes: number: from 0. peak: its highest rate (requests/s). instances: that sustain it."""

    number: int
    peak: float
    instances: Interval


@dataclass(frozen=True)
class Day:
    """What traffic got from a fleet.

    Attributes:
        least, most: instances that were ready, in any replay. hours: instance-hours that are paid for. within: share of the requests
            within all limits (0–1). worst: the same of the worst hour.
        meets: whether each hour met the SLOs' percentiles; None where some replays say so and some do not. doubts: why not to rely on
            it.
    """

    name: str
    least: int
    most: int
    hours: Interval
    within: Interval
    worst: Interval
    meets: bool | None
    doubts: tuple[Doubt, ...]


@dataclass(frozen=True)
class Course:
    """A day. Attributes: days: of each fleet. hours: what each takes. notes: on the replays."""

    days: list[Day]
    hours: list[Hour]
    notes: list[str]


def hours(traffic: Traffic, rates: Mapping[int, Interval]) -> list[Hour]:
    """The instances that each hour's highest rate takes. Args: rates: as of `needed`."""
    peaks = [
        traffic.highest(number * HOUR_S, (number + 1) * HOUR_S) for number in range(math.ceil(traffic.seconds / HOUR_S - 1e-9))
    ]
    return [Hour(number, peak, needed(peak, rates)) for number, peak in enumerate(peaks)]


def for_traffic(asked: Question, traffic: Traffic, peak: PeakFleet, start_ups_s: Sequence[float]) -> Course:
    """A fixed fleet, and one that follows the traffic, as far as they can be replayed: a few instances stand for all, with their share
    of the traffic.

    A day takes too long to be replayed for each member. What it gets rises with what an instance sustains, so that its range is that of
    three replays: of the typical member; and of those at both ends of what the ensemble sustains, the slow one with the longest start,
    the fast one with the shortest.

    Args:
        peak: what its peak takes. start_ups_s: how long an instance takes to start (s), each time that it was measured.
    """
    number = int(peak.instances.high)
    requests = traffic.requests * asked.workload.turn_count
    few = min(number, _MOST, max(1, round(_REQUESTS * number / requests)))
    share, needs = few / number, hours(traffic, peak.behind)
    if requests * share > MOST_REQUESTS:
        why = f"The traffic was not replayed: {few} instances get {requests * share:,.0f} requests of it. Give shorter traffic."
        return Course([], needs, [why])
    notes = [f"{few} instances, with their share of the traffic, stand for {number}."] if few < number else []
    plans = traffic.scaled(share).plans(asked.workload, "traffic")
    first, sustained = max(1, math.ceil(few * traffic.rates[0] / traffic.peak)), peak.behind[max(peak.behind)].value
    fleets = ["fixed", "autoscaled"]
    if few < min(number, _TOGETHER):
        notes.append(f"Autoscaling was not replayed: {few} instances are too few to stand for {number} whose number changes.")
        fleets.remove("autoscaled")
    slow, *_, fast = (member for _, member in sorted(zip(peak.rates, asked.members, strict=True), key=lambda pair: pair[0]))
    starts = (asked.typical, median(start_ups_s)), (slow, max(start_ups_s)), (fast, min(start_ups_s))
    days = []
    for name in asked.tracked(fleets, "All the traffic"):
        replays, results = [], []
        for member, start_up_s in starts:
            begun, scaling = (few, None) if name == "fixed" else (first, Scaling(sustained, start_up_s))
            replays.append(member.fleet(plans, begun, asked.router, scaling=scaling, until_s=traffic.seconds))
            results.append(served(replays[-1], member, asked.slos))
        ready = [number / share for replay in replays for _, number in replay.history]
        met = {one.meets for one in results}
        days.append(
            Day(
                name,
                round(min(ready)),
                round(max(ready)),
                _range([replay.paid_s / HOUR_S / share for replay in replays]),
                _range([one.within for one in results]),
                _range([one.worst for one in results]),
                met.pop() if len(met) == 1 else None,
                tuple(doubts(asked.model, replays)),
            )
        )
    return Course(days, needs, notes)


def _range(values: Sequence[float]) -> Interval:
    """The typical replay's value, which comes first, and the range of all."""
    return Interval(values[0], min(values), max(values))


def for_trace(asked: Question, plans: Sequence[PlannedRequest]) -> tuple[Interval, dict[int, Served]]:
    """The instances that recorded requests take, all of which are replayed, and what the typical and the most of them serve.

    Raises:
        BenchError: no number is within the SLOs. NotPredictedError: what was measured does not tell.
    """
    found = ensemble_interval(fewest_instances(asked.tracked(asked.members, "The trace"), plans, asked.slos, asked.router))
    instances = Interval(math.ceil(found.value), math.floor(found.low), math.ceil(found.high))
    member, shares = asked.typical, {}
    for number in map(int, dict.fromkeys((instances.high, instances.value))):
        replay = member.fleet(plans, number, asked.router)
        if number == instances.high:
            asked.refuse(replay)
        shares[number] = served(replay, member, asked.slos)
    return instances, shares


@dataclass(frozen=True)
class Served:
    """Requests within SLOs.

    Attributes:
        within: share of them within all limits (0–1). worst: the same of the worst hour. meets: whether each hour met the SLOs'
            percentiles.
    """

    within: float
    worst: float
    meets: bool


def served(replay: FleetReplay, member: Member, slos: Sequence[Slo]) -> Served:
    """What came of a replay, with latencies as long as they may be."""
    table = replay.requests
    each = [(longer(member, table, slo) <= slo.limit_s).fill_null(value=True).to_numpy() for slo in slos]
    both = np.logical_and.reduce(each)
    hour = table["sent_s"].to_numpy() // HOUR_S
    by_hour = [hour == number for number in np.unique(hour)]
    return Served(
        within=float(both.mean()) if len(both) else 0.0,
        worst=min((float(both[of].mean()) for of in by_hour), default=1.0),
        meets=all(good[of].sum() >= slo.share * of.sum() for slo, good in zip(slos, each, strict=True) for of in by_hour),
    )


def fewest_instances(
    servers: Iterable[Member], plans: Sequence[PlannedRequest], slos: Sequence[Slo], router: Router
) -> list[int]:
    """The fewest instances that meet the SLOs of given requests in each hour, for each member of an ensemble.

    Raises:
        BenchError: more instances than requests, or 1,024, would not do.
    """
    most = min(_MOST_INSTANCES, len(plans))
    found: list[int] = []
    for member in servers:

        def meets(number: int, member: Member = member) -> bool:
            return served(member.fleet(plans, number, router), member, slos).meets

        fewest = least(meets, 1, found[-1] if found else 1, most)
        if fewest is None:
            raise BenchError(
                f"No fleet of up to {most} instances is within {' and '.join(map(str, slos))}: a request alone may take longer."
            )
        found.append(fewest)
    return found

"""How many equal instances a load takes that was not measured, by replays of a calibrated server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.errors import BenchError
from bench.predict import ensemble
from bench.predict.calibrate import Calibrated
from bench.predict.calibration import Doubt, Interval
from bench.predict.carried import Carried, carried, rates_carried, replayed
from bench.predict.day import Day, Draw, Hour, draws, hours, replayed_day
from bench.predict.ensemble import Member
from bench.predict.fleet import FleetReplay, Instances, Router, Scaling, replay_fleet
from bench.predict.predict import doubts, ensemble_interval
from bench.predict.served import Served, fewest_instances, served
from bench.predict.state import Limits
from bench.predict.traffic import Traffic
from bench.study.slo import Slo
from bench.workloads.schedule import PlannedRequest
from bench.workloads.workload import Workload

MEMBERS = 20  # members of an ensemble; tuned: benchmarks.fleet
_TOGETHER = 4  # instances that stand for a larger fleet at its peak; tuned: benchmarks.fleet
_GAIN = 2  # times that one of several carries what one alone does, at most; convention
_FEWEST, _MOST = 2, 16  # instances that are replayed for a fleet; convention
_TO_SCALE = 8  # fewest of them where their number changes; convention
REQUESTS = 400_000  # requests of a day that a few instances replay for all; convention
_MOST_REQUESTS = 3_000_000  # most requests of a day that are replayed; convention


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
    def members(self) -> list[Member]:
        """Servers that the runs allow for."""
        return ensemble.members(self.model, self.limits, count=MEMBERS, seed=1)

    @property
    def typical(self) -> Member:
        """The one in their middle."""
        return ensemble.typical(self.model, self.limits)

    def refuse(self, *replays: FleetReplay) -> None:
        """Raises: NotPredictedError: the replays went beyond anything measured."""
        if found := list(doubts(self.model, replays)):
            raise NotPredictedError(found)


@dataclass(frozen=True)
class PeakFleet:
    """What a peak takes.

    Attributes:
        alone: what one instance carries without others. behind: what one of so many does behind the router (requests/s), by their
            number: up to as many as the peak takes, or to four that stand for more. rates: the same of each member, for the most of
            them. instances: that the peak takes.
    """

    alone: Carried
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
    alone = carried(asked.model, workload, slos, rates, asked.limits)
    if alone.at.doubts:
        raise NotPredictedError(alone.at.doubts)
    number, behind = 1, {1: alone.rate}
    while number < _TOGETHER and peak > number * behind[number].value:
        number = _TOGETHER if peak > _TOGETHER * _GAIN * alone.rate.value else number + 1
        servers = asked.tracked(asked.members, f"{number} behind {asked.router}")
        rates = rates_carried(servers, workload, slos, instances=number, router=asked.router)
        if not min(rates):
            raise BenchError(f"no rate is clearly within the SLOs of {number} instances behind {asked.router}.")
        behind[number] = ensemble_interval(rates)
    each = behind[number]
    asked.refuse(replayed(asked.typical, number, workload, slos, each.high * number, asked.router))
    needed = Interval(*(math.ceil(peak / rate - 1e-9) for rate in (each.value, each.high, each.low)))
    return PeakFleet(alone, behind, rates, needed)


@dataclass(frozen=True)
class Course:
    """A day. Attributes: days: of each fleet, with why not to rely on it. hours: what each takes. notes: on the replays."""

    days: list[tuple[Day, list[Doubt]]]
    hours: list[Hour]
    notes: list[str]


def for_traffic(asked: Question, traffic: Traffic, peak: PeakFleet, start_ups_s: Sequence[float]) -> Course:
    """A fixed fleet, and one that follows the traffic, as far as they can be replayed: a few instances stand for all, with their share
    of the traffic.

    Args:
        peak: what its peak takes. start_ups_s: how long an instance takes to start (s), each time that it was measured.
    """
    number = int(peak.instances.high)
    requests = traffic.requests * asked.workload.turn_count
    few = min(number, max(_FEWEST, min(_MOST, round(REQUESTS * number / requests))))
    share, needs = few / number, hours(traffic, peak.behind)
    if requests * share > _MOST_REQUESTS:
        why = f"The traffic was not replayed: {few} instances get {requests * share:,.0f} requests of it. Give shorter traffic."
        return Course([], needs, [why])
    notes = [f"{few} instances, with their share of the traffic, stand for {number}."] if few < number else []
    plans = traffic.scaled(share).plans(asked.workload, "traffic")
    first, carries = max(1, math.ceil(few * traffic.rates[0] / traffic.peak)), peak.behind[max(peak.behind)].value

    def fixed(draw: Draw) -> Instances:
        return Instances(draw.member.server, few, draw.start_up_s)

    def autoscaled(draw: Draw) -> Instances:
        return replace(fixed(draw), number=first, scaling=Scaling(carries))

    fleets = [("fixed", fixed)]
    if few == number or few >= _TO_SCALE:
        fleets.append(("autoscaled", autoscaled))
    else:
        notes.append(f"Autoscaling was not replayed: {few} instances are too few to stand for {number} whose number changes.")
    drawn = draws(asked.typical, asked.members, peak.rates, start_ups_s)
    days = [
        replayed_day(name, plans, drawn, make, asked.router, asked.slos, share=share, until_s=traffic.seconds)
        for name, make in asked.tracked(fleets, "All the traffic")
    ]
    return Course([(day, list(doubts(asked.model, day.replays))) for day in days], needs, notes)


def for_trace(asked: Question, plans: Sequence[PlannedRequest]) -> tuple[Interval, dict[int, Served]]:
    """The instances that recorded requests take, all of which are replayed, and what the typical and the most of them serve.

    Raises:
        BenchError: no number is within the SLOs. NotPredictedError: what was measured does not tell.
    """
    found = ensemble_interval(fewest_instances(asked.tracked(asked.members, "The trace"), plans, asked.slos, asked.router))
    needed = Interval(math.ceil(found.value), math.floor(found.low), math.ceil(found.high))
    member, shares = asked.typical, {}
    for number in map(int, dict.fromkeys((needed.high, needed.value))):
        replay = replay_fleet(plans, Instances(member.server, number), asked.router, overhead_s=member.overhead_s)
        if number == needed.high:
            asked.refuse(replay)
        shares[number] = served(replay, member, asked.slos)
    return needed, shares

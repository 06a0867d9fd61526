"""What a fleet makes of traffic that changes over a day, with the range that its model and its starts allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.predict.calibration import Interval
from bench.predict.ensemble import Member
from bench.predict.fleet import FleetReplay, Instances, Router, replay_fleet
from bench.predict.served import HOUR_S, served
from bench.predict.traffic import Traffic
from bench.study.slo import Slo
from bench.workloads.schedule import PlannedRequest


@dataclass(frozen=True)
class Draw:
    """A fleet that the model allows. Attributes: member: each instance. start_up_s: of one (s)."""

    member: Member
    start_up_s: float


@dataclass(frozen=True)
class Hour:
    """What an hour takes. Attributes: number: from 0. peak: its highest rate (requests/s). instances: that carry it."""

    number: int
    peak: float
    instances: Interval


@dataclass(frozen=True)
class Day:
    """What traffic got from a fleet.

    Attributes:
        least, most: instances that were ready, in any draw. hours: instance-hours that are paid for. within: share of the requests
            within all limits (0–1). worst: the same of the worst hour.
        meets: whether each hour met the SLOs' percentiles; None where some draws say so and some do not. replays: of the draws, the
            typical one first.
    """

    name: str
    least: int
    most: int
    hours: Interval
    within: Interval
    worst: Interval
    meets: bool | None
    replays: tuple[FleetReplay, ...]


def draws(
    typical: Member,
    ensemble: Sequence[Member],
    rates: Sequence[float],
    start_ups_s: Sequence[float],
) -> list[Draw]:
    """The typical server, and those at both ends of what the ensemble carries: the slow one with the longest start, the fast one with
    the shortest.

    A day takes too long to be replayed for each member. What it gets rises with what an instance carries, so that its range is that of
    the members whose rates are at the ends of the central 90 %.

    Args:
        rates: that each member of the ensemble carries. start_ups_s: measured ones, or the one assumed.
    """
    ranked = [member for _, member in sorted(zip(rates, ensemble, strict=True), key=lambda pair: pair[0])]
    end = min(len(ranked) - 1, math.floor(0.05 * (len(ranked) + 1)))
    return [
        Draw(typical, median(start_ups_s)),
        Draw(ranked[end], max(start_ups_s)),
        Draw(ranked[-1 - end], min(start_ups_s)),
    ]


def hours(traffic: Traffic, rates: Mapping[int, Interval]) -> list[Hour]:
    """The instances that each hour's highest rate takes.

    Args:
        rates: that one of so many sustains (requests/s), of one alone and of some numbers behind the router; any other number has that
            of the next lower one, since more share a queue better.
    """
    found = []
    for number in range(math.ceil(traffic.seconds / HOUR_S - 1e-9)):
        peak = traffic.highest(number * HOUR_S, (number + 1) * HOUR_S)
        needed = (_needed(peak, {n: getattr(rate, end) for n, rate in rates.items()}) for end in ("value", "high", "low"))
        found.append(Hour(number, peak, Interval(*needed)))
    return found


def _needed(peak: float, rates: Mapping[int, float]) -> int:
    """Args: rates: what each instance carries, by how many share the load."""
    sizes = sorted(rates)
    for size, following in zip(sizes, [*sizes[1:], math.inf], strict=True):
        number = max(size, math.ceil(peak / rates[size] - 1e-9))
        if number < following:
            return number
    raise AssertionError("the last size has no upper end")


def replayed_day(
    name: str,
    plans: Sequence[PlannedRequest],
    found: Sequence[Draw],
    instances: Callable[[Draw], Instances],
    router: Router,
    slos: Sequence[Slo],
    *,
    share: float,
    until_s: float,
) -> Day:
    """The traffic on the same fleet in each draw.

    Args:
        plans: its requests. found: of `draws`. instances: the fleet of a draw. share: of the whole fleet that is replayed (0–1).
            until_s: its end (s).
    """
    replays = [
        replay_fleet(plans, instances(draw), router, overhead_s=draw.member.overhead_s, until_s=until_s) for draw in found
    ]
    each = [served(replay, draw.member, slos) for replay, draw in zip(replays, found, strict=True)]
    ready = [number / share for replay in replays for _, number, _ in replay.history]
    met = {one.meets for one in each}
    return Day(
        name,
        round(min(ready)),
        round(max(ready)),
        _range([replay.paid_s / HOUR_S / share for replay in replays]),
        _range([one.within for one in each]),
        _range([one.worst for one in each]),
        met.pop() if len(met) == 1 else None,
        tuple(replays),
    )


def _range(values: Sequence[float]) -> Interval:
    """The typical draw's value, which comes first, and the range of all."""
    return Interval(values[0], min(values), max(values))

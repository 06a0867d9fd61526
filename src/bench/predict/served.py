"""What a fleet made of given requests within SLOs, and how many instances they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.errors import BenchError
from bench.predict.carried import within
from bench.predict.ensemble import Member
from bench.predict.fleet import FleetReplay, Instances, Router, replay_fleet
from bench.statistics.textbook import least
from bench.study.slo import Slo
from bench.workloads.schedule import PlannedRequest

HOUR_S = 3600.0  # seconds of an hour; derived
_MOST_INSTANCES = 1024  # most instances that are tried; convention


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
    each = [within(table, slo, member).fill_null(value=True).to_numpy() for slo in slos]
    both = np.logical_and.reduce(each)
    hour = table["sent_s"].to_numpy() // HOUR_S
    hours = [hour == number for number in np.unique(hour)]
    return Served(
        within=float(both.mean()) if len(both) else 0.0,
        worst=min((float(both[of].mean()) for of in hours), default=1.0),
        meets=all(good[of].sum() >= slo.share * of.sum() for slo, good in zip(slos, each, strict=True) for of in hours),
    )


def fewest_instances(
    ensemble: Iterable[Member], plans: Sequence[PlannedRequest], slos: Sequence[Slo], router: Router
) -> list[int]:
    """The fewest instances that meet the SLOs of given requests in each hour, for each member.

    Raises:
        BenchError: more instances than requests, or 1,024, would not do.
    """
    most = min(_MOST_INSTANCES, len(plans))
    found: list[int] = []
    for member in ensemble:

        def meets(number: int, member: Member = member) -> bool:
            fleet = Instances(member.server, number)
            replay = replay_fleet(plans, fleet, router, overhead_s=member.overhead_s, seed=1 + member.number)
            return served(replay, member, slos).meets

        fewest = least(meets, 1, found[-1] if found else 1, most)
        if fewest is None:
            raise BenchError(
                f"{most} instances would not be within {' and '.join(map(str, slos))}: a request alone may take longer."
            )
        found.append(fewest)
    return found

"""The rate that an instance sustains within SLOs, alone or in a fleet, by replays of traffic that was not measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import polars as pl
from scipy.optimize import brentq

from bench.predict.calibrate import Calibrated, Member
from bench.predict.calibration import METRICS
from bench.predict.fleet import FleetReplay, Router, latency, replay
from bench.predict.limits import Limits
from bench.predict.predict import Predicted, predict
from bench.statistics.percentiles import percentile
from bench.study.slo import Slo
from bench.workloads.schedule import PlannedRequest, schedule
from bench.workloads.workload import Workload

FEWEST_REQUESTS = 1000  # fewest requests of a replay; tuned: benchmarks.fleet
_BEYOND = 20  # fewest requests beyond the percentile; tuned: benchmarks.fleet
# times that a replay has the requests that an instance takes at once, and the conversations that come while one lasts; tuned:
# benchmarks.fleet
TIMES = 4
WARM = 1 / TIMES  # share of the requests that is left out while queues still fill, or empty; derived
CLOSE = 1.02  # ratio of the two loads between which the search for the highest one ends; convention
FAR = 1.0  # excess of a load that cannot be judged; convention
_LOWEST = 1e-3  # lowest load that is tried ÷ the first one; convention


def rates_carried(
    ensemble: Iterable[Member], workload: Workload, slos: Sequence[Slo], *, instances: int = 1, router: Router = "round-robin"
) -> list[float]:
    """The highest rate that one of so many instances sustains within the SLOs, for each member of the ensemble (requests/s;
    conversations/s).

    Args:
        workload: an open loop.

    Returns:
        0 where none is within them, or no request fits.
    """
    found: list[float] = []
    for member in ensemble:
        most = instances * _most(member, workload)

        def excess(rate: float, member: Member = member) -> float:
            table = replayed(member, instances, workload, slos, rate, router).requests.sort("sent_s")
            return worst_excess(member, table.slice(int(WARM * table.height)), slos)

        near = instances * found[-1] if found and found[-1] else most
        # With lax limits, a replay ends before its queue is too long.
        found.append(crossing(excess, min(near, most / CLOSE), most=most) / instances if most else 0.0)
    return found


def replayed(
    member: Member, instances: int, workload: Workload, slos: Sequence[Slo], rate: float, router: Router
) -> FleetReplay:
    """A replay long enough to judge the SLOs. Args: rate: of all instances together."""
    wanted = _long_enough(workload, slos, member.limits, rate / instances, instances)
    plans = schedule(wanted, rate, f"carried/{member.number}")
    return member.fleet(plans, instances, router)


def worst_excess(member: Member, requests: pl.DataFrame, slos: Sequence[Slo]) -> float:
    """By how much the SLO that is missed most is over its limit: ln(percentile ÷ limit). Args: requests: as of `longer`."""
    over = []
    for slo in slos:  # a class's limit is one on its own requests
        mine = requests if slo.request_class is None else requests.filter(pl.col("request_class") == slo.request_class)
        if reached := percentile(longer(member, mine, slo), slo.share):
            over.append(math.log(reached / slo.limit_s))
    return max(over, default=-FAR)


def longer(member: Member, requests: pl.DataFrame, slo: Slo) -> pl.Series:
    """The latency that an SLO limits, of each request (s); null where it has none.

    As long as it may be: predictions of unseen runs were off by as much as `Member.longer` says, at the nearest percentile.

    Args:
        requests: of `REPLAY_SCHEMA`.
    """
    judged = [name for name in METRICS if name.startswith(slo.metric)]
    nearest = min(judged, key=lambda name: abs(Slo.of_column(name, 0.0).share - slo.share))
    return latency(requests, slo.metric) * member.longer(nearest)


def carried(model: Calibrated, workload: Workload, slos: Sequence[Slo], rate: float, limits: Limits) -> Predicted:
    """What one instance does at a rate that it sustains (requests/s; conversations/s)."""
    wanted = _long_enough(workload, slos, limits, rate)
    return predict(model, lambda number: schedule(wanted, rate, f"carried/{number}"), limits=limits)


def _long_enough(workload: Workload, slos: Sequence[Slo], limits: Limits, rate: float, instances: int = 1) -> Workload:
    """Requests (conversations) that the SLOs' percentiles, the server's queue and the pauses of conversations take."""
    turns, paused_s = workload.turn_count, (workload.turn_count - 1) * workload.think_s
    percentiles = max((math.ceil(_BEYOND / (1 - slo.share)) for slo in slos), default=0)
    each = max(FEWEST_REQUESTS, percentiles, TIMES * limits.sequences) / turns
    return workload.model_copy(
        update={"num_requests": math.ceil(instances * max(each, TIMES * rate * paused_s)), "duration_s": None}
    )


def crossing(excess: Callable[[float], float], start: float, *, most: float) -> float:
    """The highest load that is within limits: where the excess crosses 0, by Brent's method over the logarithm of the load.

    Args:
        start: where to begin to look. most: load from which on none is within them.

    Returns:
        0 where no load is within them.
    """
    tried: dict[float, float] = {}

    def over(log: float) -> float:
        if log not in tried:
            tried[log] = excess(math.exp(log)) if math.exp(log) < most else FAR
        return tried[log]

    here = math.log(start)
    step = math.copysign(math.log(2), -over(here))  # to twice or half the load first
    while (over(here + step) > 0) == (over(here) > 0):
        here, step = here + step, 2 * step  # farther each time
        if here + step < math.log(_LOWEST * start):
            return 0.0
    brentq(over, *sorted((here, here + step)), xtol=math.log(CLOSE))
    return math.exp(max(log for log, value in tried.items() if value <= 0))


def _most(member: Member, workload: Workload) -> float:
    """Conversations/s of an instance that is always full; 0 where no request fits."""
    count = max(FEWEST_REQUESTS, TIMES * member.limits.sequences)
    wanted = workload.model_copy(update={"num_requests": math.ceil(count / workload.turn_count), "duration_s": None})
    return full_rps(member, schedule(wanted, 1.0, f"most/{member.number}")) / workload.turn_count


def full_rps(member: Member, plans: Sequence[PlannedRequest]) -> float:
    """Requests/s of an instance that is always full; 0 where no request fits. Args: plans: at least `TIMES` as many as it takes."""
    plans = [replace(plan, think_s=0.0) for plan in plans]
    return answered_rps(replay(plans, member.limits, member.step, held=member.limits.sequences).requests)


def answered_rps(requests: pl.DataFrame) -> float:
    """Answers/s, without the first and the last ones; 0 where there are too few. Args: requests: of `REPLAY_SCHEMA`."""
    ends = requests["end_s"].sort()
    first, last = (float(ends[int(share * (len(ends) - 1))]) if len(ends) else 0.0 for share in (WARM, 1 - WARM))
    return (1 - 2 * WARM) * len(ends) / (last - first) if last > first else 0.0

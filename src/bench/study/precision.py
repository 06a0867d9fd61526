"""How many requests a level takes for the percentiles that the SLOs name, before anything is measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bench.study.slo import Slo
from bench.study.workload import Workload

if TYPE_CHECKING:
    from bench.study.specs import RunSpec

__all__ = ["requests_for", "thin_levels", "with_requests"]

_CONFIDENCE = 0.95  # two-sided, as the interval of C_max has it
_WINDOW = 0.6  # of a run's requests, about, lie in its steady window
_SPREAD = 1.5  # requests that resemble their neighbours count as fewer
_TURNOVERS = 5  # times that a closed loop replaces what it holds: a ramp, and a window of several latencies
_UNSURE = 100  # requests, where no SLO says how many


def requests_for(slos: Sequence[Slo]) -> int | None:
    """Requests of a level that show, at 95 % confidence, that the strictest percentile is met, if not one exceeds it.

    n with shareⁿ ≤ 2.5 %, the upper end of Clopper and Pearson's interval at no miss: 6 for a P50, 36 for a P90, 72 for a P95, 368 for
    a P99. Near the limit it takes several times as many. None without SLOs.
    """
    if not slos:
        return None
    tail = (1 - _CONFIDENCE) / 2
    return max(math.ceil(math.log(tail) / math.log(slo.share)) for slo in slos)


def with_requests(workload: Workload, level: float, repeats: int, slos: Sequence[Slo]) -> Workload:
    """The workload with as many requests as the SLOs take at this level over all repeats, where it says `num_requests: auto`."""
    if workload.num_requests != "auto":
        return workload
    each = math.ceil(_SPREAD * _clustered(workload) * (requests_for(slos) or _UNSURE) / _WINDOW / repeats)
    held = _TURNOVERS * int(level) if workload.axis == "concurrency" else 0
    return workload.model_copy(update={"num_requests": max(each, held)})


def _clustered(workload: Workload) -> float:
    """How many requests of bursty arrivals tell as much as one of Poisson's: the gaps' variance ÷ mean² (1 ÷ the gamma's shape).

    Source: Whitt, Planning queueing simulations (Management Science 35, 1989): the run that a queue's mean takes is proportional to it.
    """
    return max(1.0, 1 / (workload.burstiness or 1.0))


def thin_levels(runs: Iterable[RunSpec], slos: Sequence[Slo]) -> list[str]:
    """What to know before measuring: a line for each workload of which a level has too few requests for the SLOs' percentiles.

    Bursts are left out: no rate is read off them.
    """
    needed = requests_for(slos)
    if needed is None:
        return []
    counts: dict[tuple[str, str, float], float] = {}
    takes: dict[str, float] = {}
    for run in runs:
        if run.workload.arrival in ("burst", "trace"):
            continue
        key = (run.deployment.name, run.workload_name, run.level)
        counts[key] = counts.get(key, 0.0) + _requests(run.workload, run.level)
        takes[run.workload_name] = needed * _clustered(run.workload) / _WINDOW
    lines = {}
    strictest = max(slos, key=lambda slo: slo.share)
    for (deployment, workload, level), count in counts.items():
        if count < takes[workload] and workload not in lines:
            lines[workload] = (
                f"{deployment}, {workload} at {level:g}: {count:.0f} requests over all repeats are too few for {strictest.name}, whose "
                f"limit takes {math.ceil(takes[workload]):,} to be surely met: C_max will lack its lower end. Raise num_requests, "
                "duration_s or repeats, or write `num_requests: auto`."
            )
    return list(lines.values())


def _requests(workload: Workload, level: float) -> float:
    turns = workload.turns.count if workload.turns else 1
    if isinstance(workload.num_requests, int):
        return turns * workload.num_requests
    return turns * level * (workload.duration_s or 0.0)

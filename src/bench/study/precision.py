"""How many requests a level needs for the percentiles of the SLOs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bench.axes import AXES, RATE
from bench.errors import first_names
from bench.statistics.textbook import TAIL
from bench.study.slo import Slo, applying
from bench.workloads.workload import Workload

if TYPE_CHECKING:
    from bench.study.plan import Plan
    from bench.study.specs import RunSpec

_WINDOW = 0.6  # share of a run's requests in its steady window; convention
_SPREAD = 1.5  # factor on the requests, as those that resemble their neighbours count as fewer; convention
# times that a closed loop replaces its requests in flight: a ramp, and a window of several latencies; convention
_TURNOVERS = 5
_UNSURE = 100  # requests where there is no SLO; convention


def requests_for(slos: Sequence[Slo]) -> int | None:
    """The fewest requests that can show, at 95 % confidence, that the strictest percentile is met; None without SLOs.

    n with shareⁿ ≤ 2.5 %, the upper end of Clopper and Pearson's interval where no request misses its limit: 6 for a P50, 36 for a P90,
    72 for a P95, 368 for a P99. A level near the limit needs several times as many.
    """
    if not slos:
        return None
    return max(math.ceil(math.log(TAIL) / math.log(slo.share)) for slo in slos)


def with_requests(workload: Workload, level: float, repeats: int, slos: Sequence[Slo]) -> Workload:
    """The workload with a number in place of `num_requests: auto`: what the SLOs need at this level, divided by its repeats."""
    if workload.num_requests != "auto":
        return workload
    each = math.ceil(_SPREAD * _clustered(workload) * (_needed(workload, slos) or _UNSURE) / _WINDOW / repeats)
    held = _TURNOVERS * int(level) if AXES[workload.axis].held else 0
    return workload.model_copy(update={"num_requests": max(each, held)})


def _needed(workload: Workload, slos: Sequence[Slo]) -> float | None:
    """As `requests_for`; a class with limits of its own needs as many requests as all would."""
    needed = [(requests_for([slo]) or 0) / _share(workload, slo) for slo in applying(slos, workload.classes)]
    return max(needed, default=None)


def _share(workload: Workload, slo: Slo) -> float:
    return 1.0 if slo.request_class is None else workload.classes[slo.request_class].share


def auto_lines(plan: Plan) -> list[str]:
    """A line for each workload with `num_requests: auto`: how many requests that is, and about how long they take.

    An open loop lasts as long as its requests take to leave. Of a closed loop it is estimated where the SLOs bound a request's E2E: its
    time where they are just met.
    """
    workloads = {} if plan.config.packed else plan.config.workloads  # of a pack, nothing is sent
    asked = {name for name, workload in workloads.items() if workload.num_requests == "auto"}
    found: dict[str, list[RunSpec]] = {}
    for run in plan.listed:
        if run.family in asked:
            found.setdefault(run.workload_name, []).append(run)
    return [_auto_line(workload, runs, plan.config.decision.slos) for workload, runs in found.items()]


def prompt_lines(plan: Plan) -> list[str]:
    """A line for each workload with prompts of a file, how many and how long, and for each server that computes histories again."""
    workloads = {} if plan.config.packed else {run.family: run.workload for run in plan.runs}
    parts = {f"{name}.{part}" if part else name: each for name, x in workloads.items() for part, each in x.parts.items()}
    own = {name: x.prompts.described(x.turn_count) for name, x in parts.items() if not x.prompts.sized}
    return [
        *(f"{name}: {words}; their tokens are what the server counts." for name, words in own.items() if words),
        *_uncached_turns(plan),
    ]


def _uncached_turns(plan: Plan) -> list[str]:
    """A line for each deployment that computes the history of conversations anew in every turn."""
    without: dict[str, list[str]] = {}
    for run in plan.runs:
        own = run.deployment.engine.source != "external" and not run.deployment.settings.get("prefix_caching")
        if own and (run.workload.turns or (run.workload.arrival == "trace" and any(x.after for x in run.workload.traced))):
            without.setdefault(run.deployment.name, []).append(run.family)
    return [
        f"{name} has no prefix cache, so each turn of {', '.join(dict.fromkeys(families))} computes the whole history again. Chats are "
        "usually served with `prefix_caching: true`; `sweep: { prefix_caching: [false, true] }` compares both."
        for name, families in without.items()
    ]


def _auto_line(name: str, runs: Sequence[RunSpec], slos: Sequence[Slo]) -> str:
    levels: dict[int, list[float]] = {}
    for run in sorted(runs, key=lambda run: run.level):
        at = levels.setdefault(_number(run.workload), [])
        at.extend([run.level] * (run.level not in at))
    each = "; ".join(f"{number:,} a run at {', '.join(f'{level:g}' for level in at)}" for number, at in levels.items())
    what = "conversations" if runs[0].workload.turns else "requests"
    seconds = [_seconds(run.workload, run.level, slos) for run in runs]
    known = sum(each for each in seconds if each is not None)
    if None in seconds:
        cost = "How long they take is known after the first run."
    elif runs[0].workload.axis == RATE:
        cost = f"They take about {known:,.0f} s to send."
    else:
        cost = f"They take about {known:,.0f} s where the SLOs are just met."
    return f"{name}: `num_requests: auto` is {each}: {sum(_number(run.workload) for run in runs):,} {what} in all. {cost}"


def _number(workload: Workload) -> int:
    assert isinstance(workload.num_requests, int)  # `with_requests` has replaced the word
    return workload.num_requests


def _seconds(workload: Workload, level: float, slos: Sequence[Slo]) -> float | None:
    """How long the requests of a run take (s); None where nothing bounds it."""
    if workload.axis == RATE:
        return _number(workload) / level
    if not AXES[workload.axis].held:
        return None
    limits = {slo.metric: slo.limit_s for slo in slos if slo.request_class is None}
    if "e2e" in limits:
        request = limits["e2e"]
    elif {"ttft", "tpot"} <= limits.keys() and workload.output_tokens:
        request = limits["ttft"] + limits["tpot"] * (workload.output_tokens.longest - 1)
    else:
        return None
    conversation = workload.turn_count * request + (workload.turn_count - 1) * workload.think_s
    return math.ceil(_number(workload) / level) * conversation


def _clustered(workload: Workload) -> float:
    """How many requests of bursty arrivals are worth one of Poisson's: the gaps' variance ÷ mean² (1 ÷ the gamma's shape).

    Source: Whitt, Planning queueing simulations (Management Science 35, 1989): the run that a queue's mean takes is proportional to it.
    """
    return max(1.0, 1 / (workload.burstiness or 1.0))


def enough_requests(workload: Workload, slos: Sequence[Slo]) -> int:
    """The fewest requests of a level over all repeats that `thin_levels` does not complain about; 0 where no SLO applies."""
    return math.ceil((_needed(workload, slos) or 0) * _clustered(workload) / _WINDOW)


def thin_levels(runs: Iterable[RunSpec], slos: Sequence[Slo]) -> list[str]:
    """A line for each percentile of the SLOs for which levels of some workloads have too few requests, to be read before measuring.

    Bursts are left out: no rate is read off them.
    """
    counts: dict[str, dict[tuple[str, float], float]] = {}
    needs: dict[str, int] = {}
    units: dict[str, str] = {}
    strictest: dict[str, Slo] = {}
    for run in runs:
        needed = enough_requests(run.workload, slos)
        if run.workload.arrival in ("burst", "trace") or not needed:
            continue
        of = run.workload
        strictest[run.workload_name] = max(
            applying(slos, of.classes), key=lambda slo: (requests_for([slo]) or 0) / _share(of, slo)
        )
        levels, level = counts.setdefault(run.workload_name, {}), (run.deployment.name, run.level)
        levels[level] = levels.get(level, 0.0) + _requests(run.workload, run.level)
        needs[run.workload_name], units[run.workload_name] = needed, AXES[of.axis].short
    groups: dict[tuple[str, int], dict[str, dict[tuple[str, int], list[str]]]] = {}
    for workload, levels in counts.items():
        for (deployment, value), count in levels.items():
            if count < needs[workload]:
                group = groups.setdefault((strictest[workload].name, needs[workload]), {}).setdefault(workload, {})
                group.setdefault((deployment, int(count)), []).append(f"{value:g}")
    lines = []
    for (what, needed), thin in groups.items():
        has = "; ".join(
            f"{deployment} at {', '.join(loads)} {units[workload]} has {count:,}"
            for workload, levels in thin.items()
            for (deployment, count), loads in levels.items()
        )
        if len(thin) > 1:
            few = sorted({count for levels in thin.values() for _, count in levels})
            has = f"they have {few[0]:,}" + (f" to {few[-1]:,}" if len(few) > 1 else "")
        lines.append(
            f"{first_names(list(thin), 3)}: too few requests to show that {what} is met, so C_max may get no lower bound. Each load "
            f"needs {needed:,} over all repeats: {has}. Raise num_requests, duration_s or repeats, or write `num_requests: auto`."
        )
    return lines


def _requests(workload: Workload, level: float) -> float:
    turns = workload.turn_count
    if isinstance(workload.num_requests, int):
        return turns * workload.num_requests
    return turns * level * (workload.duration_s or 0.0)

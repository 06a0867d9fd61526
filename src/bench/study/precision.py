"""How many requests a level needs for the percentiles of the SLOs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bench.axes import AXES
from bench.errors import first_names
from bench.statistics.textbook import TAIL
from bench.study.slo import Slo, applying
from bench.workloads.trace import read_trace, thinned
from bench.workloads.workload import Workload

if TYPE_CHECKING:
    from bench.study.plan import Plan
    from bench.study.specs import RunSpec

_WINDOW = 0.6  # share of a run's requests in its steady window; convention
_SPREAD = 1.5  # factor on the requests, as those that resemble their neighbours count as fewer; convention
# times that a closed loop replaces its requests in flight: a ramp, and a window of several latencies; convention
_TURNOVERS = 5
_UNSURE = 100  # requests where there is no SLO; convention


def requests_for(slo: Slo) -> int:
    """The fewest requests that can show, at 95 % confidence, that a percentile is met.

    n with shareⁿ ≤ 2.5 %, the upper end of Clopper and Pearson's interval where no request misses its limit: 6 for a P50, 36 for a P90,
    72 for a P95, 368 for a P99. A level near the limit needs several times as many.
    """
    return math.ceil(math.log(TAIL) / math.log(slo.share))


def with_requests(workload: Workload, level: float, repeats: int, slos: Sequence[Slo]) -> Workload:
    """The workload with a number in place of `num_requests: auto`: what the SLOs need at this level, divided by its repeats."""
    if workload.num_requests != "auto":
        return workload
    each = math.ceil(_SPREAD * _clustered(workload) * (_needed(workload, slos) or _UNSURE) / _WINDOW / repeats)
    held = _TURNOVERS * int(level) if AXES[workload.axis].held else 0
    return workload.model_copy(update={"num_requests": max(each, held)})


def _needed(workload: Workload, slos: Sequence[Slo]) -> float:
    """As `requests_for` of the strictest; a class with limits of its own needs as many requests as all would. 0 without SLOs."""
    shares = {name: each.share for name, each in workload.classes.items()}
    needed = (requests_for(slo) / shares.get(slo.request_class or "", 1.0) for slo in applying(slos, workload.classes))
    return max(needed, default=0)


def auto_lines(plan: Plan) -> list[str]:
    """A line for each workload with `num_requests: auto`: how many requests that is."""
    if plan.config.packed:  # nothing is sent
        return []
    counts: dict[str, dict[int, dict[float, None]]] = {}
    for run in plan.listed:
        if plan.config.workloads[run.family].num_requests == "auto" and isinstance(number := run.workload.num_requests, int):
            counts.setdefault(run.workload_name, {}).setdefault(number, {})[run.level] = None
    return [
        f"{name}: `num_requests: auto` is "
        + "; ".join(
            f"{number:,} a run at {', '.join(f'{level:g}' for level in sorted(levels))}" for number, levels in of.items()
        )
        for name, of in counts.items()
    ]


def prompt_lines(plan: Plan) -> list[str]:
    """A line for each workload with prompts of a file, how many and how long, for each trace that is thinned or cut, and
    for each server that computes histories again.
    """
    workloads = {} if plan.config.packed else {run.family: run.workload for run in plan.runs}
    parts = {f"{name}.{part}" if part else name: each for name, x in workloads.items() for part, each in x.parts.items()}
    own = {name: x.prompts.described(x.turn_count) for name, x in parts.items() if not x.prompts.sized}
    return [
        *(f"{name}: {words}; their tokens are what the server counts." for name, words in own.items() if words),
        *(f"{name}: {words}" for name, x in workloads.items() if (words := _thinned(x))),
        *_uncached_turns(plan),
    ]


def _thinned(workload: Workload) -> str | None:
    """What is left out of a trace, and cut; None where nothing is."""
    longest = workload.trace_longest
    if not (workload.trace and (workload.trace_every or longest)):
        return None
    whole = read_trace(workload.trace, workload.trace_unit, workload.trace_block)
    kept = thinned(whole, workload.trace_every or 1)
    prompts, answers = (
        sum(bool(longest) and each > (longest or 0) for each in of)
        for of in ([x.prompt_tokens for x in kept], [x.output_tokens for x in kept])
    )
    cut = f"; {prompts:,} prompts and {answers:,} answers are cut to {longest:,} tokens" if prompts or answers else ""
    return f"{len(kept):,} of {len(whole):,} requests are sent{cut}."


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


def _clustered(workload: Workload) -> float:
    """How many requests of bursty arrivals are worth one of Poisson's: the gaps' variance ÷ mean² (1 ÷ the gamma's shape).

    Source: Whitt, Planning queueing simulations (Management Science 35, 1989): the run that a queue's mean takes is proportional to it.
    """
    return max(1.0, 1 / (workload.burstiness or 1.0))


def enough_requests(workload: Workload, slos: Sequence[Slo]) -> int:
    """The fewest requests of a level over all repeats that `thin_levels` does not complain about; 0 where no SLO applies."""
    return math.ceil(_needed(workload, slos) * _clustered(workload) / _WINDOW)


def thin_levels(runs: Iterable[RunSpec], slos: Sequence[Slo]) -> list[str]:
    """A line for each strictest SLO with the workloads that have levels of too few requests for it, to be read before measuring.

    Bursts are left out: no rate is read off them.
    """
    counts: dict[str, dict[tuple[str, float], float]] = {}
    workloads: dict[str, Workload] = {}
    for run in runs:
        if run.workload.arrival not in ("burst", "trace"):
            workloads[run.workload_name] = run.workload
            levels = counts.setdefault(run.workload_name, {})
            level = run.deployment.name, run.level
            levels[level] = levels.get(level, 0.0) + _requests(run.workload, run.level)
    groups: dict[tuple[str, int], dict[str, str]] = {}
    for name, levels in counts.items():
        needed = enough_requests(workloads[name], slos)
        if thin := {level: int(count) for level, count in levels.items() if count < needed}:
            strictest = max(applying(slos, workloads[name].classes), key=lambda slo: slo.share)
            loads = ", ".join(f"{level:g}" for level in sorted({level for _, level in thin}))
            has = f"at {loads} {AXES[workloads[name].axis].short} it has {min(thin.values()):,} or more"
            groups.setdefault((strictest.name, needed), {})[name] = has
    return [
        f"{first_names(list(of), 3)}: too few requests to show that {slo} is met, so C_max may get no lower bound. Each load needs "
        f"{needed:,} over all repeats{f', and {next(iter(of.values()))}' if len(of) == 1 else ''}. Raise num_requests, duration_s or "
        "repeats, or write `num_requests: auto`."
        for (slo, needed), of in groups.items()
    ]


def _requests(workload: Workload, level: float) -> float:
    turns = workload.turn_count
    if isinstance(workload.num_requests, int):
        return turns * workload.num_requests
    return turns * level * (workload.duration_s or 0.0)

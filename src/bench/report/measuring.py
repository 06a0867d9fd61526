"""What a workflow is going to measure, in words, before it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.errors import count_text, first_names
from bench.shipped import BENCH
from bench.study.plan import Plan
from bench.study.precision import auto_lines, prompt_lines, thin_levels
from bench.study.searches import SearchSpec
from bench.study.specs import RunSpec

_MOST_NAMED = 3


def measuring_lines(plan: Plan, held: Callable[[RunSpec], bool], searches: Sequence[SearchSpec]) -> list[str]:
    """What is measured of a study, and what its levels cannot show.

    Args:
        held: whether a run is measured already. searches: those that have not ended.
    """
    missing = [run.key for run in plan.listed if not held(run)]
    lacking = {name for name, _ in _lacking(plan, held, searches)}
    of = first_names([name for name in plan.deployments if name in lacking or not lacking])
    begun = starts(plan, held, searches)
    wanted = runs_and_searches(len(missing), len(searches)) or "facts"
    line = f"“{plan.config.study.title}”: to measure: {wanted} of {of}"
    line += f", in {count_text(begun, 'start')} of a server." if begun > 1 else "."
    if 0 < len(missing) < len(plan.listed):
        line += f" Of {len(plan.listed)} runs these are missing: {first_names(missing, _MOST_NAMED)}."
    return [
        f"{line} `{BENCH} runs --watch`, in another terminal, shows a session while it measures.",
        *(
            f"Note: {each}"
            for each in (*prompt_lines(plan), *auto_lines(plan), *thin_levels(plan.listed, plan.config.decision.slos))
        ),
    ]


def runs_and_searches(runs: int, searches: int) -> str:
    """So many of both, such as `2 runs and 1 search`; of none of one, the others."""
    parts = [count_text(runs, "run")] if runs else []
    parts += [f"{searches} search{'es' if searches > 1 else ''}"] if searches else []
    return " and ".join(parts)


def starts(plan: Plan, held: Callable[[RunSpec], bool], searches: Sequence[SearchSpec]) -> int:
    """How many starts of a server it takes: one a session that lacks a run or a search; none of a server that runs already.

    Args:
        held, searches: as of `measuring_lines`.
    """
    return sum(plan.deployments[name].engine.source != "external" for name, _ in _lacking(plan, held, searches))


def jobs_line(plan: Plan, held: Callable[[RunSpec], bool], searches: Sequence[SearchSpec]) -> str:
    """What would go to a cluster and what stays; empty where nothing of what is left starts a server on GPUs.

    Args:
        held, searches: as of `measuring_lines`.
    """
    sessions = _lacking(plan, held, searches)
    gpus = sorted({plan.deployments[name].gpus_started for name, _ in sessions})
    if not any(gpus):
        return ""
    kind = plan.config.decision.accelerator
    of_type = f"of the type that the cluster has of {kind}" if kind else "of any type (decision.accelerator names one)"
    each = count_text(gpus[0], "GPU") if len(gpus) == 1 else f"{gpus[0]} to {gpus[-1]} GPUs"
    jobs = f"{count_text(len(sessions), 'job')}, one a session, each of {each} {of_type}"
    return f"On a cluster (profiles/slurm), measuring is {jobs}. All else runs where the workflow does."


def _lacking(plan: Plan, held: Callable[[RunSpec], bool], searches: Sequence[SearchSpec]) -> set[tuple[str, int]]:
    """The sessions that lack a run or a search."""
    lacking = {(run.deployment.name, plan.place_of(run).session) for run in plan.listed if not held(run)}
    return lacking | {(search.deployment.name, 1) for search in searches}

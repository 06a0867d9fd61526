"""What a workflow is going to measure, in words, before it begins."""

from __future__ import annotations

from collections.abc import Callable

from bench.errors import count_text
from bench.shipped import BENCH
from bench.study import Plan, RunSpec
from bench.study.precision import auto_lines, prompt_lines, thin_levels

__all__ = ["measuring_lines"]

_MOST_NAMED = 3


def measuring_lines(plan: Plan, held: Callable[[RunSpec], bool]) -> list[str]:
    """What is measured of a study, and what its levels cannot show.

    Args:
        held: whether a run is measured already.
    """
    missing = [run.key for run in plan.listed if not held(run)]
    searches = len(plan.searches)
    parts = [count_text(len(missing), "run")] if missing else []
    parts += [f"{searches} search{'es' if searches > 1 else ''}"] if searches else []
    line = f"“{plan.config.study.title}”: to measure: {' and '.join(parts)} of {', '.join(plan.deployments)}."
    if 0 < len(missing) < len(plan.listed):
        others = len(missing) - _MOST_NAMED
        more = f" and {others} more" if others > 0 else ""
        line += f" Of {len(plan.listed)} runs these are missing: {', '.join(missing[:_MOST_NAMED])}{more}."
    return [
        f"{line} `{BENCH} watch`, in another terminal, shows a session while it measures.",
        *(
            f"Note: {each}"
            for each in (*prompt_lines(plan), *auto_lines(plan), *thin_levels(plan.listed, plan.config.decision.slos))
        ),
    ]

"""How a server recovers from a step in its load, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report.blocks import Answer
from bench.runs.sentences import load_cell


def answer(steps: Sequence[Mapping[str, Any]]) -> Answer:
    """How the server recovers, a line a run with a step. Args: steps: their rows of the summary table."""
    return Answer(
        name="recovery",
        question="How does the server recover from a step of its load?",
        lines=tuple(
            f"{step['deployment']} · {step['workload']} at {load_cell(step['level'], step['axis'])}: {_line(step)}"
            for step in steps
        ),
        sure=(
            "From the end of the step to the first of nine requests in a row whose median TTFT is no more than what nine of ten had "
            "before the step.",
        ),
    )


def _line(step: Mapping[str, Any]) -> str:
    if not step["valid"]:
        return "not known, the run is invalid."
    if not step["recovered"] or step["recovery_s"] is None:
        return "TTFT had not recovered when the run ended."
    return f"TTFT is as before {step['recovery_s']:.2g} s after the step."

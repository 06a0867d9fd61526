"""The lines with which a workflow ends: whether there was anything to show, and if not, why."""

from __future__ import annotations

import polars as pl

from bench.analysis.validity import invalid
from bench.errors import count_text
from bench.shipped import BENCH
from bench.words.trust import accept_others, first_line, remedy

_MADE = "The report: results/report.html (in short: results/report.md)  The figures: results/figures/"


def closing_lines(runs: pl.DataFrame, *, figures: int) -> list[str]:
    """Lines to end with: what cannot be trusted and what failed, if anything, and last where the report is.

    Args:
        runs: the summary table, with the columns of the verdict. figures: how many files of figures there are.
    """
    rejected = runs.filter(invalid())
    lines = []
    if not figures:
        lines.append("No figure: these runs answer no figure's question (most need two levels of load). The report lists them.")
    if rejected.height:
        lines.append(f"{first_line(runs)} The report and `{BENCH} runs` say why. {remedy(runs)}")
    if allowed := accept_others(rejected["reasons"]):
        lines.append(allowed)
    failing = runs.filter(pl.col("failed") > 0)
    if failing.height:
        lines.append(
            f"Requests failed in {count_text(failing.height, 'run', of=runs.height)}. That is the server's answer to its load, and "
            "makes no run invalid; the report says how many, and how."
        )
    return [*lines, _MADE]

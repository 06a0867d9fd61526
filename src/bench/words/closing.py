"""The lines with which a workflow ends: whether there was anything to show, and if not, why."""

from __future__ import annotations

import polars as pl

from bench.analysis.validity import invalid
from bench.errors import count_text, is_are
from bench.shipped import BENCH
from bench.words.trust import accept_others, alike, remedy
from bench.words.verdicts import reason_texts

__all__ = ["closing_lines"]

_MADE = "The report: results/report.html (in short: results/report.md)  The figures: results/figures/"

_REASONS = 5  # most reasons that are named


def closing_lines(runs: pl.DataFrame, *, figures: int) -> list[str]:
    """Lines to end with: what cannot be trusted and what failed, if anything, and last where the report is.

    Where no run's latencies can be trusted the reasons are named, the most frequent first: the figures are there, and show nothing
    that holds, or only what the server counted.

    Args:
        runs: the summary table, with the columns of the verdict. figures: how many files of figures there are.
    """
    rejected = runs.filter(invalid())
    lines = []
    if not figures:
        lines.append("No figure: these runs answer no figure's question (most need two levels of load). The report lists them.")
    if runs.height and not runs["valid"].any():
        what = "No latency and no throughput" if runs["counts_valid"].any() else "Nothing"
        none = f"{count_text(0, 'run', of=runs.height)} {is_are(runs.height)} valid"
        lines.append(f"{what} to show: {none}. The report and the figures are kept, and mark them.")
        found = alike(reason for codes in runs["reasons"] for reason in reason_texts(codes))
        lines += [f"    {reason} ({count_text(count, 'run', of=runs.height)})" for reason, count in found[:_REASONS]]
        if len(found) > _REASONS:
            lines.append(f"    and {count_text(len(found) - _REASONS, 'more reason')}: `{BENCH} runs`")
        lines.append(remedy(runs))
    elif rejected.height:
        invalid_runs = f"{count_text(rejected.height, 'run', of=runs.height)} {is_are(rejected.height)} invalid"
        lines.append(f"{invalid_runs} ({_parts(rejected)}): the report and `{BENCH} runs` say why. {remedy(runs)}")
    if allowed := accept_others(rejected["reasons"]):
        lines.append(allowed)
    failing = runs.filter(pl.col("failed") > 0)
    if failing.height:
        lines.append(
            f"Requests failed in {count_text(failing.height, 'run', of=runs.height)}. That is the server's answer to its load, and "
            "makes no run invalid; the report says how many, and how."
        )
    return [*lines, _MADE]


def _parts(rejected: pl.DataFrame) -> str:
    """What cannot be trusted, and of how many runs."""
    counts = {
        "latency and throughput": rejected.filter(~pl.col("valid")).height,
        "the server's counts": rejected.filter(~pl.col("counts_valid")).height,
    }
    return ", ".join(f"{what} of {count}" for what, count in counts.items() if count)

"""How many runs can be trusted and by which limits that was judged, in words: the first line of a report, the last of a workflow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from bench.errors import count_text, is_are, listed, shown_share
from bench.parse.validity import CHECKS, TIMES, invalid, read_code, reason_texts
from bench.report.blocks import AGAIN
from bench.shipped import BENCH
from bench.study.config import Thresholds

_ADVICE = "docs/how-to/troubleshooting.md says what to do about each reason"
_LASTING = f"Measured again they would be the same: {_ADVICE}."
_STEP = 0.05  # step in which a threshold is advised, above what was seen; convention
_NUMBER = re.compile(r"\d\d:\d\d:\d\d|\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")  # or a time of day


def first_line(runs: pl.DataFrame) -> str:
    """How many runs are valid; where none is, that nothing holds, and the most frequent reason."""
    rejected = runs.filter(invalid())
    timed = int(runs["valid"].sum())
    if not runs.height:
        return "No run was measured."
    if not rejected.height:
        return "The run is valid." if runs.height == 1 else f"All {runs.height} runs are valid."
    why = alike(reason for codes in rejected["reasons"] for reason in reason_texts(codes))
    often = f" Why: {why[0][0]}." if why else ""
    if len(why) > 1:
        often = f" Most often: {why[0][0]} ({count_text(why[0][1], 'run', of=runs.height)})."
    if not timed:
        rest = "only the server's counts hold" if runs["counts_valid"].any() else "no result holds"
        what = "The only run is invalid" if runs.height == 1 else f"None of the {runs.height} runs is valid"
        return f"{what}, so {rest}.{often}"
    counts = runs.filter(pl.col("valid") & ~pl.col("counts_valid")).height
    half = f"; the server's counts of {counts} cannot be trusted" if counts else ""
    left = " What cannot be trusted of the others is left out." if timed < runs.height else ""
    return f"{count_text(timed, 'run', of=runs.height)} {is_are(timed)} valid{half}.{left}{often}"


def remedy(runs: pl.DataFrame) -> str:
    """What to do about invalid runs: measure those again whose reasons come and go. Empty if no run is invalid.

    Args:
        runs: rows of the summary, all of them.
    """
    rejected = runs.filter(invalid())["reasons"].to_list()
    lasting = [any(CHECKS[read_code(code)[0]].lasting for code in codes or ()) for codes in rejected]
    return _LASTING if lasting and all(lasting) else AGAIN if lasting else ""


def accept_others(runs: Iterable[Mapping[str, Any]]) -> str:
    """How a study accepts a machine that others use; empty where no run is invalid for that alone.

    Args:
        runs: `reasons` and `host_other_share` of each.
    """
    shares = [run["host_other_share"] for run in runs if others_alone(run["reasons"])]
    how = "`thresholds: {{ other_share: {limit} }}` in the study's file lets such runs count, and measures none again"
    return _accepted(max(shares), how) if shares else ""


def others_alone(codes: Iterable[str]) -> bool:
    """Whether others' work alone makes latencies invalid."""
    return [code.partition(":")[0] for code in codes if code.startswith(TIMES)] == ["machine.other_processes"]


def accept_option(share: float | None, limit: float) -> str:
    """How a command without a study accepts that other processes took so much of the cores' time; empty where the limit allows it, or
    nobody knows how much they took (0–1).
    """
    return "" if share is None or share <= limit else _accepted(share, "`--threshold other_share={limit}` lets such runs count")


def _accepted(share: float, how: str) -> str:
    limit = math.ceil(round(share / _STEP, 6)) * _STEP
    took = f"Other processes took up to {shown_share(share)} of the cores' time."
    if limit >= 1:
        return f"{took} Measure when they have ended."
    return f"{took} If they cannot be ended, {how.format(limit=f'{limit:g}')}; their latencies then hold the others' work too."


def alike(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """Reasons with how often each occurs, the most frequent first; those that differ in numbers alone are one, with their ranges."""
    groups: dict[str, list[str]] = {}
    for reason in reasons:
        groups.setdefault(_NUMBER.sub(lambda found: ":" if ":" in found[0] else "#", reason), []).append(reason)
    ranked = sorted(groups.values(), key=len, reverse=True)
    return [(_ranges(found), len(found)) for found in ranked]


def _ranges(reasons: list[str]) -> str:
    """One text for reasons that differ in numbers alone: `12–40 %` for `12 %` and `40 %`."""
    numbers = [_NUMBER.findall(reason) for reason in reasons]
    texts = iter([_range(column) for column in zip(*numbers, strict=True)])
    return _NUMBER.sub(lambda _: next(texts), reasons[0])


def _range(numbers: tuple[str, ...]) -> str:
    low, high = (pick(numbers, key=lambda text: text if ":" in text else float(text.replace(",", ""))) for pick in (min, max))
    return low if low == high else f"{low}–{high}"


def changed_thresholds(thresholds: Thresholds) -> str:
    """Which limits of validity differ from the defaults; empty where none does."""
    usual = Thresholds()
    changed = [
        f"`{name}` {here:g} (default {default:g})"
        for name in Thresholds.model_fields
        if (here := getattr(thresholds, name)) != (default := getattr(usual, name))
    ]
    return f"The study changed limits of validity: {listed(changed)}." if changed else ""


def warnings(runs: pl.DataFrame, *, figures: int) -> list[str]:
    """What cannot be trusted and what failed, if anything, as a terminal's lines.

    Args:
        runs: the summary table, with the columns of the verdict. figures: how many files of figures there are.
    """
    rejected = runs.filter(invalid())
    lines = []
    if not figures:
        lines.append("No figure: these runs answer no figure's question (most need two levels of load). The report lists them.")
    if rejected.height:
        lines.append(f"{first_line(runs)} The report and `{BENCH} runs` say why. {remedy(runs)}")
    if allowed := accept_others(rejected.to_dicts()):
        lines.append(allowed)
    failing = runs.filter(pl.col("failed") > 0)
    if failing.height:
        lines.append(
            f"Requests failed in {count_text(failing.height, 'run', of=runs.height)}. That is the server's answer to its load, and "
            "makes no run invalid; the report says how many, and how."
        )
    return lines

"""A comparison's verdict on a metric as a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.records.columns import METRICS

__all__ = ["percent_text", "sentence", "size_text"]

_UNITS = {"concurrency": " in flight", "request_rate": " requests/s", "time_scale": " times the speed"}
Rows = Sequence[Mapping[str, Any]]


def sentence(rows: Rows) -> str:
    """What the rows of one metric show, such as `output tokens/s: from 12 in flight on −48.0 %, worse; elsewhere no difference seen`.

    Args:
        rows: those that `effects` has of a metric: levels, regions, trends and all.
    """
    whole = rows[-1]
    title = METRICS[whole["metric"]].title
    if whole["low"] is None and all(row["low"] is None for row in rows):
        return f"{title}: {percent_text(whole['ratio'])}, without a measure of the noise"
    clauses = [clause for side in ("worse", "better") if (clause := _clause(rows, side))]
    parts = [*clauses, *_trends(rows, bool(clauses))]
    if not parts:
        return f"{title}: no difference seen; one of {size_text(whole['could_see'])} or more would have been"
    quiet = [row for row in rows if row["scope"] == "level" and row["verdict"] == "no evidence"]
    rest = ["elsewhere no difference seen"] if clauses and quiet and whole["pooled"] == "no evidence" else []
    return f"{title}: {'; '.join([*parts, *rest])}"


def _clause(rows: Rows, side: str) -> str | None:
    """Where the candidate is better or worse, and by how much."""
    whole = rows[-1]
    levels = [row for row in rows if row["scope"] == "level"]
    sure = [row for row in levels if row["verdict"] == side]
    if sure and len(sure) < len(levels):
        ratio = math.exp(sum(math.log(row["ratio"]) for row in sure) / len(sure))
        return f"{_where(sure, levels)} {percent_text(ratio)}, {side}"
    if whole["pooled"] == side or (sure and len(levels) == len(sure)):
        return f"{percent_text(whole['ratio'])} over all loads ({_range(whole)}), {side}"
    regions = [row for row in rows if row["scope"] == "region" and row["verdict"] == side]
    told = [f"{row['region']} ({_loads(row['loads'])}) {percent_text(row['ratio'])}" for row in regions]
    return f"{', '.join(told)}, {side}" if told else None


def _where(sure: Rows, levels: Rows) -> str:
    """The levels in words: an end of the ladder, or each of them."""
    workloads = list(dict.fromkeys(row["workload"] for row in levels))
    told = []
    for workload in workloads:
        ladder = sorted(row["level"] for row in levels if row["workload"] == workload)
        unit = next(_UNITS.get(row["axis"], "") for row in levels if row["workload"] == workload)
        mine = sorted(row["level"] for row in sure if row["workload"] == workload)
        if not mine:
            continue
        if mine == ladder and len(ladder) > 1:
            place = "at every load"
        elif len(mine) > 1 and mine == ladder[-len(mine) :]:
            place = f"from {mine[0]:g}{unit} on"
        elif len(mine) > 1 and mine == ladder[: len(mine)]:
            place = f"up to {mine[-1]:g}{unit}"
        else:
            place = f"at {_loads(mine)}{unit}"
        told.append(f"{workload} {place}" if len(workloads) > 1 else place)
    return ", ".join(told)


def _trends(rows: Rows, differs: bool) -> list[str]:
    """Whether the difference changes with the load."""
    told = []
    for row in rows:
        if row["scope"] == "trend" and row["verdict"] != "no evidence":
            pooled = math.log(rows[-1]["ratio"])
            word = "grows" if math.log(row["ratio"]) * pooled > 0 else "shrinks"
            what = f"the difference {word} with the load" if differs else "the ratio to the baseline changes with the load"
            several = len([1 for other in rows if other["scope"] == "trend"]) > 1
            told.append(f"{row['workload'] + ': ' if several else ''}{what} ({percent_text(row['ratio'])} a doubling)")
    return told


def _loads(loads: Sequence[float]) -> str:
    return ", ".join(f"{load:g}" for load in loads)


def _range(row: Mapping[str, Any]) -> str:
    return f"{percent_text(row['low']).removesuffix(' %')} to {percent_text(row['high'])}"


def size_text(share: float) -> str:
    """A share as a percentage of two digits, such as `9.5 %` or `210 %`."""
    return f"{float(f'{100 * share:.2g}'):g} %"


def percent_text(ratio: float) -> str:
    """A ratio as a difference, such as `−4.1 %`."""
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "−")

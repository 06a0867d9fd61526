"""Runs at one load alone, in words: they show that load, and no limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.axes import AXES
from bench.words.answer import AGAIN, Answer, shortened
from bench.words.loads import load_text
from bench.work import unit_of

__all__ = ["answer", "line"]

Row = Mapping[str, Any]


def answer(rows: Sequence[Row]) -> Answer:
    """What runs at a single load show. Args: rows: of the summary table."""
    invalid = [row for row in rows if not row["valid"]]
    return Answer(
        name="alone",
        question="What do workloads that were measured at one load show?",
        lines=shortened([line(row) for row in rows]),
        sure=("One load shows neither a limit nor what more load would bring.",),
        do=(*([AGAIN] if invalid else []), "Measure two levels or more of a workload to learn what an instance sustains."),
    )


def line(row: Row) -> str:
    """One run: its load, and its throughput and latency where they can be trusted."""
    name = f"{row['deployment']} · {row['workload']}, {load_text(row['level'], AXES[row['axis']].unit)}"
    if row.get("repeat") and row["repeat"] > 1:
        name += f" (repeat {row['repeat']})"
    if not row["valid"]:
        return f"{name}: not known, the run is invalid."
    found = [
        shape.format(row[column])
        for column, shape in (
            ("throughput_tokens_per_s", "{:,.3g} " + unit_of([row.get("work")]) + "/s"),
            ("ttft_p50_s", "TTFT P50 {:.3g} s"),
            ("tpot_p50_s", "TPOT P50 {:.3g} s"),
            ("e2e_p50_s", "E2E P50 {:.3g} s"),
        )
        if row[column] is not None
    ]
    return f"{name}: {', '.join(found) or 'nothing was measured'}."

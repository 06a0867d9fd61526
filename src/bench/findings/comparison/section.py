"""The comparison with the study's baseline, as a section of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.findings.comparison import words
from bench.findings.comparison.compare import Comparison
from bench.findings.comparison.effects import metric_of
from bench.report.blocks import Cell, Column, Items, Section, Table, Text

if TYPE_CHECKING:
    from bench.findings.view import View

_MARKS = {"better": "▲ ", "better at some loads": "▲ ", "worse": "▼ ", "worse at some loads": "▼ "}
_COLUMNS = (
    Column("deployment", "deployment"),
    Column("metric", "metric"),
    Column("over all loads", "difference"),
    Column("interval", "interval"),
    Column("verdict", "verdict"),
    Column("smallest visible difference", "could_see"),
    Column("levels", "levels", "%d"),
    Column("sessions", "sessions", "%d"),
)
_MEANING = (
    "Runs of the same workload, load, session and repeat, in pairs; invalid ones are left out. “Better” and “worse” are "
    "verdicts at 95 % confidence: of 100 comparisons in which nothing differs, 95 show neither. “At some loads”: at a level, "
    "but not over all loads together. Smallest visible difference: over all loads, one of that size is found in 8 of 10 "
    "cases; a smaller one may exist."
)


def section(view: View) -> Section:
    found = view.results.comparisons
    baseline = next(iter(view.runs.filter("baseline")["deployment"]), None)
    rows = [
        {"deployment": name, **cells}
        for name, each in found.items()
        for cells in [_effect(each, row) for row in each.overall.to_dicts()]
        or [{"metric": "no pair of runs whose latencies compare"}]
    ]
    if not rows:
        return Section("comparison", f"Against {baseline}", [])
    again = [name for name, each in found.items() if each.replica]
    notes = [_MEANING]
    notes += [f"{baseline} was measured again as {', '.join(again)}, where any difference is chance."] if again else []
    notes += [words.ESTIMATED] if any(each.estimates for each in found.values()) else []
    beside = [
        Items(told, name) for name, each in found.items() if (told := [f"{kind}: {text}" for kind, text in words.beside(each)])
    ]
    return Section(
        "comparison",
        f"Against {baseline}",
        [Table(f"Differences from {baseline}", _COLUMNS, rows), Text(" ".join(notes)), *beside],
    )


def _effect(found: Comparison, row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a metric over all loads."""
    seen = "–" if row["could_see"] is None else words.size_text(row["could_see"])
    return {
        "metric": metric_of(row["metric"]).title,
        "difference": Cell(words.estimated_percent(found, row), row["ratio"]),
        "interval": Cell(words.interval_text(row["low"], row["high"]), row["low"]),
        "verdict": f"{_MARKS.get(row['verdict'], '')}{row['verdict']}",
        "could_see": Cell(seen, row["could_see"]),
        "levels": row["levels"],
        "sessions": row["sessions"],
    }

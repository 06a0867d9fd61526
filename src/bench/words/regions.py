"""The turning points of a throughput curve in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bench.analysis.regions import FEWEST_LEVELS, PROPORTIONAL
from bench.errors import count_text, shown_share
from bench.words.loads import between_text
from bench.words.templates import filled

Row = Mapping[str, Any]
Name = Literal["equilibrium", "saturation"]
POINTS: tuple[Name, ...] = ("equilibrium", "saturation")
_PROPORTIONAL = shown_share(PROPORTIONAL)
# By what hides the point, or by what the curve does there.
_WHY = {
    ("equilibrium", "noise"): "runs vary by {noise:share}, which hides where growth stops being proportional",
    ("equilibrium", "disorder"): f"throughput a request falls below {_PROPORTIONAL} and is above it again: no single point",
    ("equilibrium", "above"): "still proportional at {top}, the highest load",
    ("equilibrium", "below"): "no level is significantly in the proportional part",
    ("saturation", "noise"): "runs vary by {noise:share}, which hides whether it still rises, is flat or falls",
    ("saturation", "disorder"): "throughput falls and is higher again beyond: no single peak",
    ("saturation", "above"): "still rising at {top}, the highest load",
    ("saturation", "below"): "it falls from the lowest level on",
    ("saturation", "peak"): "then it falls",
    ("saturation", "flat"): "then flat: no fall seen",
}


def turning_point(row: Row, name: Name, unit: str = "") -> str:
    """A point for a cell of a table, such as `48 (40 to 56), then it falls`, or why there is none.

    Args:
        row: of `bench.analysis.saturation`. unit: of the load, where nothing beside it says it.
    """
    after = f" {unit}" if unit else ""
    kind, at, low, high = (row[f"{name}_{key}"] for key in ("kind", "at", "low", "high"))
    why = _why(row, name, after)
    if at is not None:
        return f"{at:.3g}{after} ({between_text(low, high) or 'no bounds'})" + (f", {why}" if why else "")
    if low is None and high is None:
        return why
    return f"{'at or below' if kind == 'below' else 'above'} {low if high is None else high:g}{after} ({why})"


def _why(row: Row, name: Name, after: str) -> str:
    """What the curve does there, or what hides the point. Args: after: a load, its unit."""
    why = row[f"{name}_why"]
    if why == "uncounted":
        return "the server does not count tokens"
    if why == "few":
        only = f"only {count_text(row['levels'], 'level')}" if row["levels"] else "no level"
        return f"{only} with a valid run, and {FEWEST_LEVELS} are needed"
    return filled(_WHY.get((name, why or row[f"{name}_kind"]), ""), {**row, "top": f"{row['top']:g}{after}"})

"""The turning points of a throughput curve, and how it compares with KV cache and queue, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bench.analysis.regions import FEWEST_LEVELS, PROPORTIONAL
from bench.errors import count_text, listed, shown_share
from bench.words.loads import between_text
from bench.words.templates import filled

Row = Mapping[str, Any]
Name = Literal["equilibrium", "saturation"]
POINTS: tuple[Name, ...] = ("equilibrium", "saturation")
_SIGNALS = {"throughput": "throughput", "kv_cache": "KV cache", "queue": "queue"}
_PROPORTIONAL = shown_share(PROPORTIONAL)
# By what hides the point, or by what the curve does there.
_WHY = {
    ("equilibrium", "noise"): "runs vary by {noise:share}, which hides where growth stops being proportional",
    (
        "equilibrium",
        "disorder",
    ): f"throughput a request falls below {_PROPORTIONAL} at {{fell:g}} and is above it at {{back:g}}",
    ("equilibrium", "above"): "still proportional at {top}, the highest load",
    ("equilibrium", "below"): "no level is significantly in the proportional part",
    ("saturation", "noise"): "runs vary by {noise:share}, which hides whether it still rises, is flat or falls",
    ("saturation", "disorder"): "throughput has fallen at {fell:g} and is higher again beyond {back:g}: no single peak",
    ("saturation", "above"): "still rising at {top}, the highest load",
    ("saturation", "below"): "it falls from the lowest level on",
    ("saturation", "peak"): "then it falls",
    ("saturation", "flat"): "then flat: no fall seen",
}


def turning_point(row: Row, name: Name, unit: str = "") -> str:
    """A point for a cell of a table, such as `48 (40 to 56), then it falls`, or why there is none.

    Args:
        row: of `bench.analysis.regions` or `saturation`. unit: of the load, where nothing beside it says it.
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
    numbers = {**row, "fell": row[f"{name}_fell_at"], "back": row[f"{name}_back_at"], "top": f"{row['top']:g}{after}"}
    return filled(_WHY.get((name, why or row[f"{name}_kind"]), ""), numbers)


def signals(row: Row) -> str:
    """How throughput, KV cache and queue compare, such as `queue before KV cache`.

    Args:
        row: of `bench.analysis.saturation`.
    """
    groups = [listed([_SIGNALS[name] for name in group.split(" and ")]) for group in row["signals"]]
    if len(groups) > 1:
        return " before ".join(groups)
    if not groups or " and " not in row["signals"][0]:
        return f"{groups[0]} alone" if groups else "none"
    return f"{groups[0]} {'agree' if row['signals_agree'] else 'cannot be told apart'}"

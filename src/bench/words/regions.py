"""The turning points of a throughput curve, and how it compares with KV cache and queue, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bench.analysis.regions import FEWEST_LEVELS, PROPORTIONAL
from bench.words.loads import between_text

__all__ = ["POINTS", "Name", "signals", "turning_point"]

Row = Mapping[str, Any]
Name = Literal["equilibrium", "saturation"]
POINTS: tuple[Name, ...] = ("equilibrium", "saturation")
_SIGNALS = {"throughput": "throughput", "kv_cache": "KV cache", "queue": "queue"}
_HIDDEN = {
    "equilibrium": "where growth stops being proportional",
    "saturation": "whether it still rises, is flat or falls",
}


def turning_point(row: Row, name: Name) -> str:
    """A point for a cell of a table, such as `48 (40 to 56), then it falls`, or why there is none.

    Args:
        row: of `bench.analysis.regions` or `saturation`.
    """
    kind, at, low, high = (row[f"{name}_{key}"] for key in ("kind", "at", "low", "high"))
    why = _why(row, name)
    if at is not None:
        return f"{at:.3g} ({between_text(low, high) or 'no bounds'})" + (f", {why}" if why else "")
    if low is None and high is None:
        return why
    return f"{'at or below' if kind == 'below' else 'above'} {low if high is None else high:g} ({why})"


def _why(row: Row, name: Name) -> str:
    """What the curve does there, or what hides the point."""
    kind, why = row[f"{name}_kind"], row[f"{name}_why"]
    if why == "few":
        return f"only {row['levels']} level{'' if row['levels'] == 1 else 's'} with a valid run, and {FEWEST_LEVELS} are needed"
    if why == "noise":
        return f"runs vary by {100 * row['noise']:.0f} %, which hides {_HIDDEN[name]}"
    if why == "disorder":
        fell, back = row[f"{name}_fell_at"], row[f"{name}_back_at"]
        if name == "equilibrium":
            return f"throughput a request falls below {100 * PROPORTIONAL:g} % at {fell:g} and is above it at {back:g}"
        return f"throughput has fallen at {fell:g} and is higher again beyond {back:g}: no single peak"
    match kind:
        case "above":
            return f"still {'proportional' if name == 'equilibrium' else 'rising'} at {row['top']:g}, the highest level"
        case "below":
            return (
                "no level is significantly in the proportional part"
                if name == "equilibrium"
                else "it falls from the lowest level on"
            )
        case "peak":
            return "then it falls"
        case "flat":
            return "then flat: no fall seen"
    return ""


def signals(row: Row) -> str:
    """How throughput, KV cache and queue compare, such as `queue before KV cache`.

    Args:
        row: of `bench.analysis.saturation`.
    """
    names = [_SIGNALS[name] for name in row["signals"]]
    if len(names) < 2:
        return f"{names[0]} alone" if names else "none"
    if row["signals_agree"]:
        return f"{', '.join(names[:-1])} and {names[-1]} agree"
    return " before ".join(names)

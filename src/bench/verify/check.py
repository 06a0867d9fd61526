"""What was checked, what differs, and what could not be checked; and when two files hold the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_series_equal

from bench.errors import shown

__all__ = ["CLOSE", "Check", "number_that_differs", "same_picture", "same_specification", "table_difference"]

CLOSE = 1e-9  # by which results of other processors may differ, relative to themselves
# Over all charts of a process, Altair numbers what a chart has no name for, and Vega the clips of an SVG.
_NUMBERED = re.compile(r"\b(param_|view_|layer_|concat_)(\d+)\b")
_CLIPS = re.compile(r"\b(clip|gradient_)(\d+)\b")


@dataclass
class Check:
    """One kind of thing that is checked.

    Attributes:
        what: it is. checked: how many were compared, those that differ too.
        differs: each with its file and what is wrong. unchecked: what could not be checked, and why.
    """

    what: str
    checked: int = 0
    differs: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def compare(self, difference: str | None) -> None:
        """Count a comparison, and keep what it found."""
        self.checked += 1
        if difference:
            self.differs.append(difference)


def number_that_differs(stored: Mapping[str, Any], again: Mapping[str, Any]) -> str | None:
    """The first entry of two summaries that differs, in words; None where they are the same."""
    for key in {**stored, **again}:
        if key not in stored or key not in again:
            return f"{key} is {'missing' if key in again else 'no number of a summary'}"
        if not _same(stored[key], again[key]):
            return f"{key} is {shown(stored[key])}, and the raw records give {shown(again[key])}"
    return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers and (math.isclose(one, other, rel_tol=CLOSE) or (math.isnan(one) and math.isnan(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def table_difference(stored: Path, again: Path) -> str | None:
    """How the table in a Parquet file differs from the one made again, in words; None where they are the same."""
    try:
        old, new = pl.read_parquet(stored), pl.read_parquet(again)
    except (pl.exceptions.PolarsError, OSError) as error:
        return f"not readable: {str(error).partition(chr(10))[0][:200]}"
    if old.columns != new.columns:
        return f"other columns: {', '.join(sorted({*old.columns} ^ {*new.columns})) or 'in another order'}"
    if old.height != new.height:
        return f"{old.height} rows, and the raw records give {new.height}"
    for name in new.columns:
        try:
            assert_series_equal(old[name], new[name], rel_tol=CLOSE, abs_tol=0.0)
        except AssertionError:
            return f"other values in the column {name}"
    return None


def same_specification(stored: Path, again: Path) -> bool:
    """Whether two Vega-Lite files draw the same from the same data."""
    try:
        old, new = (json.loads(_renumbered(path.read_text(encoding="utf-8"), _NUMBERED)) for path in (stored, again))
    except (OSError, ValueError, RecursionError):
        return False
    return _same(old, new)


def same_picture(stored: Path, again: Path) -> bool:
    """Whether two SVG or PNG files show the same."""
    if stored.suffix == ".png":
        return stored.read_bytes() == again.read_bytes()
    old, new = (_renumbered(path.read_text(encoding="utf-8", errors="replace"), _CLIPS) for path in (stored, again))
    return old == new


def _renumbered(text: str, names: re.Pattern[str]) -> str:
    """A text whose numbered names count from 1, in the order of their appearance."""
    numbers: dict[str, int] = {}
    return names.sub(lambda found: f"{found[1]}{numbers.setdefault(found[0], len(numbers) + 1)}", text)

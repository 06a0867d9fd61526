"""What was checked, what differs, and what could not be checked; and when two files hold the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_series_equal

from bench.errors import shown
from bench.runs.files import UNREADABLE, read_object

_CLOSE = 1e-9  # by which results of other processors may differ, relative to themselves
_FRACTION = re.compile(r"(-?\d+\.\d+(?:[eE][+-]?\d+)?)")


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


@dataclass
class Tables:
    """Compares tables and summaries with those made again, by the columns that both have.

    Attributes:
        check: counts what differs.
        made_by: the sources that made the stored ones, where they are not these. Their columns may be others; then the whole cannot be
            checked.
    """

    check: Check
    made_by: str | None = None
    _otherwise: dict[str, list[Path]] = field(default_factory=dict)

    def compare(self, stored: Path, again: Path) -> None:
        """Compare two files of one kind: JSON, CSV or Parquet."""
        try:
            columns, difference = _COMPARED[stored.suffix](stored, again)
        except (*UNREADABLE, pl.exceptions.PolarsError) as error:
            columns, difference = None, f"not readable: {str(error).partition(chr(10))[0][:200]}"
        if difference or (columns and self.made_by is None):
            self.check.compare(f"{stored}: {difference or columns}")
        elif columns:
            self._otherwise.setdefault(columns, []).append(stored)
        else:
            self.check.compare(None)

    def done(self) -> Check:
        """The check, with what could not be checked."""
        for columns, files in self._otherwise.items():
            count = "1 file" if len(files) == 1 else f"{len(files)} files, such as"
            self.check.unchecked.append(
                f"{count} {files[0]}: made by {self.made_by}, with {columns}; what both have is the same"
            )
        return self.check


def _other_columns(stored: Collection[str], again: Collection[str]) -> str | None:
    if list(stored) == list(again):
        return None
    return f"other columns: {shown(', '.join(sorted({*stored} ^ {*again})) or 'in another order', 400)}"


def _summaries(stored: Path, again: Path) -> tuple[str | None, str | None]:
    """How two summaries differ in their entries, and in the first number that does, in words; None where they are the same."""
    old, new = read_object(stored, constants=True), json.loads(again.read_text(encoding="utf-8"))
    differing = next((key for key in old if key in new and not same_numbers(old[key], new[key])), None)
    return (
        _other_columns(sorted(old), sorted(new)),
        differing and f"{differing} is {shown(old[differing])}, and the raw records give {shown(new[differing])}",
    )


def same_numbers(one: Any, other: Any) -> bool:
    """Whether two structures are the same, numbers to 1 in 10⁹."""
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers and (math.isclose(one, other, rel_tol=_CLOSE) or (math.isnan(one) and math.isnan(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_numbers(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_numbers, one, other))
    return type(one) is type(other) and bool(one == other)


def _parquet(stored: Path, again: Path) -> tuple[str | None, str | None]:
    return _tables(pl.read_parquet(stored), pl.read_parquet(again))


def _csv(stored: Path, again: Path) -> tuple[str | None, str | None]:
    """How two CSV files differ in their columns, and otherwise; with the same columns they are compared byte by byte."""
    old, new = (pl.read_csv(path, infer_schema=False) for path in (stored, again))
    columns, difference = _tables(old, new)
    otherwise = difference is None and columns is None and stored.read_bytes() != again.read_bytes()
    return columns, "not what the raw records give" if otherwise else difference


def _tables(old: pl.DataFrame, new: pl.DataFrame) -> tuple[str | None, str | None]:
    """How two tables differ in their columns, and otherwise, in words; None where they are the same."""
    columns = _other_columns(old.columns, new.columns)
    if old.height != new.height:
        return columns, f"{old.height} rows, and the raw records give {new.height}"
    for name in (name for name in new.columns if name in old.columns):
        try:
            assert_series_equal(old[name], new[name], rel_tol=_CLOSE, abs_tol=0.0)
        except AssertionError:
            return columns, f"other values in the column {name}"
    return columns, None


_COMPARED = {".json": _summaries, ".csv": _csv, ".parquet": _parquet}


def same_text(one: str, other: str) -> bool:
    """Whether two texts are the same, numbers with a decimal point in them to 1 in 10⁹."""
    if one == other:
        return True
    pieces, others = _FRACTION.split(one), _FRACTION.split(other)
    return (
        len(pieces) == len(others)
        and pieces[::2] == others[::2]
        and all(math.isclose(float(x), float(y), rel_tol=_CLOSE) for x, y in zip(pieces[1::2], others[1::2], strict=True))
    )

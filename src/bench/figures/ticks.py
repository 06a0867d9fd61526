"""Ticks of logarithmic axes: round numbers, none of which lies outside its axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import altair as alt

_MOST = 8  # most ticks of an axis
_FEWEST = 3  # fewest ticks with which a logarithmic axis can be read
_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, both above 0: as few kinds of digits as give three ticks or more."""
    found: list[float] = []
    for digits in _STEPS:
        found = [
            float(f"{digit}e{power}")
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for digit in digits
            if low <= digit * 10.0**power <= high
        ]
        if len(found) >= _FEWEST:
            return found[:: math.ceil(len(found) / _MOST)]
    return found if len(found) > 1 else _even(low, high)


def _even(low: float, high: float) -> list[float]:
    """Evenly spaced ticks, for an axis too short for round numbers."""
    step = 10.0 ** math.floor(math.log10(high - low)) if high > low else high
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{n * step:.6g}") for n in range(first, last + 1)] or [low]


def ticked(values: Iterable[float], low: float, high: float, **more: Any) -> alt.Axis:
    """An axis from `low` to `high` with its ticks at those of `values` that lie on it.

    One outside is drawn at the end of a clamped scale, with a number that is not that end's, and beside the frame of any other. Of an
    axis that zooms, labels that leave the frame are left out.
    """
    return alt.Axis(values=[value for value in values if low <= value <= high], labelBound=_BEYOND, **more)


_BEYOND = 12  # half of a label at the end of an axis (pixels)

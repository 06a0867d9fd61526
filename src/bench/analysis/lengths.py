"""How latency grows with the length of prompts and answers: a line through the runs, with what it does not know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.statistics import CONFIDENCE, student_t

__all__ = ["Line", "line"]

_FEWEST = 3


@dataclass(frozen=True)
class Line:
    """y = intercept + slope · x, by least squares.

    Attributes:
        slope, intercept: in the units of y a unit of x, and of y. slope_half, intercept_half: half of their 95 % intervals.
        r_squared: share of the variance of y that the line explains (0–1).
        bend: by how much y at the longest x lies above (or below) where it would be without the quadratic term of a parabola through
            the same points, as a share of the parabola's y there; None where the term's 95 % interval holds 0, or four points or fewer.
        curved_intercept: that parabola's y at 0; None likewise.
        n: points.
    """

    slope: float
    slope_half: float
    intercept: float
    intercept_half: float
    r_squared: float
    bend: float | None
    curved_intercept: float | None
    n: int


def line(runs: pl.DataFrame, x: str, y: str) -> Line | None:
    """The line through the valid runs; None below three lengths.

    Intervals are Student's for n − 2 degrees of freedom, and take the runs' errors as independent and alike.

    Args:
        runs: summary rows with `valid`, `x` and `y`.

    Source: ordinary least squares (`scipy.stats.linregress`).
    """
    known = runs.filter("valid").drop_nulls([x, y])
    if known[x].n_unique() < _FEWEST:
        return None
    from scipy.stats import linregress  # noqa: PLC0415 - half a second that few need

    xs, ys = known[x].cast(pl.Float64).to_numpy(), known[y].to_numpy()
    fit = linregress(xs, ys)
    t = student_t(known.height - 2, CONFIDENCE)
    bend, curved_intercept = _bend(xs, ys)
    return Line(
        slope=float(fit.slope),
        slope_half=t * float(fit.stderr),
        intercept=float(fit.intercept),
        intercept_half=t * float(fit.intercept_stderr),
        r_squared=float(fit.rvalue) ** 2,
        bend=bend,
        curved_intercept=curved_intercept,
        n=known.height,
    )


def _bend(xs: Any, ys: Any) -> tuple[float | None, float | None]:
    """A parabola's bend and intercept (see `Line`), where its quadratic term differs from 0."""
    if len(xs) < _FEWEST + 2:
        return None, None
    import numpy as np  # noqa: PLC0415 - as above

    (square, _, intercept), covariance = np.polyfit(xs, ys, 2, cov=True)
    if abs(square) <= student_t(len(xs) - 3, CONFIDENCE) * math.sqrt(covariance[0, 0]):
        return None, None
    longest = float(max(xs))
    return float(square) * longest**2 / float(np.polyval(np.polyfit(xs, ys, 2), longest)), float(intercept)

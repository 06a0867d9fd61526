"""How latency grows with the length of prompts and answers: a line or a parabola through the runs, with its intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.statistics import CONFIDENCE, student_t

__all__ = ["Line", "Parabola", "line"]

_FEWEST = 3


@dataclass(frozen=True)
class Parabola:
    """y = intercept + slope · x + square · x², by least squares.

    Attributes:
        square, slope, intercept: in the units of y a unit of x squared, a unit of x, and of y. square_half, slope_half,
            intercept_half: half of their 95 % intervals.
        r_squared: share of the variance of y that the parabola explains (0–1).
        longest: the longest x. bend: the quadratic term's share of the parabola's y there.
    """

    square: float
    square_half: float
    slope: float
    slope_half: float
    intercept: float
    intercept_half: float
    r_squared: float
    longest: float
    bend: float

    def at(self, x: pl.Expr) -> pl.Expr:
        """Its y at `x`."""
        return self.intercept + self.slope * x + self.square * x**2


@dataclass(frozen=True)
class Line:
    """y = intercept + slope · x, by least squares.

    Attributes:
        slope, intercept: in the units of y a unit of x, and of y. slope_half, intercept_half: half of their 95 % intervals.
        r_squared: share of the variance of y that the line explains (0–1).
        parabola: the one through the same points, where it fits better than chance would make it; None where the 95 % interval of its
            quadratic term holds 0, or there are four points or fewer.
        n: points.
    """

    slope: float
    slope_half: float
    intercept: float
    intercept_half: float
    r_squared: float
    parabola: Parabola | None
    n: int

    def at(self, x: pl.Expr) -> pl.Expr:
        """y at `x`, of the parabola where there is one: it is the fit to show."""
        return self.parabola.at(x) if self.parabola else self.intercept + self.slope * x


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
    return Line(
        slope=float(fit.slope),
        slope_half=t * float(fit.stderr),
        intercept=float(fit.intercept),
        intercept_half=t * float(fit.intercept_stderr),
        r_squared=float(fit.rvalue) ** 2,
        parabola=_parabola(xs, ys),
        n=known.height,
    )


def _parabola(xs: Any, ys: Any) -> Parabola | None:
    """The parabola through the points, where its quadratic term differs from 0."""
    if len(xs) < _FEWEST + 2:
        return None
    import numpy as np  # noqa: PLC0415 - as above

    terms, covariance = np.polyfit(xs, ys, 2, cov=True)
    square, slope, intercept = map(float, terms)
    t = student_t(len(xs) - 3, CONFIDENCE)
    square_half, slope_half, intercept_half = (t * math.sqrt(covariance[i, i]) for i in range(3))
    if abs(square) <= square_half:
        return None
    longest = float(max(xs))
    left = float(np.sum((ys - np.polyval(terms, xs)) ** 2) / np.sum((ys - ys.mean()) ** 2))
    bend = square * longest**2 / float(np.polyval(terms, longest))
    return Parabola(square, square_half, slope, slope_half, intercept, intercept_half, 1 - left, longest, bend)

"""How latency grows with the length of prompts and answers: a line or a parabola through the runs, with its intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from bench.statistics import CONFIDENCE, FEWEST_POINTS, student_t

FEWEST_BENT = FEWEST_POINTS + 2  # fewest points of a parabola; derived: two degrees of freedom for its error


@dataclass(frozen=True)
class Line:
    """y = intercept + slope · x, by least squares; of a parabola + square · x².

    Attributes:
        slope, intercept, square: in the units of y a unit of x, of y, and of y a unit of x squared. slope_half, intercept_half,
            square_half: half of their 95 % intervals.
        r_squared: share of the variance of y that it explains (0–1).
        n: points. longest: the longest x.
        parabola: the one through the same points, where it fits better than chance would make it; None where the 95 % interval of its
            quadratic term holds 0, or there are four points or fewer.
    """

    slope: float
    slope_half: float
    intercept: float
    intercept_half: float
    r_squared: float
    n: int
    longest: float
    square: float = 0.0
    square_half: float = 0.0
    parabola: Line | None = None

    @property
    def bend(self) -> float:
        """The quadratic term's share of its y at the longest x."""
        bent = self.square * self.longest**2
        return bent / (self.intercept + self.slope * self.longest + bent)

    def at(self, x: pl.Expr) -> pl.Expr:
        """y at `x`, of the parabola where there is one: it is the fit to show."""
        return self.parabola.at(x) if self.parabola else self.intercept + self.slope * x + self.square * x**2


def line(runs: pl.DataFrame, x: str, y: str) -> Line | None:
    """The line through the valid runs; None below three lengths.

    Intervals are Student's for n − 2 degrees of freedom (n − 3 of a parabola), and take the runs' errors as independent and alike.

    Args:
        runs: summary rows with `valid`, `x` and `y`.

    Source: ordinary least squares (`numpy.polyfit`).
    """
    known = runs.filter("valid").drop_nulls([x, y])
    if known[x].n_unique() < FEWEST_POINTS:
        return None
    xs, ys = known[x].cast(pl.Float64).to_numpy(), known[y].to_numpy()
    parabola = _fit(xs, ys, 2) if len(xs) >= FEWEST_BENT else None
    bends = parabola is not None and abs(parabola.square) > parabola.square_half
    return replace(_fit(xs, ys, 1), parabola=parabola if bends else None)


def _fit(xs: Any, ys: Any, degree: int) -> Line:
    import numpy as np  # noqa: PLC0415 - a tenth of a second that few need

    terms, covariance = np.polyfit(xs, ys, degree, cov=True)
    halves = student_t(len(xs) - degree - 1, CONFIDENCE) * np.sqrt(np.diag(covariance))
    left, whole = float(np.sum((ys - np.polyval(terms, xs)) ** 2)), float(np.sum((ys - ys.mean()) ** 2))
    (intercept, slope, *square), (intercept_half, slope_half, *square_half) = (each[::-1].tolist() for each in (terms, halves))
    return Line(
        slope,
        slope_half,
        intercept,
        intercept_half,
        1 - left / whole if whole else 0.0,
        len(xs),
        float(max(xs)),
        *square,
        *square_half,
    )

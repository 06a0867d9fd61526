"""How latency grows with the length of prompts and answers: a line through the runs, with what it does not know."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from bench.analysis.repeats import CONFIDENCE, student_t

__all__ = ["Line", "line"]

_FEWEST = 3


@dataclass(frozen=True)
class Line:
    """y = intercept + slope · x, by least squares.

    Attributes:
        slope, intercept: in the units of y a unit of x, and of y. slope_half, intercept_half: half of their 95 % intervals.
        r_squared: share of the variance of y that the line explains (0–1).
        n: points.
    """

    slope: float
    slope_half: float
    intercept: float
    intercept_half: float
    r_squared: float
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

    fit = linregress(known[x].to_numpy(), known[y].to_numpy())
    t = student_t(known.height - 2, CONFIDENCE)
    return Line(
        slope=float(fit.slope),
        slope_half=t * float(fit.stderr),
        intercept=float(fit.intercept),
        intercept_half=t * float(fit.intercept_stderr),
        r_squared=float(fit.rvalue) ** 2,
        n=known.height,
    )

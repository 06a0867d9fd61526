"""Lengths in a log: percentiles, how prompts and answers go together, and a distribution that is like them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.beside.traffic.log import Floats, Whole

PERCENTILES = (10, 25, 50, 75, 90, 95, 99)  # those of lengths that are printed; convention
_JUDGED = (50, 90, 99)  # percentiles by which a fit is judged; convention
_CLOSE = 0.05  # distance at which a fit passes, whatever the number of requests; convention
_BY_CHANCE = (
    0.886  # distance × √requests that 5 % of true fits exceed; source: Lilliefors, 1967, for a normal with fitted mean and sd
)
_FEWEST = 20  # fewest lengths of a fit; convention
_WIDEST = 10.0  # widest sigma that is looked for; convention
_LEAST_WITHIN = 0.02  # least share of the fit between its ends; derived: a configuration refuses 0.01


@dataclass(frozen=True)
class Fit:
    """A lognormal distribution between the shortest and the longest length.

    Attributes:
        median, sigma: before draws beyond the ends are repeated. low, high: the ends (tokens).
        distance: the largest difference between the shares of requests that are no longer than a length, of the log and of the fit
            (Kolmogorov and Smirnov's, 0–1). errors: by percentile, how far the fit is off (0.1: a tenth too long).
        close: whether the distance is what chance makes of so many requests, or at most 0.05.
    """

    median: float
    sigma: float
    low: int
    high: int
    distance: float
    errors: dict[int, float]
    close: bool


def percentiles(lengths: Whole) -> dict[str, float]:
    """Least, percentiles, highest and mean; percentiles are lengths that occur."""
    found = np.quantile(lengths, [p / 100 for p in PERCENTILES], method="inverted_cdf")
    return {
        "min": float(lengths.min()),
        **{f"p{p}": float(x) for p, x in zip(PERCENTILES, found, strict=True)},
        "max": float(lengths.max()),
        "mean": float(lengths.mean()),
    }


def correlation(prompt: Whole, output: Whole) -> float | None:
    """Spearman's rank correlation of prompts and answers; None where either is constant."""
    if min(len(np.unique(lengths)) for lengths in (prompt, output)) < 2:
        return None
    return float(pl.select(pl.corr(pl.Series(prompt), pl.Series(output), method="spearman")).item())


def fitted(lengths: Whole) -> Fit | None:
    """The lognormal under which the lengths are likeliest, each a whole number and none beyond the ends.

    Returns:
        None where there are fewer than 20, or of one length.
    """
    from scipy.optimize import minimize  # noqa: PLC0415 - half a second that other commands need not pay
    from scipy.special import ndtr, ndtri  # noqa: PLC0415

    values, counts = np.unique(lengths, return_counts=True)
    if len(lengths) < _FEWEST or len(values) < 2:
        return None
    low, high = int(values[0]), int(values[-1])
    below, above = np.log(values - 0.5), np.log(values + 0.5)

    def share(at: Sequence[float], x: Floats) -> Floats:
        found: Floats = ndtr((x - at[0]) / max(1e-6, at[1]))
        return found

    def unlikely(at: Sequence[float]) -> float:
        if not (math.log(low) <= at[0] <= math.log(high) and 1e-6 < at[1] < _WIDEST):
            return math.inf  # no configuration could say it
        inside = float(share(at, above[-1:])[0] - share(at, below[:1])[0])
        if inside < _LEAST_WITHIN:
            return math.inf
        return -float(counts @ np.log(np.maximum(share(at, above) - share(at, below), 1e-300))) + len(lengths) * math.log(
            inside
        )

    logs = np.log(lengths)
    best = minimize(
        unlikely,
        [float(np.median(logs)), max(0.01, float(logs.std()))],
        method="Nelder-Mead",
        options={"xatol": 1e-4, "fatol": 1e-3},
    ).x
    base, inside = share(best, below[:1])[0], share(best, above[-1:])[0] - share(best, below[:1])[0]
    difference = (share(best, above) - base) / inside - counts.cumsum() / len(lengths)
    before = (share(best, below) - base) / inside - (counts.cumsum() - counts) / len(lengths)
    distance = float(max(np.abs(difference).max(), np.abs(before).max()))
    here = np.quantile(lengths, [p / 100 for p in _JUDGED], method="inverted_cdf")
    there = np.exp(best[0] + best[1] * ndtri(base + inside * np.array([p / 100 for p in _JUDGED])))
    return Fit(
        median=float(math.exp(best[0])),
        sigma=float(best[1]),
        low=low,
        high=high,
        distance=distance,
        errors={p: float(y / x - 1) for p, x, y in zip(_JUDGED, here, there, strict=True)},
        close=distance <= max(_CLOSE, _BY_CHANCE / math.sqrt(len(lengths))),
    )

"""What a log says of its traffic: how long prompts and answers are, a distribution that is like them, and how both go together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.beside.traffic.arrivals import Burstiness, Window, burstiness, hours, windows
from bench.beside.traffic.log import Floats, Log, Whole

PERCENTILES = (10, 25, 50, 75, 90, 95, 99)  # those of lengths that are printed; convention
_JUDGED = (50, 90, 99)  # percentiles by which a fit is judged; convention
_CLOSE = 0.05  # distance at which a fit passes, whatever the number of requests; convention
# distance × √requests that 5 % of true fits exceed; source: Lilliefors, 1967, for a normal with fitted mean and sd
_BY_CHANCE = 0.886
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
    found = np.quantile(lengths, [0, *(p / 100 for p in PERCENTILES), 1], method="inverted_cdf").tolist()
    names = ["min", *(f"p{p}" for p in PERCENTILES), "max"]
    return dict(zip(names, map(float, found), strict=True)) | {"mean": float(lengths.mean())}


def correlation(prompt: Whole, output: Whole) -> float | None:
    """Spearman's rank correlation of prompts and answers; None where either is constant."""
    if min(np.ptp(prompt), np.ptp(output)) == 0:
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
    edges = np.log([values - 0.5, values + 0.5])

    def shares(at: Sequence[float]) -> tuple[Floats, Floats, float, float]:
        """Of the normal below each value's edges, and below the least value and between the ends."""
        below, above = ndtr((edges - at[0]) / max(1e-6, at[1]))
        return below, above, float(below[0]), float(above[-1] - below[0])

    def unlikely(at: Sequence[float]) -> float:
        below, above, _, inside = shares(at)
        if not (math.log(low) <= at[0] <= math.log(high) and 1e-6 < at[1] < _WIDEST and inside >= _LEAST_WITHIN):
            return math.inf  # no configuration could say it
        return -float(counts @ np.log(np.maximum(above - below, 1e-300))) + len(lengths) * math.log(inside)

    logs = np.log(lengths)
    start = [float(np.median(logs)), max(0.01, float(logs.std()))]
    best = minimize(unlikely, start, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-3}).x
    below, above, base, inside = shares(best)
    ranks = counts.cumsum() / len(lengths)
    off = (above - base) / inside - ranks, (below - base) / inside - (ranks - counts / len(lengths))
    distance = float(np.abs(off).max())
    judged = np.array(_JUDGED) / 100
    errors = np.exp(best[0] + best[1] * ndtri(base + inside * judged)) / np.quantile(lengths, judged, method="inverted_cdf") - 1
    return Fit(
        median=float(math.exp(best[0])),
        sigma=float(best[1]),
        low=low,
        high=high,
        distance=distance,
        errors=dict(zip(_JUDGED, errors.tolist(), strict=True)),
        close=distance <= max(_CLOSE, _BY_CHANCE / math.sqrt(len(lengths))),
    )


@dataclass(frozen=True)
class Lengths:
    """Lengths of prompts or of answers (tokens). Attributes: percentiles: with `min`, `max` and `mean`. fit: None without one."""

    percentiles: dict[str, float]
    fit: Fit | None


@dataclass(frozen=True)
class Described:
    """A log's traffic.

    Attributes:
        requests: how many. span_s: from the first to the last. rate: requests/s, None where all came at once. windows, burstiness,
            hours: as `arrivals` has them. prompts, outputs: lengths. correlation: of both, by ranks; None where one is constant.
    """

    requests: int
    span_s: float
    rate: float | None
    windows: Sequence[Window]
    burstiness: Burstiness | None
    hours: Sequence[float | None] | None
    prompts: Lengths
    outputs: Lengths
    correlation: float | None


def describe(log: Log) -> Described:
    """All that a log says."""
    return Described(
        requests=log.count,
        span_s=log.span_s,
        rate=log.rate,
        windows=windows(log),
        burstiness=burstiness(log),
        hours=hours(log),
        prompts=Lengths(percentiles(log.prompt_tokens), fitted(log.prompt_tokens)),
        outputs=Lengths(percentiles(log.output_tokens), fitted(log.output_tokens)),
        correlation=correlation(log.prompt_tokens, log.output_tokens),
    )

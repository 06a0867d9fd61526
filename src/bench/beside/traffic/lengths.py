"""Lengths in a log: percentiles, and a distribution that is like them; what prompts and answers, and prompts among themselves share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.beside.traffic.log import Floats, Whole

PERCENTILES = (10, 25, 50, 75, 90, 95, 99)  # those of lengths that are printed; convention
BLOCK = 64  # characters of a block; derived: vLLM's 16 tokens, at four characters of English each
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


def shared_share(texts: Iterable[str]) -> float | None:
    """Share of the characters that a prefix cache without bounds would find, whole blocks from the beginning on (0–1).

    Args:
        texts: in order of arrival.

    Returns:
        None where they have no characters.
    """
    seen: set[int] = set()
    found = characters = 0
    for text in texts:
        characters += len(text)
        ahead = 0  # of the blocks so far, so that one is found only behind the same others
        for at in range(0, len(text) - BLOCK + 1, BLOCK):
            ahead = hash((ahead, text[at : at + BLOCK]))
            found += BLOCK * (ahead in seen)
            seen.add(ahead)
    return found / characters if characters else None


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

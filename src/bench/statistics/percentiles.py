"""Percentiles and shares of requests, each with the bound or the interval that its number of samples can carry. Definitions:
docs/reference/metrics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.statistics.textbook import CONFIDENCE

# confidence of a percentile's upper bound; source: MLPerf's LoadGen, early stopping, with whose bounds these compare
BOUND_CONFIDENCE = 0.99
# standard deviations below the binomial's mean from which its mass is left out of the sum; derived: it is under e^-36
_DEVIATIONS = 12


def place(count: int, share: float) -> int:
    """The place, from 0 on, of a percentile among `count` ascending values: of the smallest one that at least `share` of them do not
    exceed (nearest rank). Whatever is measured, predicted or compared has this one. Args: share: in thousandths (0–1).
    """
    return max(1, -(-count * round(share * 1000) // 1000)) - 1


def percentile(values: pl.Series, share: float) -> float | None:
    """The percentile of the values that are known, as `place` has it; None without any."""
    known = values.drop_nulls().sort()
    return None if known.is_empty() else float(known[place(len(known), share)])


def percentile_of(values: pl.Expr, share: float) -> pl.Expr:
    """The same of a column; null without values."""
    known = values.drop_nulls().sort()
    ranks = (known.len().cast(pl.Int64) * round(share * 1000) + 999) // 1000
    return known.get(ranks.clip(1) - 1, null_on_oob=True)


def upper_bound(values: pl.Series, share: float) -> float | None:
    """A value that the true percentile does not exceed, at `BOUND_CONFIDENCE`; None where there are too few values for a bound.

    It is the t-th largest value, t = `bound_rank`. It holds for independent samples of one distribution, whatever its shape.

    Args:
        values: samples; nulls are left out. share: of the percentile (0–1).

    Source: the early stopping of MLPerf's LoadGen (docs/early_stopping.md of mlcommons/endpoints), tolerance 0.
    """
    known = values.drop_nulls().sort(descending=True)
    rank = bound_rank(len(known), share)
    return float(known[rank - 1]) if rank else None


@lru_cache(maxsize=4096)
def bound_rank(n: int, share: float) -> int:
    """The largest t ≥ 1 with BinomialCDF(t; n, 1 − share) ≤ 1 − `BOUND_CONFIDENCE`; 0 if no t does.

    Of n samples, the number above the true percentile is binomial with probability 1 − share. Where the t-th largest sample lies
    below the percentile, fewer than t samples exceed it: at most as probable as the CDF at t − 1, which is below that.
    (LoadGen's rule asks the CDF at t, one rank more than that needs; it is kept, so that its numbers are comparable.)

    Args:
        n: samples. share: of the percentile (0–1, exclusive).
    """
    over = 1 - share
    count = max(0, math.floor(n * over - _DEVIATIONS * math.sqrt(n * over * share)))
    log_ways = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
    mass = math.exp(log_ways + count * math.log(over) + (n - count) * math.log(share))
    cumulated = mass
    while cumulated <= 1 - BOUND_CONFIDENCE and count < n:
        mass *= (n - count) / (count + 1) * over / share
        count += 1
        cumulated += mass
    return max(0, count - 1)


def tail_text(value: float | None, bound: float | None) -> str:
    """A tail as it may be printed: `0.512 (≤ 0.530)` with its bound, `~0.512` where it has none, `–` without a value, `failed` where so
    many requests failed that it is infinite.
    """
    if value is None:
        return "–"
    if math.isinf(value):
        return "failed"
    return f"~{value:.3f}" if bound is None else f"{value:.3f} (≤ {bound:.3f})"


RATE_BATCHES = 10  # batches of the window behind the error of its rate; convention
_BATCH = 20  # fewest requests of the parts in which a run's misses are counted; tuned: benchmarks.capacity


@dataclass(frozen=True)
class Share:
    """A share of requests that missed a limit.

    Attributes:
        misses, requests: counted. spread: over-dispersion, the variance of the counts ÷ that of independent requests, 1 or more.
    """

    misses: float
    requests: float
    spread: float = 1.0

    @classmethod
    def of(cls, runs: Sequence[npt.NDArray[np.bool_]]) -> Share:
        """The share over all `runs`, each of which has one value a request in the order of sending: whether it missed.

        A queue makes neighbours alike, and a slow round all of its requests: clustered misses count as fewer independent ones. The
        over-dispersion is Pearson's χ² ÷ its degrees of freedom, over parts of runs or over whole runs, whichever is larger.

        Source: McCullagh and Nelder, Generalized Linear Models (1989), 4.5, over-dispersion by clustering.
        """
        misses, requests = sum(int(run.sum()) for run in runs), sum(len(run) for run in runs)
        share = misses / requests if requests else 0.0
        if share in (0.0, 1.0):
            return cls(misses, requests)
        parts = [part for run in runs for part in np.array_split(run, max(1, min(RATE_BATCHES, len(run) // _BATCH)))]
        return cls(misses, requests, max(1.0, _spread(parts, share), _spread(runs, share)))

    @property
    def share(self) -> float:
        """Misses ÷ requests; 0 without any."""
        return self.misses / self.requests if self.requests else 0.0

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Interval of the true share: Clopper and Pearson's (1934) of `requests` ÷ `spread` independent requests."""
        from scipy.special import betaincinv  # noqa: PLC0415 - 0.4 s, which a figure without SLOs need not pay

        if not self.requests:
            return 0.0, 1.0
        n, k = self.requests / self.spread, self.misses / self.spread
        tail = (1 - confidence) / 2
        low = float(betaincinv(k, n - k + 1, tail)) if k else 0.0
        high = float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
        return low, high


def _spread(parts: Sequence[npt.NDArray[np.bool_]], share: float) -> float:
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return 1.0
    counts, sizes = np.array([part.sum() for part in parts]), np.array([len(part) for part in parts])
    return float(((counts - sizes * share) ** 2 / (sizes * share * (1 - share))).sum() / (len(parts) - 1))

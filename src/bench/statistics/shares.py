"""The interval of a share of requests, in runs whose requests resemble their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.statistics.textbook import CONFIDENCE

RATE_BATCHES = 10  # batches of the window behind the error of its rate; convention
_BATCH = 20  # fewest requests of the parts in which a run's misses are counted; tuned: benchmarks.capacity
_CLEARLY = 0.9  # share of what is allowed below which more requests can show that it is met; convention


@dataclass(frozen=True)
class Share:
    """A share of requests that missed a limit.

    Attributes:
        misses, requests: counted. spread: over-dispersion, the variance of the counts ÷ that of independent requests, 1 or more.
        within: the same of parts of runs about their own run's share: by neighbours alone, without differences between runs.
    """

    misses: float
    requests: float
    spread: float = 1.0
    within: float = 1.0

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
        split = [np.array_split(run, max(1, min(RATE_BATCHES, len(run) // _BATCH))) for run in runs]
        spread = max(_spread([part for parts in split for part in parts], share), _spread(runs, share))
        own = [
            (_spread(parts, float(run.mean())), len(parts) - 1)
            for run, parts in zip(runs, split, strict=True)
            if 0 < run.sum() < len(run)
        ]
        freedom = sum(each for _, each in own)
        within = sum(each * known for each, known in own) / freedom if freedom else 1.0
        return cls(misses, requests, max(1.0, spread), max(1.0, within))

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


def requests_needed(allowed: float, *, share: float = 0.0, spread: float = 1.0) -> int | None:
    """Requests that would show a true share of `share` to be within `allowed`; None where it is not clearly below.

    Args:
        share: that misses. spread: as `Share` has it.
    """
    if share > _CLEARLY * allowed:
        return None
    n = 16
    while n < 10**7:
        if Share(round(share * n), n, spread).interval()[1] <= allowed:
            return n
        n = max(n + 1, int(n * 1.05))
    return None

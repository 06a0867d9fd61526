"""How sure a share of requests is, counted in runs whose requests resemble their neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.statistics import CONFIDENCE

__all__ = ["Share", "lent", "near", "requests_needed"]

_BATCH = 20  # requests, at least, of the parts in which a run's misses are counted
_PARTS = 10  # of a run, at most
_NEAR = math.log(1.2)  # loads within a fifth lend each other their requests
_FEWEST_NEAR = 3


@dataclass(frozen=True)
class Share:
    """A share of requests that missed a limit.

    Attributes:
        misses, requests: counted. spread: variance of the counts ÷ that of independent requests, 1 or more.
    """

    misses: float
    requests: float
    spread: float = 1.0

    @classmethod
    def of(cls, runs: Sequence[npt.NDArray[np.bool_]]) -> Share:
        """The share over all `runs`, each of which has one value a request in the order of sending: whether it missed.

        A queue makes neighbours alike, and a slow round all of its requests: of misses in clusters as many count as of fewer
        independent ones. The spread is Pearson's χ² ÷ its degrees of freedom, over parts of runs and over whole runs, whichever is
        larger.

        Source: McCullagh and Nelder, Generalized Linear Models (1989), 4.5, over-dispersion by clustering.
        """
        misses, requests = sum(int(run.sum()) for run in runs), sum(len(run) for run in runs)
        share = misses / requests if requests else 0.0
        if share in (0.0, 1.0):
            return cls(misses, requests)
        parts = [part for run in runs for part in np.array_split(run, max(1, min(_PARTS, len(run) // _BATCH)))]
        return cls(misses, requests, max(1.0, _spread(parts, share), _spread(runs, share)))

    @property
    def share(self) -> float:
        """Misses ÷ requests; 0 without any."""
        return self.misses / self.requests if self.requests else 0.0

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Between which shares the true one lies: Clopper and Pearson's interval of `requests` ÷ `spread` independent requests."""
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


def near(loads: npt.NDArray[np.float64], at: float) -> npt.NDArray[np.float64]:
    """How much each load counts at another (0–1): tricube weights over a fifth; both are logarithms."""
    weights: npt.NDArray[np.float64] = np.clip(1 - (np.abs(loads - at) / _NEAR) ** 3, 0, None) ** 3
    return weights


def lent(loads: Sequence[float], shares: Sequence[float], weights: Sequence[float]) -> tuple[list[float], list[float]]:
    """The share of misses at each load with what loads near it show, and the requests that it then rests on.

    A straight line of the share's logarithm of odds over the logarithm of the load, fitted at each load to those within a fifth of it
    (tricube weights), never falling. A load that has none near it keeps its own. Half a miss is added to each side, so that 0 of n
    has odds.

    Args:
        shares: of misses (0–1). weights: requests behind each.

    Source: Cleveland, Robust locally weighted regression (JASA 74, 1979); Cox, Analysis of Binary Data (1970), for the half miss.
    """
    x, n = np.log(np.asarray(loads)), np.asarray(weights, dtype=float)
    p = (np.asarray(shares) * n + 0.5) / (n + 1)
    odds, precision = np.log(p / (1 - p)), (n + 1) * p * (1 - p)
    found, rests = [], []
    for at, own, share in zip(x, n, shares, strict=True):
        close = near(x, at)
        weight = close * precision
        centre = float(weight @ x / weight.sum())
        spread = float(weight @ (x - centre) ** 2)
        if np.count_nonzero(close) < _FEWEST_NEAR or spread == 0:
            found.append(float(share))
            rests.append(float(own))
            continue
        slope = max(0.0, float(weight @ ((x - centre) * odds)) / spread)
        level = float(weight @ odds / weight.sum()) + slope * (at - centre)
        found.append(1 / (1 + math.exp(-level)))
        variance = 1 / float(weight.sum()) + (float(at) - centre) ** 2 / spread
        mean = found[-1]
        rests.append(max(float(own), 1 / (variance * mean * (1 - mean))))
    return found, rests


def requests_needed(allowed: float, *, share: float = 0.0, spread: float = 1.0) -> int | None:
    """Requests after which a true share of `share` is surely not above `allowed`; None where it is not clearly below.

    Args:
        share: that misses. spread: as `Share` has it.
    """
    if share > 0.9 * allowed:
        return None
    n = 16
    while n < 10**7:
        if Share(round(share * n), n, spread).interval()[1] <= allowed:
            return n
        n = max(n + 1, int(n * 1.05))
    return None

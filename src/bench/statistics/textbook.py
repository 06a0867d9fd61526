"""Quantiles and fits from the textbooks, as scipy has them; it is imported where first used, since that takes 0.4 s."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt


def normal(confidence: float, digits: int = 2) -> float:
    """The z within which ± z holds `confidence` of a normal distribution, rounded as tables print it."""
    return round(NormalDist().inv_cdf((1 + confidence) / 2), digits)


CONFIDENCE = 0.95  # confidence of intervals and verdicts; whoever needs another level says why beside it; convention
TAIL = round((1 - CONFIDENCE) / 2, 6)  # probability beyond each end of an interval; derived
Z = normal(CONFIDENCE)  # standard errors within which `CONFIDENCE` of a normal distribution lies; derived
MEDIAN_DEVIATION = normal(0.5, 4)  # median of a normal's absolute value (standard deviations); derived
FREEDOM = 4  # degrees of freedom that what is expected counts as, beside what few data show (Smyth 2004); convention
FEWEST_POINTS = 3  # fewest points of a line with an interval; derived: through two, every line fits


@lru_cache
def student_t(freedom: float, confidence: float = CONFIDENCE) -> float:
    """The t within which ± t holds `confidence` of Student's distribution with `freedom` degrees of freedom."""
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(freedom, (1 + confidence) / 2))


@lru_cache
def variance_by_chance(freedom: int, probability: float) -> float:
    """How many times the true variance a sample's one exceeds with that probability: χ² ÷ its degrees of freedom."""
    from scipy.special import chdtri  # noqa: PLC0415

    return float(chdtri(freedom, probability)) / freedom


def f_below(ratio: float, above: float, below: float) -> float:
    """Probability that a ratio of two estimates of one variance is lower (F). Args: above, below: their degrees of freedom."""
    from scipy.special import fdtr  # noqa: PLC0415

    return float(fdtr(above, below, ratio))


def rarer_by_chance(few: int, of_few: int, more: int, of_more: int) -> float:
    """Probability that chance alone puts so few of all hits, or fewer, into the first of two samples: Fisher's exact test, one-sided.

    Args:
        few, of_few: hits in the first sample, and its size. more, of_more: the same of the second one.
    """
    from scipy.stats import hypergeom  # noqa: PLC0415 - a second, which callers without hits need not pay

    return float(hypergeom.cdf(few, of_few + of_more, few + more, of_few))


def isotonic(
    values: Sequence[float] | npt.NDArray[np.float64],
    weights: Sequence[float] | npt.NDArray[np.float64],
    *,
    rising: bool = True,
) -> npt.NDArray[np.float64]:
    """The series nearest to `values` in weighted squares that never falls, or, without `rising`, never rises.

    Args:
        values: n of them. weights: of each, above 0.

    Source: Barlow, Bartholomew, Bremner and Brunk, Statistical Inference under Order Restrictions (1972): pool adjacent violators.
    """
    from scipy.optimize import isotonic_regression  # noqa: PLC0415

    nearest: npt.NDArray[np.float64] = isotonic_regression(values, weights=weights, increasing=rising).x
    return nearest


def least(enough: Callable[[int], bool], lowest: int, near: int, most: int) -> int | None:
    """The least number from `lowest` on that is enough, as all above it are; None where `most` is not.

    Args:
        near: where to begin to look: there and just below it, then between doublings.
    """
    low, high = lowest - 1, near
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(most, 2 * high)
    if low < lowest < high and not enough(high - 1):
        return high
    return low + 1 + bisect_left(range(low + 1, high), True, key=enough)

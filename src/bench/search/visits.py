"""A visit to a candidate: what a search on one start of its server shows, ended early once the candidate has lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.runs.searches import Visit
from bench.search.placing import Aim, Answer, Placing, Step, interval, place
from bench.search.race import Ask, Rival
from bench.statistics.limit import Belief, believe
from bench.statistics.observation import Observation
from bench.statistics.textbook import CONFIDENCE

if TYPE_CHECKING:
    from bench.search.search import Found


_BEYOND = 2.0  # factor beyond the measured loads at which a limit counts that none of them brackets; convention
_ONE_SIGMA = 0.841  # share of a normal distribution below one standard deviation; derived


def placing_of(ask: Ask) -> Placing:
    """How the search of a visit places its runs."""
    return partial(_against, ask.rival) if ask.rival else place


def _against(rival: Rival, seen: Sequence[Observation], aim: Aim) -> Answer | Step:
    """The next run, or the answer: the highest load within the SLOs, unless it lies below a rival's (95 %)."""
    if seen and _beaten(belief := believe(seen), rival) >= CONFIDENCE:
        return interval(belief, aim, "lost", max(each.level for each in seen))
    return place(seen, aim)


def visit_of(ask: Ask, found: Found, began: float, seconds: float) -> Visit:
    """What a search on one start showed. Args: began, seconds: as `Visit` has them."""
    answer, seen = found.answer, found.observations
    shows = seen and answer.why not in ("below", "alone")
    middle, error = _normal(believe(seen), [each.load for each in seen]) if shows else (None, None)
    return Visit(
        deployment=ask.candidate,
        phase=ask.phase,
        round=ask.round,
        middle=middle,
        error=error,
        low=answer.low,
        high=answer.high if math.isfinite(answer.high) else None,
        why=answer.why,
        runs=len(found.looks),
        load_s=round(found.seconds, 1),
        began=began,
        seconds=round(seconds, 1),
    )


def _beaten(belief: Belief, rival: Rival) -> float:
    """The probability that a limit lies below a rival's."""
    from scipy.special import ndtr  # noqa: PLC0415

    with np.errstate(divide="ignore"):
        behind = (math.log(rival.rate) - np.log(belief.limits)) / rival.error
    return float(np.mean(ndtr(behind)))


def _normal(belief: Belief, loads: Sequence[float]) -> tuple[float, float]:
    """Median of a limit's logarithm, and half of what holds the middle 68 %. Args: loads: that were measured.

    Limits beyond them count as twice the highest, or half the lowest: that much is known of one that no run brackets.
    """
    least, most = min(loads) / _BEYOND, max(loads) * _BEYOND
    low, middle, high = (min(most, max(least, belief.quantile(share))) for share in (1 - _ONE_SIGMA, 0.5, _ONE_SIGMA))
    error = math.log(high / low) / 2
    return math.log(middle), error if least < middle < most else max(error, math.log(_BEYOND) / 2)

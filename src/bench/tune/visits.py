"""A visit to a candidate: what a search on one start of its server shows, ended early once the candidate has surely lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.analysis.belief import Belief, believe
from bench.records.tuning import Visit
from bench.search.placing import Aim, Answer, Step, answer_so_far
from bench.search.targets import SloTarget
from bench.statistics import CONFIDENCE
from bench.tune.race import Ask, Rival

if TYPE_CHECKING:
    from bench.search.search import Found, Look

__all__ = ["AgainstRival", "target_of", "visit_of"]

_WIDEST = 2.0  # standard error of a logarithm of which nothing is known; convention
_ONE = 0.841  # share of a normal distribution below one standard deviation; derived


@dataclass(frozen=True)
class AgainstRival(SloTarget):
    """The highest load within the SLOs, unless it surely lies below a rival's."""

    rival: Rival

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        seen = self.observations(looks, aim)
        if seen and _beaten(believe(seen), self.rival) >= CONFIDENCE:
            return answer_so_far(seen, aim, "lost")
        return super().place(looks, aim)


def target_of(ask: Ask) -> SloTarget:
    """What the search of a visit looks for."""
    return AgainstRival(ask.rival) if ask.rival else SloTarget()


def visit_of(ask: Ask, found: Found, seconds: float) -> Visit:
    """What a search on one start showed. Args: seconds: that the visit took, with start and end of the server."""
    answer, seen = found.answer, found.observations
    middle, error = (None, None) if answer.why in ("below", "alone") or not seen else _normal(believe(seen))
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
        seconds=round(seconds, 1),
    )


def _beaten(belief: Belief, rival: Rival) -> float:
    """The probability that a limit lies below a rival's."""
    from scipy.special import ndtr  # noqa: PLC0415

    with np.errstate(divide="ignore"):
        behind = (math.log(rival.rate) - np.log(belief.limits)) / rival.error
    return float(np.mean(ndtr(behind)))


def _normal(belief: Belief) -> tuple[float, float]:
    """Mean and standard deviation of the normal distribution nearest to a limit's logarithm, by its quartiles' like."""
    low, middle, high = (belief.quantile(share) for share in (1 - _ONE, 0.5, _ONE))
    known = [each for each in (low, middle, high) if each > 0 and math.isfinite(each)]
    if not known:
        return 0.0, _WIDEST
    at = middle if middle in known else known[0]
    sides = [abs(math.log(each / at)) for each in known if each != at]
    sure = len(known) == 3
    return math.log(at), min(_WIDEST, max(sides, default=_WIDEST) if sure else max([*sides, _WIDEST / 2]))

"""What a comparison can see, and how many sessions a wanted difference takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from bench.runs.columns import METRICS
from bench.statistics.textbook import least, student_t

#: Probability of a false verdict on a deployment, over all metrics: of all loads together, and of any level; convention: 5 % in all,
#: most of it for what is hardest to show.
WRONG = {"all": 0.03, "level": 0.02}
# probability with which a planned comparison finds its effect; source: Cohen, Statistical Power Analysis for the Behavioral Sciences,
# 1988
POWER = 0.8
_MOST_SESSIONS = 100  # most sessions that a plan asks for; convention
EXPECTED = sum(metric.source != "gpus" for metric in METRICS.values())  # that a study without GPUs has
# factor on the error for what the model leaves out: successive pairs of sessions are somewhat alike; measured:
# docs/explanation/comparing.md, without it 66 to 78 % of planned effects were found
_MARGIN = 1.1
FAR = 10.0  # factor beyond which the noise is too large to say anything; convention
# threshold of Student's t beyond which the limit of large thresholds stands for the exact power; derived: 0.1 % apart, and the exact
# one takes minutes for a threshold of a million
_FAR_T = 1000.0
_MANY = 200  # degrees of freedom from which Student's t is a normal one; convention


@dataclass(frozen=True)
class Error:
    """What a mean ln ratio may be off by: its standard deviation, and the degrees of freedom behind it."""

    deviation: float
    freedom: float

    def and_also(self, other: Error) -> Error:
        """Both together; degrees of freedom as Satterthwaite has them."""
        one, two = self.deviation**2, other.deviation**2
        if not two:
            return self
        return Error(math.sqrt(one + two), (one + two) ** 2 / (one**2 / self.freedom + two**2 / max(other.freedom, 1.0)))

    def half_width(self, wrong: float) -> float:
        """What it stays within but for a share `wrong` of cases, by Student's t."""
        return self.deviation * student_t(self.freedom, 1 - wrong)


@dataclass(frozen=True)
class Noise:
    """How far results differ without an effect, relative.

    Attributes:
        run: standard deviation of one run. spread: of the ratio between two sessions that were measured next to each other.
    """

    run: float
    spread: float


def smallest_difference(error: Error, wrong: float) -> float:
    """The smallest relative difference that a test finds in 8 of 10 cases: e^(1.1 · error · ν) − 1.

    ν is the noncentrality at which Student's t passes its threshold with that power. Args: wrong: the p-value below which there is a
    verdict.
    """
    return math.expm1(min(50.0, _MARGIN * error.deviation * _away(error.freedom, wrong)))


@lru_cache
def _away(freedom: float, wrong: float) -> float:
    from scipy.special import chdtri, nctdtrinc  # noqa: PLC0415 - 0.4 s, which jobs without a comparison need not pay

    bar = student_t(freedom, 1 - wrong)
    if freedom >= _MANY:
        return bar + student_t(freedom, 2 * POWER - 1)
    if bar > _FAR_T:
        return bar * math.sqrt(float(chdtri(freedom, 1 - POWER)) / freedom)
    return float(nctdtrinc(freedom, 1 - POWER, bar))


def visible(noise: Noise, sessions: int, levels: int, repeats: float, metrics: int = EXPECTED) -> float:
    """The smallest relative difference over all levels that so many sessions find in 8 of 10 cases.

    Args:
        sessions: of each side, four or more. levels, repeats: of each session. metrics: that are judged.
    """
    deviation = math.sqrt((noise.spread**2 + 2 * noise.run**2 / (repeats * levels)) / sessions)
    return smallest_difference(Error(deviation, sessions - 1.0), WRONG["all"] / metrics)


def sessions_for(difference: float, noise: Noise, levels: int, repeats: float, metrics: int = EXPECTED) -> int | None:
    """The fewest sessions of each side that find a relative `difference` over all levels in 8 of 10 cases; None above 100.

    It is found between doublings, since more sessions always see more.
    """
    return least(lambda sessions: visible(noise, sessions, levels, repeats, metrics) <= difference, 4, 4, _MOST_SESSIONS)

"""How far apart the requests of an open loop are due. A kind of arrival is an entry here, and nothing else knows it by name."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Gaps:
    """A kind of gaps between arrivals.

    Attributes:
        meaning: in a few words, for the configuration's reference. shaped: whether the workload's `burstiness` shapes them.
        draw: the next gap, 1 in the mean, from a source of random numbers and the burstiness (1 where the workload has none), which is
            mean² ÷ variance of the gaps.
    """

    meaning: str
    shaped: bool
    draw: Callable[[random.Random, float], float]


def _poisson(source: random.Random, _burstiness: float) -> float:
    return -math.log(1.0 - source.random())


def _gamma(source: random.Random, burstiness: float) -> float:
    return source.gammavariate(burstiness, 1.0 / burstiness)


GAPS: dict[str, Gaps] = {
    "constant": Gaps("equal gaps", False, lambda *_: 1.0),
    "poisson": Gaps("exponential gaps", False, _poisson),
    "gamma": Gaps("gaps of `burstiness`", True, _gamma),
}

"""How far apart the requests of an open loop are due. A kind of arrival is a function here, and nothing else knows it by name."""

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


GAPS: dict[str, Gaps] = {}


def _gaps(meaning: str, *, shaped: bool = False) -> Callable[[Callable[[random.Random, float], float]], None]:
    """Enter a function that draws gaps under its name."""

    def enter(draw: Callable[[random.Random, float], float]) -> None:
        GAPS[draw.__name__] = Gaps(meaning, shaped, draw)

    return enter


@_gaps("equal gaps")
def constant(_source: random.Random, _burstiness: float) -> float:
    return 1.0


@_gaps("exponential gaps")
def poisson(source: random.Random, _burstiness: float) -> float:
    return -math.log(1.0 - source.random())


@_gaps("gaps of `burstiness`", shaped=True)
def gamma(source: random.Random, burstiness: float) -> float:
    return source.gammavariate(burstiness, 1.0 / burstiness)

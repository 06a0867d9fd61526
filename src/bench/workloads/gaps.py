"""How far apart the requests of an open loop are due. A kind of arrival is an entry here, and nothing else knows it by name."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import NamedTuple


class Gaps(NamedTuple):
    """A kind of gaps between arrivals.

    Attributes:
        meaning: in a few words, for the configuration's reference. draw: the next gap, 1 in the mean, from a source of random numbers
            and the workload's `burstiness` (1 where it has none), which is mean² ÷ variance of the gaps.
        shaped: whether `burstiness` shapes them.
    """

    meaning: str
    draw: Callable[[random.Random, float], float]
    shaped: bool = False


GAPS: dict[str, Gaps] = {
    "constant": Gaps("equal gaps", lambda *_: 1.0),
    "poisson": Gaps("exponential gaps", lambda source, _: -math.log(1.0 - source.random())),
    "gamma": Gaps("gaps of `burstiness`", lambda source, shape: source.gammavariate(shape, 1.0 / shape), shaped=True),
}

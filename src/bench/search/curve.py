"""The throughput of a search's runs over their loads, and what its targets share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bench.analysis.belief import Floats
from bench.analysis.blocks import FEWEST_SESSIONS
from bench.analysis.levels import LEAST_NOISE
from bench.analysis.observation import NEARBY, Excess, Observation
from bench.search.placing import Aim, Answer, Step, level_of

if TYPE_CHECKING:
    from bench.search.search import Look

_NOTHING = 0.01  # share of the highest tokens/s that counts as none; convention
NOISE = 0.02  # relative noise of a run whose own error is not known; convention
_FEWEST_PAIRS = FEWEST_SESSIONS - 1  # fewest degrees of freedom of a measured noise; derived: as many as four sessions have

Ints = npt.NDArray[np.int64]
Rounds = tuple[int | None, ...]
Levels = dict[float, tuple[float, float]]  # of each load, ascending: mean of the logarithm, and its standard error


@dataclass(frozen=True)
class Curve:
    """Throughput of the runs that show one.

    Attributes:
        load, log, error: of each run: its level, the logarithm of its tokens/s on a machine as fast as usual, and its standard error.
        requests: of each. round: of each, as its observation has it. index: its place among all runs, most of which show a throughput.
    """

    load: Floats
    log: Floats
    error: Floats
    requests: Ints
    round: Rounds
    index: Ints

    @classmethod
    def of(cls, looks: Sequence[Look]) -> Curve:
        """Of runs that could be judged."""
        tokens = [look.row.get("steady_tokens_per_s") if look.observation else None for look in looks]
        most = max((each for each in tokens if each), default=None)
        shows = [most is not None and each is not None for each in tokens]
        judged = [look for look, known in zip(looks, shows, strict=True) if known]
        # Where all requests fail, throughput has fallen.
        rate = np.array([(look.row["steady_tokens_per_s"] or _NOTHING * (most or 0.0)) / look.speed for look in judged])
        error = np.array([look.row.get("steady_error") or NOISE for look in judged])
        load, requests = (
            np.array([look.load for look in judged]),
            np.array([look.row["requests"] for look in judged], dtype=int),
        )
        rounds = tuple(look.observation.round if look.observation else None for look in judged)
        return cls(load, np.log(rate), error, requests, rounds, np.flatnonzero(shows))

    def __len__(self) -> int:
        return len(self.load)

    @property
    def noise(self) -> float:
        """Standard deviation of a run's logarithm: by repeats, once there are enough, else by the runs' own errors."""
        loads, at = np.unique(self.load, return_inverse=True)
        free = len(self) - len(loads)
        if free >= _FEWEST_PAIRS:
            means = np.bincount(at, self.log) / np.bincount(at)
            return max(LEAST_NOISE, math.sqrt(float(np.sum((self.log - means[at]) ** 2)) / free))
        return max(LEAST_NOISE, math.sqrt(float(np.mean(self.error**2))))

    def levels(self) -> Levels:
        """Mean and standard error of each load, ascending."""
        noise = self.noise
        return {
            float(load): (float(own.mean()), noise / math.sqrt(len(own)))
            for load in np.unique(self.load)
            for own in [self.log[self.load == load]]
        }

    def count(self, load: float) -> int:
        """Runs of a load."""
        return int(np.sum(self.load == load))

    def observations(self, name: str, excesses: Floats) -> list[Observation]:
        """The runs, by their excess."""
        return [
            Observation(float(load), {name: Excess(float(value), float(error))}, int(requests), round=number)
            for load, value, error, requests, number in zip(
                self.load, excesses, self.error, self.requests, self.round, strict=True
            )
        ]


def unmeasured(curve: Curve, looks: Sequence[Look]) -> bool:
    """Whether runs were judged and none of them shows a throughput, as where the server does not count its tokens."""
    return not len(curve) and any(look.observation is not None for look in looks)


def in_places(curve: Curve, observations: Sequence[Observation], count: int) -> list[Observation | None]:
    """Observations in the places of their runs among all `count`."""
    found: list[Observation | None] = [None] * count
    for place_of, seen in zip(curve.index.tolist(), observations, strict=True):
        found[place_of] = seen
    return found


def near(curve: Curve, middle: float, but: Sequence[float] = ()) -> int:
    """Runs about the crossing. Args: but: loads that do not count."""
    if not 0 < middle < math.inf:
        return 0
    about = np.abs(np.log(curve.load / middle)) < NEARBY
    return int(np.sum(about & ~np.isin(curve.load, list(but))))


def balanced(found: Answer | Step, curve: Curve, middle: float, aim: Aim) -> Answer | Step:
    """The run to measure, or one on the other side of the middle, as far from it, if that side has fewer runs by two or more."""
    if isinstance(found, Answer) or not found.near or not 0 < middle < math.inf:
        return found
    other = middle * middle / found.load
    if aim.held:
        other = max(round(other), math.ceil(middle)) if other > middle else min(round(other), math.floor(middle))
    other = level_of(other, aim)
    if not aim.least <= other <= aim.highest or curve.count(found.load) <= curve.count(other) + 1:
        return found
    return Step(other, near=True)

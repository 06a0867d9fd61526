"""Targets of the throughput's curve: where growth stops being proportional, and where it is near its top."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bench.analysis.regions import FLAT, PROPORTIONAL
from bench.search.belief import Belief, Floats, believe_relative
from bench.search.observation import GROWTH, Excess, Observation
from bench.search.placing import Aim, Answer, Step, Why, answer_so_far, place
from bench.search.targets import Target, first_with
from bench.study.search import EQUILIBRIUM, THROUGHPUT

if TYPE_CHECKING:
    from bench.search.search import Look

__all__ = ["EquilibriumTarget", "RateTarget", "ThroughputTarget"]

_NOISE = 0.02  # of a run whose own error is not known
_LEAST_NOISE = 0.01  # by which runs of one load differ, before there are enough of them
_FEWEST_PAIRS = 3  # degrees of freedom behind the noise
_SURE = 1.64  # standard errors, 95 %, one-sided
_ENOUGH = 3  # runs of both loads: then the estimate decides whether the top is reached
_APART = 2.2  # the top and what it is held against
_FINE = 1.15  # between the best load and its neighbours
_OFTEN = 2  # runs of one end for each of the other
_ALIKE = 1.0  # standard errors: loads whose throughput counts as the top's
_NEARBY = math.log(1.3)
_GAIN = -math.log(FLAT)
_MAY_STILL_FILL = Excess(0.5, 1.0)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Curve:
    """Throughput of the runs that show one.

    Attributes:
        load, log, error: of each run: its level, the logarithm of its tokens/s on a machine as fast as usual, and its standard error.
        requests: of each. index: its place among all runs, most of which show a throughput.
    """

    load: Floats
    log: Floats
    error: Floats
    requests: Ints
    index: Ints

    @classmethod
    def of(cls, looks: Sequence[Look]) -> _Curve:
        """Of runs that could be judged."""
        shows = [look.observation is not None and bool(look.row.get("steady_tokens_per_s")) for look in looks]
        judged = [look for look, known in zip(looks, shows, strict=True) if known]
        rate = np.array([look.row["steady_tokens_per_s"] / look.speed for look in judged])
        error = np.array([look.row.get("steady_error") or _NOISE for look in judged])
        load, requests = (
            np.array([look.load for look in judged]),
            np.array([look.row["requests"] for look in judged], dtype=int),
        )
        return cls(load, np.log(rate), error, requests, np.flatnonzero(shows))

    def __len__(self) -> int:
        return len(self.load)

    @property
    def noise(self) -> float:
        """Standard deviation of a run's logarithm: by repeats, once there are enough, else by the runs' own errors."""
        loads, at = np.unique(self.load, return_inverse=True)
        free = len(self) - len(loads)
        if free >= _FEWEST_PAIRS:
            means = np.bincount(at, self.log) / np.bincount(at)
            return max(_LEAST_NOISE, math.sqrt(float(np.sum((self.log - means[at]) ** 2)) / free))
        return max(_LEAST_NOISE, math.sqrt(float(np.mean(self.error**2))))

    def levels(self) -> dict[float, tuple[float, float]]:
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
            Observation(float(load), {name: Excess(float(value), float(error))}, int(requests))
            for load, value, error, requests in zip(self.load, excesses, self.error, self.requests, strict=True)
        ]


class EquilibriumTarget(Target):
    """The lowest load at which a request gets less than 80 % of the throughput that one at the lowest load gets. Closed loops alone."""

    name = EQUILIBRIUM

    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:
        curve = _Curve.of(looks)
        return _spread(curve, curve.observations(self.name, self._excesses(curve, aim)), len(looks))

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        curve = _Curve.of(looks)
        if not curve.count(aim.lowest):
            return Step(aim.lowest, near=False)
        belief = self._belief(curve, aim)
        found = _balanced(first_with(place(self.observations(looks, aim), aim, belief), aim), curve, belief.middle, aim)
        if isinstance(found, Step) and found.near and curve.count(aim.lowest) < _near(curve, belief.middle):
            return Step(aim.lowest, near=False)  # the measure of all others
        return found if isinstance(found, Step) else self._proportional(found, aim)

    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        curve = _Curve.of(looks)
        if not curve.count(aim.lowest):
            return Answer(0.0, 0.0, math.inf, why)
        found = first_with(answer_so_far(self.observations(looks, aim), aim, why, self._belief(curve, aim)), aim)
        assert isinstance(found, Answer)
        return found

    def _excesses(self, curve: _Curve, aim: Aim) -> Floats:
        each = curve.log - np.log(curve.load)
        alone = each[curve.load == aim.lowest]
        return (float(alone.mean()) if len(alone) else 0.0) + math.log(PROPORTIONAL) - each

    def _belief(self, curve: _Curve, aim: Aim) -> Belief:
        lowest = int(np.flatnonzero(curve.load == aim.lowest)[0])
        return believe_relative(
            curve.load, self._excesses(curve, aim), curve.error, lambda draws: draws[:, lowest] - math.log(PROPORTIONAL)
        )

    def _proportional(self, found: Answer, aim: Aim) -> Answer:
        """The answer, unless the lowest load itself may lie beyond the proportional part. One request alone is proportional."""
        if aim.lowest > 1 and found.why == "found" and found.limit <= 2 * aim.lowest:
            return Answer(0.0, 0.0, found.high, "below")
        return found


class ThroughputTarget(Target):
    """The lowest load with 90 % of the highest throughput of a closed loop.

    Loads climb until doubling one surely adds less than 11 %, or throughput falls. Then the top is looked at more closely: no load
    about it is farther than 15 % from the next. The load of a peak itself is not asked for: about it throughput is the same over
    a wide range of loads.
    """

    name = THROUGHPUT

    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:  # noqa: ARG002
        curve = _Curve.of(looks)
        return _spread(curve, curve.observations(self.name, self._excesses(curve)) if len(curve) else [], len(looks))

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        curve = _Curve.of(looks)
        if not len(curve):
            return Step(aim.start, near=False)
        levels = curve.levels()
        if step := _climb(curve, levels, aim):
            return step
        top, highest = math.exp(self._top(levels)), max(levels)
        if not _tops_out(levels):
            return Answer(highest, highest, math.inf, "above", top)
        best = max(levels, key=lambda load: levels[load][0])
        if step := _about(best, list(levels), aim):
            return step
        used, belief = self._rising(curve, best)
        found = _balanced(first_with(place(used, aim, belief), aim), curve, belief.middle, aim)
        if isinstance(found, Answer):
            return replace(found, top=top)
        plateau = self._plateau(levels)
        if found.near and sum(map(curve.count, plateau)) < _near(curve, belief.middle, plateau):
            return Step(best, near=True)
        return found

    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        curve = _Curve.of(looks)
        if not len(curve):
            return Answer(0.0, 0.0, math.inf, why)
        levels = curve.levels()
        top, highest = math.exp(self._top(levels)), max(levels)
        if not _tops_out(levels):
            return Answer(highest, 0.0, math.inf, why, top)
        used, belief = self._rising(curve, max(levels, key=lambda load: levels[load][0]))
        found = first_with(answer_so_far(used, aim, why, belief), aim)
        assert isinstance(found, Answer)
        return replace(found, top=top)

    def _plateau(self, levels: dict[float, tuple[float, float]]) -> list[float]:
        """The loads whose throughput cannot be told from the best one's."""
        best, error = max(levels.values())
        return [load for load, (mean, own) in levels.items() if best - mean <= _ALIKE * math.hypot(error, own)]

    def _top(self, levels: dict[float, tuple[float, float]]) -> float:
        """Logarithm of the highest throughput."""
        plateau = [levels[load] for load in self._plateau(levels)]
        weights = [1 / error**2 for _, error in plateau]
        return sum(w * mean for w, (mean, _) in zip(weights, plateau, strict=True)) / sum(weights)

    def _excesses(self, curve: _Curve) -> Floats:
        return curve.log - self._top(curve.levels()) + _GAIN

    def _rising(self, curve: _Curve, best: float) -> tuple[list[Observation], Belief]:
        """The runs with their excesses, and where these cross 0. What lies beyond a fall is beyond the crossing, whatever it carries."""
        levels = curve.levels()
        plateau = self._plateau(levels)
        excesses = self._excesses(curve)
        excesses = np.where(curve.load > max(best, *plateau), np.maximum(excesses, _GAIN), excesses)
        at = np.flatnonzero(np.isin(curve.load, plateau))
        hidden = _hidden(best, levels)

        def height(draws: Floats) -> Floats:
            higher: Floats = hidden * np.random.default_rng(0).random(len(draws))
            return draws[:, at].mean(axis=1) - _GAIN + higher

        return curve.observations(self.name, excesses), believe_relative(curve.load, excesses, curve.error, height)


class RateTarget(Target):
    """The highest steady throughput of an open loop: the highest rate at which requests do not pile up."""

    name = THROUGHPUT

    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:  # noqa: ARG002
        return [self._seen(look.observation) for look in looks]

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        return place(self.observations(looks, aim), aim)

    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        return answer_so_far(self.observations(looks, aim), aim, why)

    def _seen(self, seen: Observation | None) -> Observation | None:
        growth = seen and seen.excesses.get(GROWTH)
        if seen is None or not (growth or seen.grows):
            return None
        # Where requests pile up in a run that is too short, the server may still have been filling.
        excesses: dict[str, Excess] = {self.name: growth, GROWTH: growth} if growth else {self.name: _MAY_STILL_FILL}
        return replace(seen, excesses=excesses)


def _spread(curve: _Curve, observations: Sequence[Observation], count: int) -> list[Observation | None]:
    """Observations in the places of their runs among all `count`."""
    found: list[Observation | None] = [None] * count
    for place_of, seen in zip(curve.index.tolist(), observations, strict=True):
        found[place_of] = seen
    return found


def _near(curve: _Curve, middle: float, but: Sequence[float] = ()) -> int:
    """Runs about the crossing. Args: but: loads that do not count."""
    if not 0 < middle < math.inf:
        return 0
    near = np.abs(np.log(curve.load / middle)) < _NEARBY
    return int(np.sum(near & ~np.isin(curve.load, list(but))))


def _balanced(found: Answer | Step, curve: _Curve, middle: float, aim: Aim) -> Answer | Step:
    """A run at the other end of the interval, where its end has been looked at often, and that one has not."""
    if isinstance(found, Answer) or not found.near or not 0 < middle < math.inf:
        return found
    other = middle * middle / found.load
    other = float(math.ceil(other) if other > middle else math.floor(other)) if aim.held else _round(other, aim)
    if not aim.lowest <= other <= aim.highest or curve.count(found.load) <= _OFTEN * (curve.count(other) + 1):
        return found
    return Step(other, near=True)


def _gain(levels: dict[float, tuple[float, float]]) -> tuple[float, float, float] | None:
    """What the highest load carries more than one of half of it (logarithm), its standard error, and that load; None without one."""
    top = max(levels)
    lower = [load for load in levels if load <= top / 2]
    if not lower or _APART * max(lower) < top:
        return None
    half = max(lower)
    return levels[top][0] - levels[half][0], math.hypot(levels[top][1], levels[half][1]), half


def _hidden(best: float, levels: dict[float, tuple[float, float]]) -> float:
    """By how much a peak between two measured loads may exceed the best of them, if throughput rises on as it did below."""
    lower, higher = (
        max((load for load in levels if load < best), default=None),
        min((load for load in levels if load > best), default=None),
    )
    if lower is None or higher is None:
        return 0.0
    slope = (levels[best][0] - levels[lower][0]) / math.log(best / lower)
    return max(0.0, slope) * math.log(higher / best) / 2


def _fallen(levels: dict[float, tuple[float, float]]) -> bool:
    """Whether the highest load surely carries less than a lower one."""
    best, error = max(levels.values())
    mean, own = levels[max(levels)]
    return best - mean > 2 * math.hypot(error, own)


def _tops_out(levels: dict[float, tuple[float, float]]) -> bool:
    """Whether the highest load adds less than 11 % to half of it, by the estimate."""
    gain = _gain(levels)
    return _fallen(levels) or (gain is not None and gain[0] < _GAIN)


def _climb(curve: _Curve, levels: dict[float, tuple[float, float]], aim: Aim) -> Step | None:
    """The run that shows whether more load adds throughput; None once that is known, or the highest load is reached."""
    top = max(levels)
    if _fallen(levels):
        return None
    higher = None if top >= aim.highest else Step(min(aim.highest, _round(2 * top, aim)), near=False)
    gain = _gain(levels)
    if gain is None:
        if higher is None and top / 2 >= max(aim.lowest, 1):
            return Step(_round(top / 2, aim), near=False)
        return higher
    more, error, half = gain
    if more + _SURE * error < _GAIN:
        return None
    if more - _SURE * error > _GAIN:
        return higher
    fewer = min(half, top, key=lambda load: (curve.count(load), -load))
    if curve.count(fewer) < _ENOUGH:
        return Step(fewer, near=True)
    return higher if more >= _GAIN else None


def _about(best: float, loads: Sequence[float], aim: Aim) -> Step | None:
    """A run between the best load and a neighbour that is far from it."""
    gaps = [(max(a, b) / min(a, b), math.sqrt(a * b)) for a, b in ((best, load) for load in _neighbours(best, loads))]
    widest, middle = max(gaps, default=(1.0, best))
    level = _round(middle, aim)
    return Step(level, near=True) if widest > _FINE and level not in loads else None


def _neighbours(best: float, loads: Sequence[float]) -> list[float]:
    lower, higher = [load for load in loads if load < best], [load for load in loads if load > best]
    return [*([max(lower)] if lower else []), *([min(higher)] if higher else [])]


def _round(load: float, aim: Aim) -> float:
    return float(math.floor(load)) if aim.held else float(f"{load:.3g}")

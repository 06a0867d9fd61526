"""The target `throughput`: the load with 90 % of the highest throughput, or the highest rate that a server keeps up with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.analysis.belief import Belief, Floats, believe_growth, believe_relative
from bench.analysis.observation import GROWTH, Excess, Observation
from bench.analysis.regions import FLAT
from bench.search.curve import Curve, Levels, balanced, in_places, near, unmeasured
from bench.search.placing import ROUND, Aim, Answer, Step, Why, answer_so_far, level_of, place
from bench.search.targets import Target, first_with
from bench.statistics import CONFIDENCE, normal
from bench.study.search import THROUGHPUT

if TYPE_CHECKING:
    from bench.search.search import Look

_SURE = normal(2 * CONFIDENCE - 1)  # standard errors of a rise, or of a fall; derived: one-sided
_APART = 3.0  # top load ÷ the one it is compared with: about half, less of small whole numbers; convention
_FINE = 1.15  # factor between the best load and its neighbours; tuned: benchmarks.targets, seed 31
_TOP = 0.03  # share below the highest throughput within which a load shows the top; tuned: benchmarks.targets, seed 31
_GAIN = -math.log(FLAT)  # ln of the gain of twice the load below which throughput tops out; derived
_MAY_STILL_FILL = Excess(0.5, 1.0)


class ThroughputTarget(Target):
    """The lowest load with 90 % of the highest throughput of a closed loop.

    Loads climb until doubling one adds significantly less than 11 %, or throughput falls. Then the search looks closer about the top:
    no load there is farther than 15 % from the next. The load of a peak itself is not asked for: about it throughput is the same over a
    wide range of loads.
    """

    name = THROUGHPUT

    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:  # noqa: ARG002
        curve = Curve.of(looks)
        return in_places(curve, curve.observations(self.name, _excesses(curve)) if len(curve) else [], len(looks))

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        curve = Curve.of(looks)
        if unmeasured(curve, looks):
            return Answer(0.0, 0.0, math.inf, "unmeasured")
        if not len(curve):
            return Step(aim.first, near=False)
        levels = curve.levels()
        if step := _climb(curve, levels, aim):
            return step
        if not _tops_out(levels):
            return Answer(max(levels), max(levels), math.inf, "above", math.exp(max(levels.values())[0]))
        fitted = _fitted(curve)
        if step := _about(fitted.best, list(levels), aim):
            return step
        found = first_with(place(curve.observations(self.name, _excesses(curve)), aim, fitted.belief), aim)
        if isinstance(found, Answer):
            return replace(found, top=fitted.top)
        if found.near and sum(map(curve.count, fitted.summit)) < near(curve, fitted.belief.middle, fitted.summit):
            return Step(fitted.best, near=True)
        return balanced(found, curve, fitted.belief.middle, aim)

    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        curve = Curve.of(looks)
        if not len(curve):
            return Answer(0.0, 0.0, math.inf, why)
        levels = curve.levels()
        if not _tops_out(levels):
            return Answer(max(levels), 0.0, math.inf, why, math.exp(max(levels.values())[0]))
        fitted = _fitted(curve)
        found = first_with(answer_so_far(curve.observations(self.name, _excesses(curve)), aim, why, fitted.belief), aim)
        return replace(found, top=fitted.top)


@dataclass(frozen=True)
class _Fitted:
    """A curve that tops out.

    Attributes:
        belief: where it has 90 % of its top. top: the highest throughput (tokens/s). best: the load that has it. summit: loads that
            have nearly as much.
    """

    belief: Belief
    top: float
    best: float
    summit: list[float]


def _edge(levels: Levels) -> float:
    """The highest load that is not significantly below the best one."""
    highest, error = max(levels.values())
    return max(load for load, (mean, own) in levels.items() if highest - mean <= _SURE * math.hypot(error, own))


def _excesses(curve: Curve) -> Floats:
    """Logarithm of each run's throughput ÷ 90 % of the highest mean. Beyond a fall is beyond the top, whatever the throughput."""
    levels = curve.levels()
    excesses = curve.log - max(levels.values())[0] + _GAIN
    kept: Floats = np.where(curve.load > _edge(levels), np.maximum(excesses, _GAIN), excesses)
    return kept


def _fitted(curve: Curve) -> _Fitted:
    """The curve's draws show its best load. Where that may hide a peak beside it, they are held against a higher top."""
    levels = curve.levels()
    rising = curve.load <= _edge(levels)  # what lies beyond a fall shows nothing of the rise
    load, excesses, errors = (values[rising] for values in (curve.load, _excesses(curve), curve.error))
    rounds = [number for number, kept in zip(curve.round, rising, strict=True) if kept]
    drawn: list[Floats] = []

    def highest(draws: Floats) -> Floats:
        drawn.append(draws)
        tops: Floats = draws.max(axis=1) - _GAIN
        return tops

    believe_relative(load, excesses, errors, rounds, highest)
    means = np.concatenate(drawn).mean(axis=0)
    smooth = dict(sorted(zip(load.tolist(), means.tolist(), strict=True)))
    best = max(smooth, key=lambda load: smooth[load])
    at, hidden = int(np.flatnonzero(load == best)[0]), _hidden(best, smooth, list(levels))

    def of_best(draws: Floats) -> Floats:  # the highest of each draw would lie above the top, by chance
        tops: Floats = draws[:, at] - _GAIN + hidden * np.random.default_rng(0).random(len(draws))
        return tops

    belief = believe_relative(load, excesses, errors, rounds, of_best)
    top = math.exp(max(levels.values())[0] + smooth[best] - _GAIN + hidden / 2)
    return _Fitted(belief, top, best, [load for load, mean in smooth.items() if mean >= smooth[best] - _TOP])


class RateTarget(Target):
    """The highest steady throughput of an open loop: the highest rate at which requests do not pile up."""

    name = THROUGHPUT

    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:  # noqa: ARG002
        return [self._seen(look.observation) for look in looks]

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        seen = self.observations(looks, aim)
        return place(seen, aim, self._belief(seen))

    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        seen = self.observations(looks, aim)
        return answer_so_far(seen, aim, why, self._belief(seen))

    def _belief(self, seen: Sequence[Observation]) -> Belief | None:
        known = [each for each in seen if each.growth is not None]
        return believe_growth(known) if known else None

    def _seen(self, seen: Observation | None) -> Observation | None:
        growth = seen and seen.excesses.get(GROWTH)
        if seen is None or not (growth or seen.grows):
            return None
        # Where requests pile up in a run that is too short, the server may still have been filling.
        excesses: dict[str, Excess] = {self.name: growth, GROWTH: growth} if growth else {self.name: _MAY_STILL_FILL}
        return replace(seen, excesses=excesses)


def _hidden(best: float, smooth: dict[float, float], loads: Sequence[float]) -> float:
    """By how much a peak between two measured loads may exceed the best of them, if throughput rises on as it did below."""
    lower, higher = max((x for x in smooth if x < best), default=None), min((x for x in loads if x > best), default=None)
    if lower is None or higher is None:
        return 0.0
    slope = (smooth[best] - smooth[lower]) / math.log(best / lower)
    return max(0.0, slope) * math.log(higher / best) / 2


def _gain(levels: Levels) -> tuple[float, float, float] | None:
    """Gain of the highest load over one of about half (ln), its standard error, and that load; None without one."""
    top = max(levels)
    lower = [load for load in levels if load <= top / 2]
    if not lower or _APART * max(lower) < top:
        return None
    half = max(lower)
    return levels[top][0] - levels[half][0], math.hypot(levels[top][1], levels[half][1]), half


def _fallen(levels: Levels) -> bool:
    """Whether the highest load gives significantly less than a lower one."""
    best, error = max(levels.values())
    mean, own = levels[max(levels)]
    return best - mean > _SURE * math.hypot(error, own)


def _tops_out(levels: Levels) -> bool:
    """Whether the highest load adds less than 11 % to half of it, by the estimate."""
    gain = _gain(levels)
    return _fallen(levels) or (gain is not None and gain[0] < _GAIN)


def _climb(curve: Curve, levels: Levels, aim: Aim) -> Step | None:
    """The run that shows whether more load adds throughput; None once that is known, or the highest load is reached."""
    top = max(levels)
    if _fallen(levels):
        return None
    higher = None if top >= aim.highest else Step(min(aim.highest, level_of(2 * top, aim)), near=False)
    gain = _gain(levels)
    if gain is None:
        half_of_it = level_of(top / 2, aim)
        if higher is None and half_of_it not in levels and half_of_it >= max(aim.least, 1):
            return Step(half_of_it, near=False)
        return higher
    more, error, half = gain
    if more + _SURE * error < _GAIN:
        return None
    if more - _SURE * error > _GAIN:
        return higher
    fewer = min(half, top, key=lambda load: (curve.count(load), -load))
    if curve.count(fewer) < ROUND:  # of both loads; then the estimate decides
        return Step(fewer, near=True)
    return higher if more >= _GAIN else None


def _about(best: float, loads: Sequence[float], aim: Aim) -> Step | None:
    """A run between the best load and a neighbour that is far from it."""
    gaps = [(max(a, b) / min(a, b), math.sqrt(a * b)) for a, b in ((best, load) for load in _neighbours(best, loads))]
    widest, middle = max(gaps, default=(1.0, best))
    level = level_of(middle, aim)
    return Step(level, near=True) if widest > _FINE and level not in loads else None


def _neighbours(best: float, loads: Sequence[float]) -> list[float]:
    lower, higher = [load for load in loads if load < best], [load for load in loads if load > best]
    return [*([max(lower)] if lower else []), *([min(higher)] if higher else [])]

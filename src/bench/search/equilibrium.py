"""The target `equilibrium`: where throughput stops growing in proportion to the load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.analysis.belief import Belief, Floats, believe_relative
from bench.analysis.observation import Observation
from bench.analysis.regions import PROPORTIONAL
from bench.search.curve import Curve, balanced, in_places, near, unmeasured
from bench.search.placing import Aim, Answer, Step, Why, answer_so_far, place
from bench.search.targets import Target, first_with
from bench.study.search import EQUILIBRIUM

if TYPE_CHECKING:
    from bench.search.search import Look


class EquilibriumTarget(Target):
    """The lowest load at which a request gets less than 80 % of what it gets alone. Of closed loops."""

    name = EQUILIBRIUM

    def shown(self, looks: Sequence[Look], aim: Aim) -> list[Observation | None]:
        curve = Curve.of(looks)
        if not curve.count(aim.least):  # nothing to compare with
            return [None] * len(looks)
        return in_places(curve, curve.observations(self.name, _excesses(curve, aim.least)), len(looks))

    def place(self, looks: Sequence[Look], aim: Aim) -> Answer | Step:
        curve = Curve.of(looks)
        if unmeasured(curve, looks):
            return Answer(0.0, 0.0, math.inf, "unmeasured")
        if not curve.count(aim.least):
            return Step(aim.least, near=False)
        belief = _belief(curve, aim.least)
        found = balanced(first_with(place(self.observations(looks, aim), aim, belief), aim), curve, belief.middle, aim)
        if isinstance(found, Step) and found.near and curve.count(aim.least) < near(curve, belief.middle):
            return Step(aim.least, near=False)  # the measure of all others
        return found

    def so_far(self, looks: Sequence[Look], aim: Aim, why: Why) -> Answer:
        curve = Curve.of(looks)
        if not curve.count(aim.least):
            return Answer(0.0, 0.0, math.inf, why)
        return first_with(answer_so_far(self.observations(looks, aim), aim, why, _belief(curve, aim.least)), aim)


def _excesses(curve: Curve, lowest: float) -> Floats:
    """Logarithm of 80 % of what a request gets at the lowest load ÷ what it gets in each run."""
    each = curve.log - np.log(curve.load)
    alone = each[curve.load == lowest]
    excesses: Floats = float(alone.mean()) + math.log(PROPORTIONAL) - each
    return excesses


def _belief(curve: Curve, lowest: float) -> Belief:
    at = int(np.flatnonzero(curve.load == lowest)[0])
    return believe_relative(
        curve.load, _excesses(curve, lowest), curve.error, curve.round, lambda draws: draws[:, at] - math.log(PROPORTIONAL)
    )

"""The requests of measured runs, in another order and at another load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.predict.calibrate import MeasuredRun, planned_again
from bench.workloads.schedule import PlannedRequest

_BLOCK = 16  # requests (conversations) in a row that stay together, so that what comes together does; convention


@dataclass(frozen=True)
class _Unit:
    """A request, or a conversation: at a load of 1, the gap before it (s), and its requests, due after its beginning."""

    gap_s: float
    plans: tuple[PlannedRequest, ...]


class Asked:
    """The requests of a curve's runs: blocks of them in an order of its own, again and again for as many as are wanted.

    Attributes:
        held: whether a closed loop holds them. fewest: requests of a replay.
    """

    def __init__(self, runs: Sequence[MeasuredRun], fewest: int, *, seed: int = 0) -> None:
        """Args: runs: those that count most first; as many of them as make `fewest` requests. seed: of the order."""
        self.held, self.fewest = runs[0].held is not None, fewest
        self._scaled = runs[0].row.get("arrival") == "trace"  # whose pauses too go by the level
        self._random = np.random.default_rng([seed, 4])
        units: list[_Unit] = []
        for run in runs:
            units += _units(run, scaled=self._scaled)
            if sum(len(unit.plans) for unit in units) >= fewest:
                break
        self._blocks = [units[first : first + _BLOCK] for first in range(0, len(units), _BLOCK)]
        self._units: list[_Unit] = []

    def at(self, level: float, count: int) -> list[PlannedRequest]:
        """`count` requests or a few more, as they would come at that level.

        In a closed loop that has gone on for long, the rest of each request is anything from nothing to all of it: so are those that
        it begins with, if they stand alone.
        """
        plans: list[PlannedRequest] = []
        conversation, at_s, number = 0, 0.0, 0
        while len(plans) < count:
            unit = self._unit(number)
            number, at_s, first = number + 1, at_s + unit.gap_s, len(plans)
            place = {plan.index: first + i for i, plan in enumerate(unit.plans)}
            for plan in unit.plans:
                plans.append(
                    replace(
                        plan,
                        index=place[plan.index],
                        conversation=conversation,
                        after=tuple(place[before] for before in plan.after),
                        due_s=None if plan.due_s is None else (at_s + plan.due_s) / level,
                        think_s=plan.think_s / level if self._scaled else plan.think_s,
                    )
                )
            conversation += 1
        if self.held and all(len(unit.plans) == 1 for unit in self._units[: int(level)]):
            rests = (np.random.default_rng([int(level), 5]).permutation(int(level)) + 1) / int(level)
            for i, rest in enumerate(rests[: len(plans)]):
                plans[i] = replace(plans[i], output_tokens=max(1, round(rest * plans[i].output_tokens)))
        return plans

    def _unit(self, number: int) -> _Unit:
        while len(self._units) <= number:
            for block in self._random.permutation(len(self._blocks)):
                self._units += self._blocks[block]
        return self._units[number]


def _units(run: MeasuredRun, *, scaled: bool) -> list[_Unit]:
    """The requests of a run, by conversation. Of a closed loop without those that it begins with, which are cut short."""
    level = float(run.row["level"])
    together: dict[int, list[PlannedRequest]] = defaultdict(list)
    for plan in planned_again(run):
        together[plan.conversation].append(plan)
    found, before = [], 0.0
    for plans in sorted(together.values(), key=lambda plans: (_begins(plans), plans[0].index)):
        begins = _begins(plans)
        moved = tuple(
            replace(
                plan,
                due_s=None if plan.due_s is None else (plan.due_s - begins) * level,
                think_s=plan.think_s * level if scaled else plan.think_s,
            )
            for plan in sorted(plans, key=lambda plan: plan.index)
        )
        found.append(_Unit((begins - before) * level, moved))
        before = begins
    begun = run.held or 0
    return found[begun:] if len(found) > begun else found


def _begins(plans: Sequence[PlannedRequest]) -> float:
    return min((plan.due_s for plan in plans if plan.due_s is not None), default=0.0)

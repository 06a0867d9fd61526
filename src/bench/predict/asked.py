"""Requests to replay: those of measured runs in another order and at another load, and some whose rate changes over a day."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.errors import BenchError
from bench.predict.calibrate import MeasuredRun, planned_again
from bench.workloads.schedule import PlannedRequest, schedule
from bench.workloads.workload import Workload

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


@dataclass(frozen=True)
class Traffic:
    """A rate over time.

    Attributes:
        moments: rising from 0 (s). rates: requests/s (conversations/s) at each; straight lines between them.
    """

    moments: tuple[float, ...]
    rates: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Time until the last moment."""
        return self.moments[-1]

    @property
    def peak(self) -> float:
        """Highest rate."""
        return max(self.rates)

    @property
    def requests(self) -> float:
        """Requests that are expected in all."""
        return float(np.trapezoid(self.rates, self.moments))

    def highest(self, begin_s: float, end_s: float) -> float:
        """Highest rate between two moments (s)."""
        ends = np.interp([begin_s, min(end_s, self.seconds)], self.moments, self.rates)
        return max([*map(float, ends), *(r for m, r in zip(self.moments, self.rates, strict=True) if begin_s <= m <= end_s)])

    def scaled(self, share: float) -> Traffic:
        """A share of this traffic (0–1)."""
        return Traffic(self.moments, tuple(share * rate for rate in self.rates))

    def plans(self, workload: Workload, seed: str) -> list[PlannedRequest]:
        """Its requests: as many as are expected, with the workload's lengths, turns and gaps; their pattern is bent by the rate.

        Source: time rescaling of a point process (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 7.4).
        """
        count = max(1, round(self.requests))
        workload = workload.model_copy(update={"num_requests": count, "duration_s": None, "step": None})
        fine = np.unique(np.concatenate([self.moments, np.linspace(0.0, self.seconds, count)]))  # the rate's sum bends between
        rates = np.interp(fine, self.moments, self.rates)
        so_far = np.concatenate([[0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(fine))])
        plans = schedule(workload, 1.0, seed)
        due = iter(np.interp([plan.due_s for plan in plans if plan.due_s is not None], so_far, fine).tolist())
        return [plan if plan.due_s is None else replace(plan, due_s=next(due)) for plan in plans]


def read_traffic(file: Path) -> Traffic:
    """Read a CSV file with the columns `seconds` and `requests_per_s`; its first moment is 0.

    Raises:
        BenchError: it cannot be read, or has no two moments in their order.
    """
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = [(float(row["seconds"]), float(row["requests_per_s"])) for row in csv.DictReader(lines)]
    except FileNotFoundError:
        raise BenchError(f"{file}: no such file.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"{file}: not a CSV file of numbers with the columns seconds and requests_per_s ({error}).") from None
    moments, rates = zip(*rows, strict=True) if rows else ((0.0,), (0.0,))
    rising = len(rows) >= 2 and all(a < b for a, b in pairwise(moments)) and math.isfinite(moments[-1])
    if not (rising and max(rates) and all(0 <= rate < math.inf for rate in rates)):
        raise BenchError(f"{file}: needs two rows or more with rising seconds, and rates of 0 or more, not all 0.")
    return Traffic(tuple(moment - moments[0] for moment in moments), tuple(rates))

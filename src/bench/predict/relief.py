"""What relieving one resource of a server would bring: the cause of a limit, by replays of its calibrated model.

A curve's own requests are replayed around its limit, on the server as it is and on the same server with one resource relieved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bench.load.schedule import PlannedRequest
from bench.predict.calibrate import Calibrated, MeasuredRun, planned_again
from bench.predict.carried import crossing, worst_excess
from bench.predict.ensemble import Member, members
from bench.predict.replay import Replay, replay
from bench.predict.state import Limits
from bench.predict.step_time import StepTime
from bench.records.relief import Gain, Relief
from bench.statistics import student_t
from bench.study import Slo

__all__ = ["DRAWS", "FEWEST", "RESOURCES", "relief_of"]

Floats: TypeAlias = npt.NDArray[np.float64]

_MEMBERS = 5  # servers of the ensemble that are replayed; convention: a t interval with 4 degrees of freedom
DRAWS = _MEMBERS  # fits that the members take turns with; derived
_FEWEST_MEMBERS = 3  # fewest of them that have a limit; convention
FEWEST = 1000  # fewest requests of a replay; tuned: benchmarks.capacity
_TIMES_HELD = 6  # times that a replay has the requests that a closed loop holds; convention
_WARM = 0.05  # share of the requests that is left out while queues still fill; convention
_BEHIND = 0.03  # share of the second half's arrivals that may pile up; convention
_KV = 4.0  # factor meant by "more KV memory"; measured: docs/explanation/decisions.md
_CLOSE = 1.02  # ratio between two loads at which the search for the limit ends; convention
_LOWEST = 1 / 16  # lowest load that is tried ÷ the measured limit; convention
_HIGHEST = 8.0  # load from which on none is within the SLOs ÷ the measured limit; convention
_FAR = 1.0  # excess of a load at which requests pile up; convention
_ALIKE = 1.05  # ratio of two gains below which both resources are the cause; convention

#: By name, a server with one resource relieved: by so much that more of it would change nothing (slots), or by a factor.
RESOURCES: dict[str, Callable[[Limits, StepTime], tuple[Limits, StepTime]]] = {
    "kv": lambda limits, step: (replace(limits, blocks=int(_KV * (limits.blocks or 0))), step),
    "sequences": lambda limits, step: (replace(limits, sequences=max(limits.tokens, limits.sequences)), step),
    "prefill": lambda limits, step: (limits, replace(step, prompts=step.prompts / 2)),
    "decode": lambda limits, step: (limits, replace(step, bare=step.bare / 2)),
    "interference": lambda limits, step: (limits, replace(step, prompts=0.0)),
}


def relief_of(
    model: Calibrated,
    runs: Sequence[MeasuredRun],
    slos: Sequence[Slo],
    missed: Collection[str],
    missed_at: float,
    *,
    fewest: int = FEWEST,
) -> Relief | None:
    """What relieving each resource would bring to a curve.

    Args:
        runs: of the curve, valid. slos: that bound it. missed: metrics that miss; of the time between tokens, prompts are others'.
        missed_at: the lowest level that misses. fewest: requests of a replay, at least.

    Returns:
        None where too few of the servers that the model allows have a load within the SLOs.
    """
    asked = _Asked(sorted(runs, key=lambda run: abs(math.log(float(run.row["level"]) / missed_at))), fewest)
    left_out = {"prefill" if "tpot" in missed else "interference"} | ({"kv"} if model.limits.blocks is None else set())
    tried = {name: relieved for name, relieved in RESOURCES.items() if name not in left_out}
    logs: dict[str, list[float]] = {name: [] for name in tried}
    for member in members(model, count=_MEMBERS):
        replays = _Replays(member, asked, slos, missed_at)
        limit = replays.limit(member.limits, member.step, missed_at)
        if not limit or not limit.rps:
            continue  # so slow a server, of which no load is within the SLOs, shows no gain
        for name, relieved in tried.items():
            spare = name in limit.spare
            found = limit if spare else replays.limit(*relieved(member.limits, member.step), limit.level)
            logs[name].append(math.log(max(1.0, found.rps / limit.rps)) if found else 0.0)
    if len(logs["decode"]) < _FEWEST_MEMBERS:
        return None
    ordered = sorted(logs, key=lambda name: -float(np.mean(logs[name])))
    best = np.array(logs[ordered[0]])
    tied = [name for name in ordered if _least(best - np.array(logs[name])) <= math.log(_ALIKE)]
    return Relief(tuple(_gain(name, logs[name]) for name in ordered), len(tied))


def _gain(resource: str, logs: Sequence[float]) -> Gain:
    mean, half = float(np.mean(logs)), _half(logs)
    return Gain(resource, math.exp(mean), math.exp(max(0.0, mean - half)), math.exp(mean + half))


def _least(logs: Floats) -> float:
    """The lower end of the mean's 95 % interval."""
    return float(np.mean(logs)) - _half(logs)


def _half(logs: Sequence[float] | Floats) -> float:
    """Half of the 95 % interval of a further server, and of the search for the limit."""
    return student_t(len(logs) - 1) * float(np.std(logs, ddof=1)) + math.log(_CLOSE)


@dataclass(frozen=True)
class _Limit:
    """The highest load within the SLOs. Attributes: spare: resources of which the server had more than enough beyond it too."""

    level: float
    rps: float
    spare: frozenset[str]


@dataclass(frozen=True)
class _Tried:
    """A replayed load: by how much (ln) its latencies are over their limits, requests/s, and resources that were never short."""

    excess: float
    rps: float
    spare: frozenset[str]


class _Replays:
    """Replays of one load on one member's server."""

    def __init__(self, member: Member, asked: _Asked, slos: Sequence[Slo], near: float) -> None:
        """Args: near: a level near the limit."""
        self._member, self._asked, self._slos, self._near = member, asked, slos, near

    def limit(self, limits: Limits, step: StepTime, start: float) -> _Limit | None:
        """The highest load within the SLOs. Args: start: where to begin to look."""
        tried: dict[float, _Tried] = {}

        def excess(level: float) -> float:
            level = float(max(1, round(level))) if self._asked.held else level
            if level not in tried:
                tried[level] = self._try(limits, step, level)
            return tried[level].excess

        crossing(excess, start, least=_LOWEST * self._near, most=_HIGHEST * self._near, close=_CLOSE)
        met = [level for level, found in tried.items() if found.excess <= 0]
        if not met:
            return None
        beyond = [level for level in tried if level > max(met)]
        spare = tried[min(beyond)].spare if beyond else frozenset[str]()
        return _Limit(max(met), tried[max(met)].rps, spare)

    def _try(self, limits: Limits, step: StepTime, level: float) -> _Tried:
        member, held = self._member, self._asked.held
        played = replay(
            self._asked.at(level),
            limits,
            step,
            held=int(level) if held else None,
            overhead_s=member.overhead_s,
            wake_s=member.wake_s,
            noise=member.noise,
            seed=1 + member.number,
        )
        done, spare = played.requests.sort("sent_s"), _spare(played, limits)
        if done.is_empty():
            return _Tried(_FAR, 0.0, spare)
        sent, ends = done["sent_s"].to_numpy(), np.sort(done["end_s"].to_numpy())
        first = max(int(_WARM * len(sent)), 2 * int(level) if held else 0)
        last = len(sent) - 1 - (int(level) if held else 0)
        if last <= first or (held and ends[last] <= ends[first]):
            return _Tried(_FAR, 0.0, spare)
        rps = (last - first) / (ends[last] - ends[first]) if held else (last - first) / (sent[last] - sent[first])
        half, until = sent[len(sent) // 2], sent[-1]
        arrived, ended = len(sent) - len(sent) // 2, np.searchsorted(ends, until) - np.searchsorted(ends, half)
        if not held and ended < (1 - _BEHIND) * arrived:
            return _Tried(_FAR, float(rps), spare)
        return _Tried(worst_excess(member, done[first:], self._slos), float(rps), spare)


def _spare(played: Replay, limits: Limits) -> frozenset[str]:
    """Resources that were never short: with more of them, the same would have happened."""
    found = {"sequences"} if played.most_running < limits.sequences else set()
    if limits.blocks is not None and played.kv_peak is not None:
        left = (1 - played.kv_peak) * (limits.blocks - 1)
        found |= {"kv"} if left * limits.block_size > played.most_context else set()
    return frozenset(found)


class _Asked:
    """The requests of a curve's runs, one run after another, and again from the first run for as many as are wanted."""

    def __init__(self, runs: Sequence[MeasuredRun], fewest: int) -> None:
        """Args: runs: those that count most first. fewest: requests of a replay."""
        self.held = runs[0].held is not None
        self._fewest, self._runs = fewest, _again([(float(run.row["level"]), planned_again(run)) for run in runs])
        self._plans: list[PlannedRequest] = []
        self._ends: list[int] = []
        self._began = 0.0

    def at(self, level: float) -> list[PlannedRequest]:
        """As they would come at that level."""
        if self.held:
            return self._first(max(self._fewest, _TIMES_HELD * int(level)))
        return [replace(plan, due_s=None if plan.due_s is None else plan.due_s / level) for plan in self._first(self._fewest)]

    def _first(self, count: int) -> list[PlannedRequest]:
        """At a load of 1, whole runs, so that no conversation is cut."""
        while len(self._plans) < count:
            level, plans = next(self._runs)
            first = len(self._plans)
            for plan in sorted(plans, key=lambda plan: plan.index):
                self._plans.append(
                    replace(
                        plan,
                        index=first + plan.index,
                        conversation=first + plan.conversation,
                        after=tuple(first + before for before in plan.after),
                        due_s=None if plan.due_s is None else self._began + plan.due_s * level,
                    )
                )
            self._began = max((plan.due_s or 0.0 for plan in self._plans), default=0.0) + 1.0
            self._ends.append(len(self._plans))
        return self._plans[: next(end for end in self._ends if end >= count)]


def _again(runs: Sequence[tuple[float, list[PlannedRequest]]]) -> Iterator[tuple[float, list[PlannedRequest]]]:
    while True:
        yield from runs

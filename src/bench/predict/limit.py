"""The highest load within the SLOs, by replays of a curve's own requests on its calibrated model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from bench.predict.asked import Asked
from bench.predict.calibrate import MeasuredRun, calibrate
from bench.predict.carried import FAR, FEWEST_REQUESTS, WARM, crossing, worst_excess
from bench.predict.ensemble import Member, members
from bench.predict.predict import misfits
from bench.predict.replay import Replay, replay
from bench.predict.state import Limits
from bench.predict.step_time import StepTime
from bench.records.searches import ModelLimit
from bench.statistics import Z
from bench.study import Slo

__all__ = ["MEMBERS", "Highest", "Replays", "limit_by_model"]

MEMBERS = 5  # servers of the ensemble that are replayed; convention: a t interval with 4 degrees of freedom
_TIMES = 20  # times that a replay has the requests in flight, at least: chance piles up √2 ÷ √(10 × those) of the half; derived
_MOST = 10_000  # most requests of a replay; convention
_BEHIND = 0.03  # share of the second half's arrivals that may pile up; convention
_HIGHEST = 8.0  # load from which on none is within the SLOs ÷ the measured limit; convention
# standard deviation of ln limit by which models are off beyond what their ensembles say; measured: docs/explanation/search.md
_OFF = 0.08
_AMID = 0.5  # what a continuous limit lies above the last whole number of requests in flight within it; derived


def limit_by_model(runs: Sequence[MeasuredRun], limits: Limits, slos: Sequence[Slo]) -> ModelLimit | None:
    """What a model that is fitted to runs of one curve says of the highest load within the SLOs.

    Args:
        runs: valid ones, in their order. limits: that the scheduler obeys.

    Returns:
        None where the model does not fit, or where fewer than half of the servers that it allows have a load within the SLOs.
    """
    model = calibrate(runs, limits, draws=MEMBERS) if runs else None
    if model is None or any(misfits(model)):
        return None
    near = float(runs[-1].row["level"])
    found = []
    for member in members(model, count=MEMBERS):
        highest = Replays(member, Asked(runs, FEWEST_REQUESTS, seed=member.number), slos, near).limit(limits, member.step, near)
        if highest:
            found.append(math.log(highest.level + _AMID * (runs[-1].held is not None)))
    if 2 * len(found) < MEMBERS:
        return None
    return ModelLimit(load=math.exp(fmean(found)), spread=math.hypot(stdev(found), _OFF))


@dataclass(frozen=True)
class Highest:
    """The highest load within the SLOs.

    Attributes:
        spare: resources of which the server had more than enough beyond it too. open: whether no load beyond it was tried.
    """

    level: float
    rps: float
    spare: frozenset[str]
    open: bool


@dataclass(frozen=True)
class _Tried:
    """A replayed load: by how much (ln) its latencies are over their limits, requests/s, and resources that were never short."""

    excess: float
    rps: float
    spare: frozenset[str]


class Replays:
    """Replays of one load on one member's server."""

    def __init__(self, member: Member, asked: Asked, slos: Sequence[Slo], near: float) -> None:
        """Args: near: a level near the limit."""
        self._member, self._asked, self._slos, self._near = member, asked, slos, near

    def limit(self, limits: Limits, step: StepTime, start: float) -> Highest | None:
        """The highest load within the SLOs. Args: start: where to begin to look."""
        tried: dict[float, _Tried] = {}

        def excess(level: float) -> float:
            level = float(max(1, round(level))) if self._asked.held else level
            if level not in tried:
                tried[level] = self._try(limits, step, level)
            return tried[level].excess

        found = crossing(excess, start, most=_HIGHEST * self._near)
        found = float(max(1, round(found))) if self._asked.held else found
        if found not in tried or tried[found].excess > 0:
            return None
        beyond = [level for level in tried if level > found]
        return Highest(found, tried[found].rps, tried[min(beyond)].spare if beyond else frozenset(), not beyond)

    def _try(self, limits: Limits, step: StepTime, level: float) -> _Tried:
        """Replay so many requests that the number of those in flight is no chance."""
        count = self._asked.fewest
        while True:
            played = self._replayed(limits, step, level, count)
            done, spare = played.requests.sort("sent_s"), _spare(played, limits)
            if done.is_empty():
                return _Tried(FAR, 0.0, spare)
            sent, ends = done["sent_s"].to_numpy(), np.sort(done["end_s"].to_numpy())
            e2e = float((done["end_s"] - done["sent_s"]).mean())  # type: ignore[arg-type]
            span = float(sent[-1] - sent[0]) or e2e
            flying = level if self._asked.held else len(sent) * e2e / span
            arrived, behind = len(sent) - len(sent) // 2, 0.0
            if not self._asked.held:
                ended = np.searchsorted(ends, sent[-1]) - np.searchsorted(ends, sent[len(sent) // 2])
                behind = 1 - float(ended) / arrived
            by_chance = Z * math.sqrt(2 * flying) / arrived
            enough = count >= min(_MOST, _TIMES * flying)
            if behind > _BEHIND + by_chance or (enough and behind > max(_BEHIND, by_chance)):
                return _Tried(FAR, len(sent) / span, spare)
            if enough:
                break
            count = min(_MOST, math.ceil(1.2 * _TIMES * flying))
        first = int(WARM * len(sent))
        last = len(sent) - 1 - (int(level) if self._asked.held else 0)
        if last <= first or (self._asked.held and ends[last] <= ends[first]):
            return _Tried(FAR, 0.0, spare)
        rps = (last - first) / (ends[last] - ends[first] if self._asked.held else sent[last] - sent[first])
        return _Tried(worst_excess(self._member, done[first:], self._slos), float(rps), spare)

    def _replayed(self, limits: Limits, step: StepTime, level: float, count: int) -> Replay:
        member, held = self._member, self._asked.held
        return replay(
            self._asked.at(level, count),
            limits,
            step,
            held=int(level) if held else None,
            overhead_s=member.overhead_s,
            wake_s=member.wake_s,
            noise=member.noise,
            seed=1 + member.number,
        )


def _spare(played: Replay, limits: Limits) -> frozenset[str]:
    """Resources that were never short: with more of them, the same would have happened."""
    found = {"sequences"} if played.most_running < limits.sequences else set()
    if limits.blocks is not None and played.kv_peak is not None:
        left = (1 - played.kv_peak) * (limits.blocks - 1)
        found |= {"kv"} if left * limits.block_size > played.most_context else set()
    return frozenset(found)

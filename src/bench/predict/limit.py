"""The highest load within the SLOs, by replays of a curve's own requests on its calibrated model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.predict.asked import Asked
from bench.predict.calibrate import Calibrated, MeasuredRun
from bench.predict.carried import FAR, FEWEST_REQUESTS, WARM, crossing, worst_excess
from bench.predict.ensemble import Member, typical
from bench.predict.predict import doubts
from bench.predict.replay import Replay, replay
from bench.predict.state import Limits
from bench.predict.step_time import StepTime
from bench.statistics import Z
from bench.study import Slo

__all__ = ["Highest", "Replays", "beyond", "found_again", "highest_loads"]

_TIMES = 20  # times that a replay has the requests in flight, at least: chance piles up √2 ÷ √(10 × those) of the half; derived
_MOST = 10_000  # most requests of a replay; convention
_BEHIND = 0.03  # share of the second half's arrivals that may pile up; convention
_OFF = 1.3  # factor between a model's limit of its own server and the measured one from which on it is no model; convention
_HIGHEST = 8.0  # load from which on none is within the SLOs ÷ the measured limit; convention


def highest_loads(
    model: Calibrated, runs: Sequence[MeasuredRun], slos: Sequence[Slo], near: float, obeyed: Sequence[Limits]
) -> list[float | None]:
    """The highest load within the SLOs of servers that differ in their scheduler's limits alone: by the best fit, each with the same
    requests.

    Args:
        runs: of one curve of the model's own server. near: the highest load within the SLOs there, as measured.

    Returns:
        None where no load is within them, where even the highest that is tried is, or where the server has more requests at once, or
        more tokens in a step, than the model was fitted to. None of all where the model is far from what its own server showed.
    """
    member = typical(model)
    asked = Asked(sorted(runs, key=lambda run: abs(math.log(float(run.row["level"]) / near))), FEWEST_REQUESTS)
    replays = Replays(member, asked, slos, near)
    own = replays.limit(model.limits, member.step, near)
    if own is None or not found_again(own.level, near, held=asked.held):
        return [None for _ in obeyed]
    known = _with_steps_of(own.played, model)
    tried = {limits: replays.limit(limits, member.step, own.level) for limits in dict.fromkeys(obeyed)}
    loads = {
        limits: None if found is None or found.open or any(doubts(known, [found.played])) else found.level
        for limits, found in tried.items()
    }
    return [loads[limits] for limits in obeyed]


def found_again(replayed: float, measured: float, *, held: bool) -> bool:
    """Whether a model's limit of its own server is that of the server. Args: held: whether what is replayed are whole requests."""
    return 1 / _OFF < replayed / measured < _OFF or (held and abs(replayed - measured) < 1)


def beyond(replayed: float, missed_at: float) -> bool:
    """Whether a model's limit of its own server is far above a load that the server missed its SLOs at."""
    return replayed > _OFF * missed_at


def _with_steps_of(played: Replay, model: Calibrated) -> Calibrated:
    """The model, as if it had been fitted to the rarest steps of its own server's limit too: they decide little."""
    seen = {"decodes": float(played.most_running), "tokens": float(played.most_tokens)}
    most = {name: max(value, seen.get(name, 0.0)) for name, value in model.fitted.most.items()}
    return replace(model, fitted=replace(model.fitted, most=most))


@dataclass(frozen=True)
class Highest:
    """The highest load within the SLOs.

    Attributes:
        spare: resources of which the server had more than enough beyond it too. open: whether no load beyond it was tried.
        played: its replay.
    """

    level: float
    rps: float
    spare: frozenset[str]
    open: bool
    played: Replay


@dataclass(frozen=True)
class _Tried:
    """A replayed load: by how much (ln) its latencies are over their limits, requests/s, and resources that were never short."""

    played: Replay
    excess: float
    rps: float
    spare: frozenset[str]


class Replays:
    """Replays of one load on one member's server."""

    def __init__(self, member: Member, asked: Asked, slos: Sequence[Slo], near: float) -> None:
        """Args: near: a level near the limit."""
        self._member, self._asked, self._slos, self._near = member, asked, slos, near

    @property
    def held(self) -> bool:
        """Whether levels are requests in flight."""
        return self._asked.held

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
        spare = tried[min(beyond)].spare if beyond else frozenset()
        return Highest(found, tried[found].rps, spare, not beyond, tried[found].played)

    def _try(self, limits: Limits, step: StepTime, level: float) -> _Tried:
        """Replay so many requests that the number of those in flight is no chance."""
        count = self._asked.fewest
        while True:
            played = self._replayed(limits, step, level, count)
            done, spare = played.requests.sort("sent_s"), _spare(played, limits)
            if done.is_empty():
                return _Tried(played, FAR, 0.0, spare)
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
                return _Tried(played, FAR, len(sent) / span, spare)
            if enough:
                break
            count = min(_MOST, math.ceil(1.2 * _TIMES * flying))
        first = int(WARM * len(sent))
        last = len(sent) - 1 - (int(level) if self._asked.held else 0)
        if last <= first or (self._asked.held and ends[last] <= ends[first]):
            return _Tried(played, FAR, 0.0, spare)
        rps = (last - first) / (ends[last] - ends[first] if self._asked.held else sent[last] - sent[first])
        return _Tried(played, worst_excess([self._member], done[first:], self._slos), float(rps), spare)

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

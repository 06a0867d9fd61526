"""What relieving one resource of a server would bring: the cause of a limit, by replays of its calibrated model.

A curve's own requests are replayed around its limit, on the server as it is and on the same server with one resource relieved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bench.predict.asked import Asked
from bench.predict.calibrate import Calibrated, MeasuredRun
from bench.predict.carried import CLOSE, FAR, FEWEST_REQUESTS, WARM, crossing, worst_excess
from bench.predict.ensemble import Member, members
from bench.predict.replay import Replay, replay
from bench.predict.state import Limits
from bench.predict.step_time import StepTime
from bench.records.relief import Gain, Relief
from bench.statistics import Z, student_t
from bench.study import Slo

__all__ = ["MEMBERS", "RESOURCES", "agreed", "relief_of"]

Floats: TypeAlias = npt.NDArray[np.float64]

MEMBERS = 5  # servers of the ensemble that are replayed; convention: a t interval with 4 degrees of freedom
_TIMES = 20  # times that a replay has the requests in flight, at least: chance piles up √2 ÷ √(10 × those) of the half; derived
_MOST = 10_000  # most requests of a replay; convention
_BEHIND = 0.03  # share of the second half's arrivals that may pile up; convention
_KV = 4.0  # factor meant by "more KV memory"; measured: docs/explanation/decisions.md
_HIGHEST = 8.0  # load from which on none is within the SLOs ÷ the measured limit; convention

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
    fewest: int = FEWEST_REQUESTS,
) -> Relief | None:
    """What relieving each resource would bring to a curve. Each server that the model allows gets another order of its requests.

    Args:
        runs: of the curve, valid. slos: that bound it. missed: metrics that miss; of the time between tokens, prompts are others'.
        missed_at: the lowest level that misses. fewest: requests of a replay, at least.

    Returns:
        None where fewer than half of the servers that the model allows have a load within the SLOs.
    """
    near = sorted(runs, key=lambda run: abs(math.log(float(run.row["level"]) / missed_at)))
    left_out = {"prefill" if "tpot" in missed else "interference"} | ({"kv"} if model.limits.blocks is None else set())
    tried = {name: relieved for name, relieved in RESOURCES.items() if name not in left_out}
    logs: dict[str, list[float]] = {name: [] for name in tried}
    more: set[str] = set()
    for member in members(model, count=MEMBERS):
        replays = _Replays(member, Asked(near, fewest, seed=member.number), slos, missed_at)
        limit = replays.limit(member.limits, member.step, missed_at)
        if not limit or not limit.rps:
            continue  # so slow a server, of which no load is within the SLOs, shows no gain
        for name, relieved in tried.items():
            spare = name in limit.spare
            found = limit if spare else replays.limit(*relieved(member.limits, member.step), limit.level)
            logs[name].append(math.log(max(1.0, found.rps / limit.rps)) if found else 0.0)
            more |= {name} if found and found.open and not spare else set()
    if 2 * len(logs["decode"]) < MEMBERS:
        return None
    return _ordered({name: _gain(name, each, more=name in more) for name, each in logs.items()}, logs)


def _ordered(gains: dict[str, Gain], logs: dict[str, list[float]]) -> Relief:
    """The best gain, those that are not surely less, and the rest."""
    ordered = sorted(gains.values(), key=lambda each: -each.gain)
    best = ordered[0]
    if not best.sure:
        return Relief(tuple(ordered), 0)
    apart = {each.resource: _least(np.array(logs[best.resource]) - np.array(logs[each.resource])) > 0 for each in ordered[1:]}
    tied = [each for each in ordered[1:] if each.sure and not apart[each.resource]]
    rest = [each for each in ordered[1:] if each not in tied]
    return Relief((best, *tied, *rest), 1 + len(tied))


def agreed(found: Sequence[Relief]) -> Relief:
    """What several models of one server say together: each gain from the least to the greatest, and every cause that one names."""
    if len(found) == 1:
        return found[0]
    causes = (
        {gain.resource for each in found for gain in each.gains[: each.tied]} if all(each.tied for each in found) else set()
    )
    by_name = [{gain.resource: gain for gain in each.gains} for each in found]
    gains = [
        Gain(
            name,
            float(np.exp(np.mean([math.log(each[name].gain) for each in by_name]))),
            min(each[name].low for each in by_name),
            max(each[name].high for each in by_name),
            any(each[name].more for each in by_name),
        )
        for name in by_name[0]
    ]
    gains.sort(key=lambda each: (each.resource not in causes, -each.gain))
    return Relief(tuple(gains), len(causes))


def _gain(resource: str, logs: Sequence[float], *, more: bool) -> Gain:
    mean, half = float(np.mean(logs)), _half(logs)
    return Gain(resource, math.exp(mean), math.exp(max(0.0, mean - half)), math.exp(mean + half), more)


def _least(logs: Floats) -> float:
    """The lower end of the mean's 95 % interval."""
    return float(np.mean(logs)) - _half(logs)


def _half(logs: Sequence[float] | Floats) -> float:
    """Half of the 95 % interval of a further server, and of the search for the limit."""
    return student_t(len(logs) - 1) * float(np.std(logs, ddof=1)) + math.log(CLOSE)


@dataclass(frozen=True)
class _Limit:
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


class _Replays:
    """Replays of one load on one member's server."""

    def __init__(self, member: Member, asked: Asked, slos: Sequence[Slo], near: float) -> None:
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

        found = crossing(excess, start, most=_HIGHEST * self._near)
        found = float(max(1, round(found))) if self._asked.held else found
        if found not in tried or tried[found].excess > 0:
            return None
        beyond = [level for level in tried if level > found]
        return _Limit(found, tried[found].rps, tried[min(beyond)].spare if beyond else frozenset(), not beyond)

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

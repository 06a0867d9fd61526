"""The highest load within the SLOs, by replays of a curve's own requests on its calibrated model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bench.predict.asked import Asked
from bench.predict.calibrate import Member
from bench.predict.carried import CLOSE, FAR, WARM, crossing, worst_excess
from bench.predict.fleet import FleetReplay
from bench.predict.limits import Limits
from bench.predict.study import ASSUMED_ERROR
from bench.statistics.textbook import Z
from bench.study.slo import Slo

Floats: TypeAlias = npt.NDArray[np.float64]

_TIMES = 20  # times that a replay has the requests in flight, at least: chance piles up √2 ÷ √(10 × those) of the half; derived
_MOST = 10_000  # most requests of a replay; convention
_FEW = 2  # factor on what may be chance while requests are few, whose gaps show little of how they vary; convention
_BEHIND = 0.03  # share of the second half's arrivals that may pile up; convention
_OFF = 1.3  # factor between a model's limit of its own server and the measured one from which on it is no model; convention
# ln of a model's latency at the measured limit ÷ the SLO's from which on it is no model; derived: what predictions of unseen loads are
# off by, at 95 %
_LATENCY_OFF = Z * ASSUMED_ERROR
_HIGHEST = 8.0  # load from which on none is within the SLOs ÷ the measured limit; convention


@dataclass(frozen=True)
class Highest:
    """The highest load within the SLOs.

    Attributes:
        spare: resources of which the server had more than enough beyond it too. open: whether no load beyond it was tried. over: by how
            much (ln) latency may be over its limit, as it was where the limit was measured.
    """

    level: float
    rps: float
    spare: frozenset[str]
    open: bool
    over: float = 0.0


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

    @property
    def held(self) -> bool:
        """Whether levels are requests in flight."""
        return self._asked.held

    def own(self, measured: float | None) -> Highest | None:
        """The highest load within the SLOs of the member itself; None where its replays are far from what was measured.

        They are near it in load, or, where latency hardly rises with load, in latency: then little in it is much in the limit. The
        limit of such a member is the measured one, and whatever its latency is off by there it may be at other loads. Latency
        counts where the limit is measured and one SLO alone bounds the curve: what it is off by says nothing of another one.

        Args:
            measured: the highest load within the SLOs; None where it is not known: no higher than the lowest that misses.
        """
        found = self._found_again(measured)
        if found or measured is None or len(self._slos) > 1:
            return found
        at = self._level(measured)
        here = self._try(self._member, at)
        if not here.rps or abs(here.excess) > _LATENCY_OFF:
            return None
        above = self._try(self._member, self._level(max(CLOSE * at, at + self.held)))
        return Highest(at, here.rps, above.spare, open=False, over=here.excess)

    def _found_again(self, measured: float | None) -> Highest | None:
        """As `own`, where the replays find it by themselves, near the measured one. Args: measured: as of `own`."""
        found = self.limit(self._member, self._near)
        if found is None or not found.rps:
            return None
        if measured is None:
            return found if found.level <= _OFF * self._near else None
        alike = self.held and abs(found.level - measured) < 1
        return found if alike or 1 / _OFF < found.level / measured < _OFF else None

    def limit(self, server: Member, start: float, over: float = 0.0) -> Highest | None:
        """The highest load within the SLOs of a server that is like the member.

        Args:
            start: where to begin to look. over: as of `Highest`.
        """
        tried: dict[float, _Tried] = {}

        def excess(load: float) -> float:
            level = self._level(load)
            if level not in tried:
                tried[level] = self._try(server, level)
            return tried[level].excess - over

        found = self._level(crossing(excess, start, most=_HIGHEST * self._near))
        if found not in tried or tried[found].excess > over:
            return None
        beyond = [level for level in tried if level > found]
        spare = tried[min(beyond)].spare if beyond else frozenset()
        return Highest(found, tried[found].rps, spare, not beyond)

    def _level(self, load: float) -> float:
        """A load as it can be asked for, and no higher: of a closed loop a whole number."""
        return float(max(1, math.floor(round(load, 6)))) if self.held else load  # exp(ln 6) may be just less than 6

    def _try(self, server: Member, level: float) -> _Tried:
        """Replay so many requests that the number of those in flight is no chance."""
        count = self._asked.fewest
        while True:
            plans = self._asked.at(level, count)
            played = server.replay(plans, held=int(level) if self.held else None)
            done, spare = played.requests.sort("sent_s"), _spare(played, server.limits)
            if done.is_empty():
                return _Tried(FAR, 0.0, spare)
            sent, ends = done["sent_s"].to_numpy(), np.sort(done["end_s"].to_numpy())
            e2e = float((done["end_s"] - done["sent_s"]).mean())  # type: ignore[arg-type]
            span = float(sent[-1] - sent[0]) or e2e
            flying = level if self.held else len(sent) * e2e / span
            if self.held:
                behind, by_chance, varied = 0.0, 0.0, 1.0
            else:
                behind, by_chance, varied = _piled_up(sent, ends, flying)
            needed = min(_MOST, _TIMES * flying * varied)
            doubt = by_chance if count >= needed else _FEW * by_chance
            if behind > _BEHIND + doubt or (count >= _MOST and behind > max(_BEHIND, by_chance)):
                return _Tried(FAR, len(sent) / span, spare)
            if count >= needed and behind <= max(_BEHIND, by_chance):
                break
            # Whether they pile up, more requests show.
            count = min(_MOST, math.ceil(1.2 * needed) if count < needed else 2 * count)
        first = int(WARM * len(sent))
        last = len(sent) - 1 - (int(level) if self.held else 0)
        if last <= first or (self.held and ends[last] <= ends[first]):
            return _Tried(FAR, 0.0, spare)
        rps = (last - first) / (ends[last] - ends[first] if self.held else sent[last] - sent[first])
        return _Tried(worst_excess(server, done[first:], self._slos), float(rps), spare)


def _piled_up(sent: Floats, ends: Floats, flying: float) -> tuple[float, float, float]:
    """Share of the second half's arrivals that pile up, what of it may be chance, and how much more their number varies than that of
    Poisson arrivals (at least 1): by the squared coefficient of variation of their gaps, as of a renewal process.

    Args:
        sent, ends: when requests are sent, and when any ends (s), ascending. flying: requests in flight.
    """
    half = len(sent) // 2
    arrived = len(sent) - half
    ended = np.searchsorted(ends, sent[-1]) - np.searchsorted(ends, sent[half])
    gaps = np.diff(sent)
    varied = max(1.0, float(gaps.var() / gaps.mean() ** 2)) if len(gaps) and gaps.mean() else 1.0
    return 1 - float(ended) / arrived, Z * math.sqrt(2 * flying * varied) / arrived, varied


def _spare(played: FleetReplay, limits: Limits) -> frozenset[str]:
    """Resources that were never short: with more of them, the same would have happened."""
    found = {"sequences"} if played.seen.running < limits.sequences else set()
    if limits.blocks is not None and played.seen.free * limits.block_size > played.seen.context:
        found |= {"kv"}
    return frozenset(found)

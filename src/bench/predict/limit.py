"""The highest load within the SLOs, by replays of a curve's own requests on its calibrated model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.predict.asked import Asked
from bench.predict.calibrate import Member
from bench.predict.carried import CLOSE, FAR, TIMES, WARM, answered_rps, crossing, full_rps, worst_excess
from bench.predict.step_time import ASSUMED_ERROR
from bench.statistics.textbook import Z
from bench.study.slo import Slo

_OFF = 1.3  # factor between a model's limit of its own server and the measured one from which on it is no model; convention
# ln of a model's latency at the measured limit ÷ the SLO's from which on it is no model; derived: what predictions of unseen loads are
# off by, at 95 %
_LATENCY_OFF = Z * ASSUMED_ERROR
_HIGHEST = 8.0  # load from which on none is within the SLOs ÷ the measured limit; convention


@dataclass(frozen=True)
class Highest:
    """The highest load within the SLOs.

    Attributes:
        open: whether no load beyond it was tried. over: by how much (ln) latency may be over its limit, as it was where the limit was
            measured.
    """

    level: float
    rps: float
    open: bool
    over: float = 0.0


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
        found = self.limit(self._member, self._near)
        if measured is None:
            return found if found and found.level <= _OFF * self._near else None
        if found and (1 / _OFF < found.level / measured < _OFF or (self.held and abs(found.level - measured) < 1)):
            return found
        level = self._level(measured)
        excess, rps = self._try(self._member, level)
        return Highest(level, rps, open=False, over=excess) if abs(excess) <= _LATENCY_OFF and len(self._slos) == 1 else None

    def limit(self, server: Member, start: float, own: Highest | None = None) -> Highest | None:
        """The highest load within the SLOs of a server that is like the member.

        Args:
            start: where to begin to look. own: the member's, which is returned where the next load is too high for the server as well.
        """
        highest, over = _HIGHEST * self._near, own.over if own else 0.0
        most = highest if self.held else min(highest, self._full(server))
        tried: dict[float, tuple[float, float]] = {}

        def excess(load: float) -> float:
            level = self._level(load)
            if level not in tried:
                tried[level] = self._try(server, level)
            return tried[level][0] - over

        if own:
            above = self._level(max(CLOSE * own.level, own.level + self.held))
            if above >= most or excess(above) > 0:
                return own
        found = self._level(crossing(excess, min(start, most / CLOSE), most=most)) if most else 0.0
        if found not in tried or excess(found) > 0:
            return None
        return Highest(found, tried[found][1], open=most == highest and found == max(tried), over=over)

    def _full(self, server: Member) -> float:
        """The level at which as many requests come as a server answers that is always full: beyond it they pile up."""
        plans = self._asked.at(1.0, max(self._asked.fewest, TIMES * server.limits.sequences))
        return full_rps(server, plans) * max(plan.due_s or 0.0 for plan in plans) / len(plans)

    def _level(self, load: float) -> float:
        """A load as it can be asked for, and no higher: of a closed loop a whole number."""
        return float(max(1, math.floor(round(load, 6)))) if self.held else load  # exp(ln 6) may be just less than 6

    def _try(self, server: Member, level: float) -> tuple[float, float]:
        """By how much (ln) latencies at a level are over their limits, and what goes through, to be compared with other levels."""
        held = int(level) if self.held else None
        count = max(self._asked.fewest, TIMES * (held or self._member.limits.sequences))
        done = server.replay(self._asked.at(level, count), held=held).requests.sort("sent_s")
        if not (rps := answered_rps(done)):
            return FAR, 0.0
        return worst_excess(server, done[int(WARM * done.height) :], self._slos), rps if held else level

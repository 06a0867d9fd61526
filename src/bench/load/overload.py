"""Whether requests of an open loop plainly pile up: then the rest of the run would show nothing else, under any SLO.

The rule compares what the server finishes with what is still to come. It must never stop a run that carries its load, so it waits where
it is not sure: while a server still fills, after a stall, in a burst of arrivals (docs/explanation/method.md).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from bench.load.exchange import Exchange

LOOKS_S = 0.1  # time between two looks (s); convention
_LATER = 1.02  # time ÷ the time so far at which a run that is not stopped is judged again; convention
_FEWEST = 100  # fewest requests that were due; tuned: benchmarks.overload, seeds 22 and 23
_SHORTEST_S = 10.0  # shortest time so far (s); tuned: benchmarks.overload, seeds 22 and 23
# share of the time in which requests are to be sent before which nothing is stopped: what slows a machine down for a while must not
# decide; tuned: benchmarks.overload, seeds 22 and 23
_LEAST = 0.3
_MOST = 0.9  # share of it after which nothing is gained; convention
_PARTS = 8  # parts of the time so far; tuned: benchmarks.overload, seeds 22 and 23
_FILLS = 2  # parts in which the server fills; tuned: benchmarks.overload, seeds 22 and 23
# share of the offered rate: a server that finishes more may still catch up; tuned: benchmarks.overload, seeds 22 and 23
_CARRIED = 0.8
_STALLS = 0.25  # share of what it finishes in the mean below which it stands still; tuned: benchmarks.overload, seeds 22 and 23
_SURE = 2.5  # standard errors of a count; tuned: benchmarks.overload, seeds 22 and 23
# share of a straight line from 0 that is in flight at the end of each part; tuned: benchmarks.overload, seeds 22 and 23
_STEADY = 0.5
_FIRST = 20  # requests that meet a server that is nearly empty; tuned: benchmarks.overload, seeds 22 and 23
_STRAGGLERS = 2  # slowest ones of these that do not count; tuned: benchmarks.overload, seeds 22 and 23
_LATENCIES = 4.0  # time so far in latencies of those requests; tuned: benchmarks.overload, seeds 22 and 23


class Overload:
    """Watches one run.

    Args:
        exchanges: all of the run, each with the moment at which it is due. start: of the run, on the monotonic clock.
    """

    def __init__(self, exchanges: Sequence[Exchange], start: float) -> None:
        self._first = sorted(exchanges, key=lambda x: x.due_s or 0.0)[:_FIRST]
        self._due = sorted(x.due_s or 0.0 for x in exchanges)
        self._start, self._again = start, _SHORTEST_S
        self._times, self._ended = [0.0], [0.0]

    def plain(self, moment: float, ended: int) -> bool:
        """Whether the run is plainly overloaded.

        Args:
            moment: now. ended: exchanges that have ended so far, whether they failed or not.
        """
        at = moment - self._start
        if at <= self._times[-1]:
            return False
        self._times.append(at)
        self._ended.append(ended)
        if at < self._again:
            return False
        self._again = at * _LATER
        due = bisect_right(self._due, at)
        whole = self._due[-1]
        return due >= _FEWEST and _LEAST * whole <= at <= _MOST * whole and self._piles_up(at, due)

    def _piles_up(self, at: float, due: int) -> bool:
        span = self._due[-1]
        # A burst of arrivals is no overload where fewer come afterwards.
        offered = min(len(self._due) / span, (len(self._due) - due) / (span - at))
        edges = [at * part / _PARTS for part in range(_PARTS + 1)]
        ended = [self._ended_by(edge) for edge in edges]
        done = [after - before for before, after in pairwise(ended)]
        edges, ended = edges[_FILLS:], ended[_FILLS:]
        # In no part does it finish what comes: a slow spell would have to last for nearly all of the time. Nor does it stand still.
        most, least = _CARRIED * offered * at / _PARTS, _STALLS * (ended[-1] - ended[0]) / (_PARTS - _FILLS)
        if max(done) > most or min(done[_FILLS:]) < least:
            return False
        flying = [bisect_right(self._due, edge) - count for edge, count in zip(edges, ended, strict=True)]
        if any(count < _STEADY * flying[-1] * edge / at for count, edge in zip(flying, edges, strict=True)):
            return False
        count = ended[-1] - ended[0]
        rate = (count + _SURE * math.sqrt(count)) / (edges[-1] - edges[0])
        if rate > _CARRIED * offered:
            return False
        half = _PARTS // 2 - _FILLS  # from there on the run's growth is judged when it is parsed
        grown = flying[-1] - flying[half]
        came = grown + ended[-1] - ended[half]
        return grown >= (1 - _CARRIED) * came and self._full(at, offered, flying, ended)

    def _full(self, at: float, offered: float, flying: Sequence[float], ended: Sequence[float]) -> bool:
        """Whether a server that finishes so few is full, and does not still fill.

        One that has more in flight than it began with takes longer for each, and finishes more in all. Where latencies grow no faster
        than by the same for each request in flight, it will never finish more than n ÷ (latency − latency of the first requests).
        """
        alone = self._alone(at)
        rate = (ended[-1] - ended[-3]) / (2 * at / _PARTS)
        if alone is None or not rate or at < _LATENCIES * alone:
            return False
        held = sum(flying[-3:]) / 3
        latency = held / rate  # Little's law
        return latency > alone and held / (latency - alone) <= _CARRIED * offered

    def _alone(self, at: float) -> float | None:
        """How long the first requests took, but for stragglers (s); None while too many of them have not ended."""
        ends = ((x.end - self._start, x.due_s or 0.0) for x in self._first if x.end is not None)
        took = sorted(end - due for end, due in ends if end <= at)
        enough = len(self._first) - _STRAGGLERS
        return took[enough - 1] if len(took) >= enough else None

    def _ended_by(self, at: float) -> float:
        """How many had ended by then, between two looks in proportion."""
        i = bisect_right(self._times, at)
        if i == len(self._times):
            return self._ended[-1]
        (before, after), (low, high) = self._times[i - 1 : i + 1], self._ended[i - 1 : i + 1]
        return low + (high - low) * (at - before) / (after - before)

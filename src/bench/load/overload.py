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
_SHORTEST_S = 10.0  # shortest time so far (s); convention: a machine may pause for seconds
_LEAST = 0.3  # share of the run before which a machine may only have been slow for a while; tuned: benchmarks.overload
_PARTS = 6  # parts of the time so far, in the first of which the server fills; convention
_CARRIED = 0.8  # share of the offered rate: a server that finishes more may still catch up; tuned: benchmarks.overload
_FIRST = 20  # requests that meet a server that is nearly empty, of which the slowest tenth does not count; convention
_FEWEST = _PARTS * _FIRST  # fewest requests that were due; derived: as many in each part
_LATENCIES = 4.0  # shortest time so far in latencies of those requests; tuned: benchmarks.overload


class Overload:
    """Watches one run.

    Args:
        exchanges: all of the run, each with the moment at which it is due. start: of the run, on the monotonic clock.
    """

    def __init__(self, exchanges: Sequence[Exchange], start: float) -> None:
        self._first = sorted(exchanges, key=lambda x: x.due_s or 0.0)[:_FIRST]
        self._due = sorted(x.due_s or 0.0 for x in exchanges)
        self._start, self._again = start, max(_SHORTEST_S, _LEAST * max(self._due, default=0.0))
        self._times, self._ended = [0.0], [0]

    def plain(self, moment: float, ended: int) -> bool:
        """Whether the run is plainly overloaded.

        Args:
            moment: now. ended: exchanges that have ended so far, whether they failed or not.
        """
        at = moment - self._start
        self._times.append(at)
        self._ended.append(ended)
        if at < self._again:
            return False
        self._again = at * _LATER
        due, span = bisect_right(self._due, at), self._due[-1]
        if due < _FEWEST or at >= span:
            return False
        # A burst of arrivals is no overload where fewer come afterwards.
        offered = min(len(self._due) / span, (len(self._due) - due) / (span - at))
        return self._piles_up(at, _CARRIED * offered)

    def _piles_up(self, at: float, carried: float) -> bool:
        """Whether the server never finished more than this rate, and never will.

        One that has more in flight than it began with takes longer for each, and finishes more in all. Where latencies grow no faster
        than by the same for each request in flight, it will never finish more than n ÷ (latency − latency of the first requests).
        """
        part_s = at / _PARTS
        edges = [part_s * part for part in range(_PARTS + 1)]
        ended = [self._ended[bisect_right(self._times, edge) - 1] for edge in edges]
        done = [after - before for before, after in pairwise(ended)]
        alone = self._alone(at)
        # In no part does it finish what comes, by a standard error: a slow spell would have to last for nearly all of the time.
        if max(done) + math.sqrt(max(done)) > carried * part_s or not done[-1] or alone is None or at < _LATENCIES * alone:
            return False
        held = sum(bisect_right(self._due, edge) - count for edge, count in zip(edges[-2:], ended[-2:], strict=True)) / 2
        latency = held * part_s / done[-1]  # Little's law
        return latency > alone and held / (latency - alone) <= carried

    def _alone(self, at: float) -> float | None:
        """How long the first requests took, but for a tenth of them (s); None while too many of them have not ended."""
        ends = ((x.end - self._start, x.due_s or 0.0) for x in self._first if x.end is not None)
        took = sorted(end - due for end, due in ends if end <= at)
        enough = len(self._first) * 9 // 10
        return took[enough - 1] if len(took) >= enough else None

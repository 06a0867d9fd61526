"""What the machine does while a run is measured, and how much of that is neither the server nor its load."""

from __future__ import annotations

import itertools
import os
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import psutil

from bench.measure.serving import family, may_serve_through, servers_at
from bench.runs.run import Host

_ASLEEP = ("idle", "iowait")
_TWICE = ("guest", "guest_nice")  # counted in user and nice already
_DISTURBS_NOTHING = 0.01  # share of the cores' time that processes may use together and disturb nothing; convention

_Times = Mapping[psutil.Process, float]


class HostWatch:
    """Watches the cores that this process may use, from construction.

    Args:
        whole: whether the server's processes descend from this one, so that what they use is known.
        address: else where the server answers; those that listen there on this machine are the server.
        behind: where the engines of a router answer. Those that are not on this machine use nothing of it.
    """

    def __init__(self, *, whole: bool, address: str | None = None, behind: Sequence[str] = ()) -> None:
        self._servers = [] if whole else servers_at(address) if address else None
        if self._servers:
            engines = [servers_at(each) or () for each in behind]
            self._servers = list(dict.fromkeys([*self._servers, *itertools.chain.from_iterable(engines)]))
        self._begin, self._own = core_times(), own_s()
        self._before = process_times() if self._servers else {}
        self._ahead = wall_ahead_s()

    def seen(self) -> Host:
        """Shares of those cores' time since construction."""
        now, own = core_times(), own_s() - self._own
        spent = {key: now[key] - self._begin[key] for key in now}
        total = sum(spent.values()) or 1.0
        busy = total - sum(spent.get(key, 0.0) for key in _ASLEEP)
        others = self._others_s(busy - spent.get("steal", 0.0) - own, total)
        return Host(
            busy_share=round(busy / total, 4),
            steal_share=round(spent.get("steal", 0.0) / total, 4),
            other_share=None if others is None else round(others / total, 4),
            clock_step_s=round(wall_ahead_s() - self._ahead, 3),
        )

    def _others_s(self, rest: float, total: float) -> float | None:
        """CPU time of what is neither the server nor its load (s); None where it is not known.

        A process that those that listen may ask may be the engine behind a proxy, or others' work. What it uses is held against no run,
        however much that is: the same server uses little at a low load, and would be judged by its load. So what is left is the least
        that others used, and says nothing where it is next to nothing. No threshold counts here: results are judged by several.

        Args:
            rest: CPU time that this process and its descendants do not explain (s). total: the cores' time (s).
        """
        if self._servers is None or not all(process.is_running() for process in self._servers):
            return None
        if not self._servers:
            return max(0.0, rest)
        used, servers = _since(self._before, process_times()), family(self._servers)
        others = max(0.0, rest - sum(used.get(process, 0.0) for process in servers))
        strangers = {each: used[each] for each in used.keys() - servers - family([psutil.Process()])}
        little = _DISTURBS_NOTHING * total
        doubtful = sum(strangers[each] for each in _largest(strangers, little) if may_serve_through(each, self._servers))
        if not doubtful:
            return others
        return others - doubtful if others - doubtful > little else None


def _largest(used: _Times, little: float) -> list[psutil.Process]:
    """The processes but those of least use, which together used no more than `little` (s)."""
    least = sorted(used, key=lambda each: used[each])
    together = list(accumulate(used[each] for each in least))
    return least[bisect_right(together, little) :]


def wall_ahead_s() -> float:
    """By how much the wall clock is ahead of the clock of every stamp, which stands still while the machine is suspended (s)."""
    return time.time() - time.monotonic()


def core_times() -> dict[str, float]:
    """Time of the cores that this process may use, by what they did (s)."""
    cores: list[Any] = psutil.cpu_times(percpu=True)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(cores))
    mine = [cores[i] for i in allowed if i < len(cores)] or cores
    return {key: sum(getattr(core, key) for core in mine) for key in mine[0]._fields if key not in _TWICE}


def own_s() -> float:
    """CPU time of this process and of all that descend from it, ended ones included (s)."""
    return sum(_times(process) for process in family([psutil.Process()]))


def process_times() -> dict[psutil.Process, float]:
    """CPU time of every process (s); children that ended are left out, since the first process gets those of all others."""
    return {process: _times(process, ended=False) for process in psutil.process_iter()}


def _since(before: _Times, now: _Times) -> dict[psutil.Process, float]:
    """CPU time of each process meanwhile (s): of one that came later, all of its."""
    return {process: seconds - before.get(process, 0.0) for process, seconds in now.items()}


def _times(process: psutil.Process, *, ended: bool = True) -> float:
    """CPU time of a process, and of its children that ended (s)."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + ended * (times.children_user + times.children_system))
    return 0.0

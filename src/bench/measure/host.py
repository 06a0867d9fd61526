"""What the machine does while a run is measured, and how much of that is neither the server nor its load."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

import psutil

from bench.records.run import Host

__all__ = ["HostWatch"]

_ASLEEP = ("idle", "iowait")
_TWICE = ("guest", "guest_nice")  # counted in user and nice already


class HostWatch:
    """Watches the cores that this process may use, from construction.

    Args:
        whole: whether the server's processes descend from this one, so that what they use is known.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._begin, self._own = _core_times(), _own_s()
        self._ahead = _wall_ahead_s()

    def seen(self) -> Host:
        """Shares of those cores' time since then."""
        now, own = _core_times(), _own_s() - self._own
        spent = {key: now[key] - self._begin[key] for key in now}
        total = sum(spent.values()) or 1.0
        busy = total - sum(spent.get(key, 0.0) for key in _ASLEEP)
        others = max(0.0, busy - spent.get("steal", 0.0) - own)
        return Host(
            busy_share=round(busy / total, 4),
            steal_share=round(spent.get("steal", 0.0) / total, 4),
            other_share=round(others / total, 4) if self._whole else None,
            clock_step_s=round(_wall_ahead_s() - self._ahead, 3),
        )


def _wall_ahead_s() -> float:
    """By how much the wall clock is ahead of the clock of every stamp, which stands still while the machine is suspended (s)."""
    return time.time() - time.monotonic()


def _core_times() -> dict[str, float]:
    """Time of the cores that this process may use, by what they did (s)."""
    cores: list[Any] = psutil.cpu_times(percpu=True)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(cores))
    mine = [cores[i] for i in allowed if i < len(cores)] or cores
    return {key: sum(getattr(core, key) for core in mine) for key in mine[0]._fields if key not in _TWICE}


def _own_s() -> float:
    """CPU time of this process and of all that descend from it, ended ones included (s)."""
    own = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.Error):
            times = process.cpu_times()
            own += times.user + times.system + times.children_user + times.children_system
    return own

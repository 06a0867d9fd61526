"""A worker of a fleet that is killed while a load is sent."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from bench.engine import Fleet
from bench.records.run import Lost
from bench.study.lose import Lose

__all__ = ["Losing"]


class Losing:
    """Kills the worker some time after it is entered; left, it no longer does."""

    def __init__(self, fleet: Fleet, lose: Lose) -> None:
        self._fleet, self._lose = fleet, lose
        self._timer = threading.Timer(lose.after_s, self._kill)
        self._at: float | None = None

    def __enter__(self) -> Losing:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._timer.cancel()
        self._timer.join()

    def _kill(self) -> None:
        self._at = time.monotonic()
        self._fleet.lose(self._lose.worker)

    def lost(self, start: float) -> Lost | None:
        """What was killed, and when since a run's `start` (s on CLOCK_MONOTONIC); None where the load had ended before."""
        if self._at is None:
            return None
        return Lost(worker=list(self._fleet.workers)[self._lose.worker - 1], at_s=round(self._at - start, 6))

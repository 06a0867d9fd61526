"""A worker of a fleet that is killed while a load is sent."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from bench.engine import Fleet
from bench.records.run import Lost
from bench.study.lose import Lose


class Losing:
    """Kills the worker some time after it is entered; left, it no longer does, and raises what the kill raised."""

    def __init__(self, fleet: Fleet, lose: Lose) -> None:
        self._fleet, self._lose = fleet, lose
        self._timer = threading.Timer(lose.after_s, self._kill)
        self._at: float | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Losing:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._error is not None and error is None:
            raise self._error

    def _kill(self) -> None:
        at = time.monotonic()
        try:
            self._fleet.lose(self._lose.worker)
        except BaseException as error:  # of the timer's thread, where nobody would see it
            self._error = error
        else:
            self._at = at

    def lost(self, start: float) -> Lost | None:
        """What was killed, and when since a run's `start` (s on CLOCK_MONOTONIC); None where the load had ended before."""
        if self._at is None:
            return None
        return Lost(worker=list(self._fleet.workers)[self._lose.worker - 1], at_s=round(self._at - start, 6))

"""What a session says while it measures: how each run went, how long the rest takes, and what share of its time was measuring."""

from __future__ import annotations

from collections.abc import Sequence

from bench.load.schedule import schedule
from bench.records.request import RequestRecord
from bench.study import RunSpec

__all__ = ["Clock"]

_BETWEEN_S = 0.7  # from one run's end to the next one's start: drain, records, the load process's start


class Clock:
    """Progress lines with the time left: the moments of open loops, and for the rest the tokens that are left at the speed so far."""

    def __init__(self) -> None:
        self._total, self._done = 0, 0
        self._left: dict[str, tuple[float | None, int]] = {}
        self._spent_s, self._tokens_done, self._measured_s = 0.0, 0, 0.0

    def add(self, runs: Sequence[RunSpec]) -> None:
        """Count runs that are going to be measured."""
        self._total += len(runs)
        self._left |= {run.digest: _size(run) for run in runs}

    def share(self, since_ready_s: float) -> str:
        """How much of the session's time went into measuring."""
        return (
            f"{self._total} runs in {since_ready_s:.0f} s since the server was ready, {self._measured_s:.0f} s of them "
            f"({self._measured_s / since_ready_s:.0%}) under measured load"
        )

    def line(self, run: RunSpec, records: Sequence[RequestRecord], tokens_per_s: float, duration_s: float) -> str:
        self._done += 1
        self._measured_s += duration_s
        _, tokens = self._left.pop(run.digest)
        if run.workload.axis == "concurrency":
            self._spent_s, self._tokens_done = self._spent_s + duration_s, self._tokens_done + tokens
        pace = self._spent_s / self._tokens_done if self._tokens_done else 0.0
        left = sum(_BETWEEN_S + (moments if moments is not None else n * pace) for moments, n in self._left.values())
        failed = sum(r.outcome != "ok" for r in records)
        ttft = sorted(r.ttft_s for r in records if r.ttft_s is not None)
        middle = f"TTFT P50 {ttft[(len(ttft) - 1) // 2]:.3f} s" if ttft else "no first token"
        return (
            f"{run.deployment.name}: run {self._done} of {self._total}, {run.workload.axis.replace('_', ' ')} {run.level:g}: "
            f"{tokens_per_s:.0f} tokens/s, {middle}, {duration_s:.1f} s"
            + (f", {failed} of {len(records)} requests failed" if failed else "")
            + (f"; about {left:.0f} s left" if self._done < self._total else "")
        )


def _size(run: RunSpec) -> tuple[float | None, int]:
    """How long a run's requests are sent (s; None where their answers decide), and the tokens that it asks for."""
    planned = schedule(run.workload, run.level, run.schedule_seed)
    moments = None if run.workload.axis == "concurrency" else max((x.due_s or 0.0 for x in planned), default=0.0)
    return moments, sum(x.output_tokens for x in planned)

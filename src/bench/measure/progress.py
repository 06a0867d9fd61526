"""What a session reports while it measures: a line after each run, and for those who look `progress.json`, which it rewrites
between runs, never during one.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

from bench.axes import AXES
from bench.errors import count_text, shown_share, throughput_text
from bench.runs.files import write_record
from bench.runs.request import RequestRecord
from bench.servers.spec import DeploymentSpec
from bench.study.specs import RunSpec
from bench.terminal import live
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.endpoints.kind import GENERATION
from bench.workloads.schedule import at_least_s, schedule


@dataclass(frozen=True, kw_only=True)
class SessionProgress:
    """A session. Times are Unix times by the clock of `host`.

    Attributes:
        deployment: whose session it is. host, pid: the process that measures.
        state: what it does, in words; how it ended where it is `over`. since: when that began. written: when this was written.
        run: number of the run that is being measured, from 1; None between runs. runs: how many it measures; done: how many of them it
            has. last: how fast the latest was, in words.
        left_s: about how long the rest of the session takes after `written`, without its searches; None: not known yet.
    """

    deployment: str
    host: str
    pid: int
    state: str
    since: float
    written: float
    runs: int
    over: bool = False
    run: int | None = None
    done: int = 0
    last: str = ""
    left_s: float | None = None


# time from one run's end to the next one's start (s): drain, records, the load process's start, the reference load; convention
_BETWEEN_S = 1.2
_BAR = 20  # characters of a session's bar; convention


class Clock:
    """How long the rest takes: the moments of open loops, and for closed ones the tokens that are left at the speed so far."""

    def __init__(self) -> None:
        self.total, self.done, self.measured_s = 0, 0, 0.0
        self._left: dict[str, _Size] = {}
        self._spent_s, self._tokens_done = 0.0, 0

    def add(self, runs: Sequence[RunSpec]) -> None:
        """Count runs that are going to be measured."""
        self.total += len(runs)
        self._left |= {run.digest: _Size.of(run) for run in runs}

    def finish(self, run: RunSpec, duration_s: float) -> None:
        """Count a run as measured."""
        self.done += 1
        self.measured_s += duration_s
        size = self._left.pop(run.digest)
        if size.moments_s is None:
            self._spent_s, self._tokens_done = self._spent_s + duration_s, self._tokens_done + size.output_tokens

    @property
    def left_s(self) -> float | None:
        """About how long the rest takes; None while no speed is known."""
        each = [self._expected(size) for size in self._left.values()]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) + _BETWEEN_S * len(known) if len(known) == len(each) else None

    def _expected(self, size: _Size) -> float | None:
        if size.moments_s is not None:
            return size.moments_s
        return size.output_tokens * self._spent_s / self._tokens_done if self._tokens_done else None


class _Size(NamedTuple):
    """How long a run's requests are sent (s; None where their answers decide), and what it asks for."""

    moments_s: float | None
    output_tokens: int

    @classmethod
    def of(cls, run: RunSpec) -> _Size:
        planned = schedule(run.workload, run.level, run.schedule_seed)
        return cls(None if AXES[run.workload.axis].held else at_least_s(planned), sum(x.tokens for x in planned))


class Progress:
    """A session's progress: lines for people, and the file. Nothing is written while a run is measured.

    Args:
        file: where the record goes, beside the session's facts.
    """

    def __init__(self, spec: DeploymentSpec, file: Path, *, runs: int) -> None:
        self._spec, self._file = spec, file
        self._starts, self._before = 0, 0  # of the server; and runs that were measured before its last one
        self.clock = Clock()
        now = time.time()
        self._record = SessionProgress(
            deployment=spec.name, host=socket.gethostname(), pid=os.getpid(), state="", since=now, written=now, runs=runs
        )

    def starting(self, runs: int) -> None:
        """Write that a server is being started for so many runs; their clock begins anew."""
        self._starts, self._before = self._starts + 1, self._before + self.clock.done
        self.clock = Clock()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._write(state=f"starting {self._spec.deployment.engine}", runs=self._before + runs)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Write how the session ended, whichever way it does."""
        try:
            yield
        except Exception as error:
            self._write(state=f"failed: {str(error).partition(chr(10))[0]}", over=True)
            raise
        except BaseException:  # SIGTERM, Ctrl-C
            self._write(state="ended", over=True)
            raise
        if self._starts:
            self._write(state="finished", over=True)

    def state(self, state: str) -> None:
        """Write that another state began."""
        self._write(state=state)

    def run_begins(self, run: RunSpec) -> None:
        """Write which run is measured next."""
        number = self._before + self.clock.done + 1
        self._write(state=_load_text(run), run=number, runs=max(self._record.runs, number))  # a search adds its runs one by one

    def run_ended(self, run: RunSpec, records: Sequence[RequestRecord], tokens_per_s: float | None, duration_s: float) -> str:
        """Write how a run went. Returns: the same as a line for people."""
        clock = self.clock
        clock.finish(run, duration_s)
        speed = _speed_text(run, records, tokens_per_s)
        self._write(state="between runs", last=speed, done=self._before + clock.done, runs=self._before + clock.total)
        bad = sum(record.outcome != "ok" for record in records)
        failed = f", {count_text(bad, 'request', of=len(records))} failed" if bad else ""
        left = f"; about {duration_text(clock.left_s)} left" if clock.left_s is not None and clock.done < clock.total else ""
        number = (
            f"run {clock.done}" if run.searched else f"run {clock.done} of {clock.total}"
        )  # of a search nobody knows how many
        return f"{number}, {_load_text(run)}: {speed}, {duration_s:.1f} s{failed}{left}"

    def share_text(self, since_ready_s: float) -> str:
        """How much of the session's time went into measuring."""
        share = shown_share(self.clock.measured_s / since_ready_s)
        return (
            f"{count_text(self.clock.total, 'run')} in {since_ready_s:.0f} s since the server was ready, "
            f"{self.clock.measured_s:.0f} s of them ({share}) under measured load"
        )

    def _write(self, *, run: int | None = None, **changed: Any) -> None:
        now, left_s = time.time(), self.clock.left_s if self.clock.total else None
        self._record = replace(self._record, left_s=left_s, run=run, since=now, written=now, **changed)
        with suppress(OSError):  # nobody's measurement ends because it cannot be watched
            write_record(self._record, self._file)
        live("" if self._record.over else session_line(self._record))


def session_line(record: SessionProgress, now: float | None = None) -> str:
    """A session in a line: how far it is, what it does, how its last run went, and the time left.

    Args:
        now: Unix time; None leaves out since when.
    """
    since = f" for {duration_text(max(0.0, now - record.since))}" if now is not None and not record.over else ""
    filled = round(_BAR * record.done / max(1, record.runs))
    parts = [
        record.deployment,
        f"{'█' * filled}{'░' * (_BAR - filled)} {record.done}/{record.runs}",
        record.state + since,
        record.last,
        f"about {duration_text(record.left_s)} left" if record.left_s is not None and not record.over else "",
    ]
    return "  ".join(filter(None, parts))


def _load_text(run: RunSpec) -> str:
    return f"{run.workload_name}, {run.workload.axis.replace('_', ' ')} {float(run.level):g}"


def _speed_text(run: RunSpec, records: Sequence[RequestRecord], tokens_per_s: float | None) -> str:
    """What its work counts a second, and the median TTFT by the client's clock; E2E where no answer streamed."""
    unit = ENDPOINTS[run.workload.endpoint].work.unit
    speed = throughput_text(tokens_per_s, "tokens" if unit == GENERATION.unit else unit)
    for name, values in (("TTFT", [each.ttft_s for each in records]), ("E2E", [each.e2e_s for each in records])):
        if known := [value for value in values if value is not None]:
            return f"{speed}, {name} P50 {median_low(known):.3f} s"
    return f"{speed}, no answer"


def duration_text(seconds: float) -> str:
    """A duration as people say it: `40 s`, `3 min`, `1 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"

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
from typing import Any

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
        state: what it does, in words; how it ended where it is `over`. since: when that began, and when this was written.
        run: number of the run that is being measured, from 1; None between runs. runs: how many it measures; done: how many of them it
            has. last: how fast the latest was, in words.
        left_s: about how long the rest of the session takes after `since`, without its searches; None: not known yet.
    """

    deployment: str
    host: str
    pid: int
    state: str
    since: float
    runs: int
    over: bool = False
    run: int | None = None
    done: int = 0
    last: str = ""
    left_s: float | None = None


# time from one run's end to the next one's start (s): drain, records, the load process's start, the reference load; convention
_BETWEEN_S = 1.2
_BAR = 20  # characters of a session's bar; convention


class Progress:
    """A session's progress: lines for people, and the file. Nothing is written while a run is measured.

    The rest takes the moments of open loops, and of closed ones the tokens that are left at the speed so far.

    Args:
        file: where the record goes, beside the session's facts.
    """

    def __init__(self, spec: DeploymentSpec, file: Path, *, runs: int) -> None:
        self._spec, self._file = spec, file
        self._starts, self._before = 0, 0  # of the server; and runs that were measured before its last one
        self._begin()
        self._record = SessionProgress(
            deployment=spec.name, host=socket.gethostname(), pid=os.getpid(), state="", since=time.time(), runs=runs
        )

    def _begin(self) -> None:
        self._total, self._done, self._measured_s = 0, 0, 0.0
        self._left: dict[
            str, tuple[float | None, int]
        ] = {}  # by run: how long its requests are sent (s), and tokens that it asks for
        self._spent_s, self._tokens_done = 0.0, 0  # of runs that end with their answers

    def add(self, runs: Sequence[RunSpec]) -> None:
        """Count runs that are going to be measured."""
        self._total += len(runs)
        for run in runs:
            planned = schedule(run.workload, run.level, run.schedule_seed)
            moments_s = None if AXES[run.workload.axis].held else at_least_s(planned)
            self._left[run.digest] = moments_s, sum(each.tokens for each in planned)

    @property
    def left_s(self) -> float | None:
        """About how long the rest takes; None while no speed is known."""
        speed = self._spent_s / self._tokens_done if self._tokens_done else None
        each = [moments_s if moments_s is not None else speed and tokens * speed for moments_s, tokens in self._left.values()]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) + _BETWEEN_S * len(known) if len(known) == len(each) else None

    def starting(self, runs: int) -> None:
        """Write that a server is being started for so many runs; their clock begins anew."""
        self._starts, self._before = self._starts + 1, self._before + self._done
        self._begin()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self.state(f"starting {self._spec.deployment.engine}", runs=self._before + runs)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Write how the session ended, whichever way it does."""
        try:
            yield
        except Exception as error:
            self.state(f"failed: {str(error).partition(chr(10))[0]}", over=True)
            raise
        except BaseException:  # SIGTERM, Ctrl-C
            self.state("ended", over=True)
            raise
        if self._starts:
            self.state("finished", over=True)

    def run_begins(self, run: RunSpec) -> None:
        """Write which run is measured next."""
        number = self._before + self._done + 1
        self.state(_load_text(run), run=number, runs=max(self._record.runs, number))  # a search adds its runs one by one

    def run_ended(self, run: RunSpec, records: Sequence[RequestRecord], tokens_per_s: float | None, duration_s: float) -> str:
        """Write how a run went. Returns: the same as a line for people."""
        self._done, self._measured_s = self._done + 1, self._measured_s + duration_s
        moments_s, tokens = self._left.pop(run.digest)
        if moments_s is None:
            self._spent_s, self._tokens_done = self._spent_s + duration_s, self._tokens_done + tokens
        speed = _speed_text(run, records, tokens_per_s)
        self.state("between runs", last=speed, done=self._before + self._done, runs=self._before + self._total)
        bad = sum(record.outcome != "ok" for record in records)
        failed = f", {count_text(bad, 'request', of=len(records))} failed" if bad else ""
        left = f"; about {duration_text(self.left_s)} left" if self.left_s is not None and self._left else ""
        of = "" if run.searched else f" of {self._total}"  # of a search nobody knows how many
        return f"run {self._done}{of}, {_load_text(run)}: {speed}, {duration_s:.1f} s{failed}{left}"

    def share_text(self, since_ready_s: float) -> str:
        """How much of the session's time went into measuring."""
        return (
            f"{count_text(self._total, 'run')} in {since_ready_s:.0f} s since the server was ready, {self._measured_s:.0f} s of them "
            f"({shown_share(self._measured_s / since_ready_s)}) under measured load"
        )

    def state(self, state: str, *, run: int | None = None, **changed: Any) -> None:
        """Write that another state began."""
        left_s = self.left_s if self._total else None
        self._record = replace(self._record, state=state, left_s=left_s, run=run, since=time.time(), **changed)
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

"""What a session reports while it measures: a line after each run, and for those who look `progress.json`, which it rewrites
between runs, never during one.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
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
from bench.study.plan import Plan
from bench.study.searches import search_record
from bench.study.specs import RunSpec
from bench.terminal import live
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.endpoints.kind import GENERATION
from bench.workloads.schedule import at_least_s, schedule


@dataclass(frozen=True, kw_only=True)
class RunUnderWay:
    """The run that is being measured.

    Attributes:
        run: its name. number: among the session's runs, from 1. workload, axis, level: its load. requests: what it asks for.
        since: Unix time at which its preparation began. expected_s: about how long it takes; None where nothing tells yet.
    """

    run: str
    number: int
    workload: str
    axis: str
    level: float
    requests: int
    since: float
    expected_s: float | None


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run that this session measured.

    Attributes:
        workload, axis, level: its load. tokens_per_s: what its work counts (`unit`); None where the server did not count those of each
            answer. ttft_p50_s, e2e_p50_s: by the client's clock; None where no answer streamed, or none came.
        requests, failed: how many were sent, and how many of them failed.
    """

    workload: str
    axis: str
    level: float
    tokens_per_s: float | None
    ttft_p50_s: float | None
    e2e_p50_s: float | None
    unit: str
    duration_s: float
    requests: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class SessionProgress:
    """A session. Times are Unix times by the clock of `host`.

    Attributes:
        deployment, engine, session: whose session it is, and its number. host, pid: the process that measures.
        state: `starting` (its server), `warming up`, `reference load`, `measuring` (`run`), `between runs`, `finished`, `failed` or
            `ended` (by a signal). detail: why it failed. since: when the state began. written: when this was written.
        runs: how many it measures; done: how many of them it has. last: the latest. study_runs, study_done: of the whole study, when
            this session began.
        search: what the search that goes on knows so far; empty without one, whose runs nobody can count beforehand.
        left_s: about how long the rest of the session takes after `written`; study_left_s: of the study; None: not known yet.
        searches_s: the most that this session's searches, and those of other sessions, may still take under load, beside both.
    """

    deployment: str
    engine: str
    session: int
    host: str
    pid: int
    state: str
    since: float
    written: float
    runs: int
    study_runs: int
    study_done: int
    detail: str = ""
    run: RunUnderWay | None = None
    done: int = 0
    last: FinishedRun | None = None
    search: str = ""
    left_s: float | None = None
    study_left_s: float | None = None
    searches_s: float = 0.0

    @property
    def over(self) -> bool:
        """Whether the session has come to an end."""
        return self.state in ("finished", "failed", "ended")


# time from one run's end to the next one's start (s): drain, records, the load process's start, the reference load; convention
_BETWEEN_S = 1.2
_BAR = 20  # characters of a session's bar; convention


class Clock:
    """How long the rest takes: the moments of open loops, and for closed ones the tokens that are left at the speed so far."""

    def __init__(self) -> None:
        self.total, self.done = 0, 0
        self._left: dict[str, _Size] = {}
        self._spent_s, self._tokens_done, self._measured_s = 0.0, 0, 0.0

    def add(self, runs: Sequence[RunSpec]) -> None:
        """Count runs that are going to be measured."""
        self.total += len(runs)
        self._left |= {run.digest: _Size.of(run) for run in runs}

    def finish(self, run: RunSpec, duration_s: float) -> None:
        """Count a run as measured."""
        self.done += 1
        self._measured_s += duration_s
        size = self._left.pop(run.digest)
        if size.moments_s is None:
            self._spent_s, self._tokens_done = self._spent_s + duration_s, self._tokens_done + size.output_tokens

    def planned(self, run: RunSpec) -> tuple[int, float | None]:
        """Requests of a run that is still to be measured, and about how long it takes (None: no speed is known)."""
        size = self._left[run.digest]
        return size.requests, self._expected(size)

    @property
    def left_s(self) -> float | None:
        """About how long the rest takes; None while no speed is known."""
        each = [self._expected(size) for size in self._left.values()]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) + _BETWEEN_S * len(known) if len(known) == len(each) else None

    @property
    def run_s(self) -> float | None:
        """Mean time of a run so far, with what follows it; None before the first."""
        return self._measured_s / self.done + _BETWEEN_S if self.done else None

    def share(self, since_ready_s: float) -> str:
        """How much of the session's time went into measuring."""
        return (
            f"{count_text(self.total, 'run')} in {since_ready_s:.0f} s since the server was ready, {self._measured_s:.0f} s of them "
            f"({shown_share(self._measured_s / since_ready_s)}) under measured load"
        )

    def _expected(self, size: _Size) -> float | None:
        if size.moments_s is not None:
            return size.moments_s
        return size.output_tokens * self._spent_s / self._tokens_done if self._tokens_done else None


class Progress:
    """A session's progress: lines for people, and the file. Nothing is written while a run is measured.

    Args:
        file: where the record goes, beside the session's facts.
        done: how many of the study's runs are measured already.
    """

    def __init__(self, plan: Plan, spec: DeploymentSpec, session: int, file: Path, *, runs: int, done: int) -> None:
        self._file = file
        self._starts, self._before = 0, 0  # of the server; and runs that were measured before its last one
        self._searches: dict[str, float] = {}  # those of this session that are unfinished, with the seconds that each has left
        others = (each for each in plan.searches if each.deployment.name != spec.name and not search_record(each))
        self._others_s = sum(each.settings.seconds for each in others)
        self.clock = Clock()
        now = time.time()
        self._record = SessionProgress(
            deployment=spec.name,
            engine=spec.deployment.engine,
            session=session,
            host=socket.gethostname(),
            pid=os.getpid(),
            state="starting",
            since=now,
            written=now,
            runs=runs,
            study_runs=len(plan.runs),
            study_done=done,
        )

    def starting(self, runs: int, searches: Mapping[str, float] | None = None) -> None:
        """Write that a server is being started for so many runs, and searches (with the seconds that each may still take); their clock
        begins anew.
        """
        self._searches = dict(searches or {})
        self._starts, self._before = self._starts + 1, self._before + self.clock.done
        self.clock = Clock()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._record = replace(self._record, runs=self._before + runs)
        self.state("starting")

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Write how the session ended, whichever way it does."""
        try:
            yield
        except Exception as error:
            self.state("failed", str(error))
            raise
        except BaseException:  # SIGTERM, Ctrl-C
            self.state("ended")
            raise
        if self._starts:
            self.state("finished")

    def state(self, state: str, detail: str = "") -> None:
        """Write that another state began."""
        self._write(state=state, detail=detail, since=time.time(), run=None)

    def searching(self, search: str, known: str, left_s: float | None = None) -> None:
        """Write what a search knows so far.

        Args:
            search: its key. known: empty once it has ended. left_s: the most that it may still take; None: as before.
        """
        if left_s is not None:
            self._searches[search] = max(0.0, left_s)
        self._write(search=known)

    def run_begins(self, run: RunSpec) -> None:
        """Write which run is measured next."""
        requests, expected_s = self.clock.planned(run)
        now = time.time()
        under_way = RunUnderWay(
            run=run.name,
            number=self._before + self.clock.done + 1,
            workload=run.workload_name,
            axis=run.workload.axis,
            level=float(run.level),
            requests=requests,
            since=now,
            expected_s=expected_s,
        )
        runs = max(self._record.runs, under_way.number)  # a search adds its runs one by one
        self._write(state="measuring", detail="", since=now, run=under_way, runs=runs)

    def run_ended(self, run: RunSpec, records: Sequence[RequestRecord], tokens_per_s: float | None, duration_s: float) -> str:
        """Write how a run went. Returns: the same as a line for people."""
        self.clock.finish(run, duration_s)
        if run.searched:  # the search says more exactly what it has left, once it has looked at the run
            self._searches = {key: max(0.0, left_s - duration_s) for key, left_s in self._searches.items() if left_s}
        ttft = [record.ttft_s for record in records if record.ttft_s is not None]
        e2e = [record.e2e_s for record in records if record.e2e_s is not None]
        finished = FinishedRun(
            workload=run.workload_name,
            axis=run.workload.axis,
            level=float(run.level),
            tokens_per_s=None if tokens_per_s is None else round(tokens_per_s, 3),
            ttft_p50_s=round(median_low(ttft), 6) if ttft else None,
            e2e_p50_s=round(median_low(e2e), 6) if e2e else None,
            unit=ENDPOINTS[run.workload.endpoint].work.unit,
            duration_s=round(duration_s, 3),
            requests=len(records),
            failed=sum(record.outcome != "ok" for record in records),
        )
        runs, done = self._before + self.clock.total, self._before + self.clock.done
        self._write(state="between runs", detail="", since=time.time(), run=None, last=finished, done=done, runs=runs)
        return self._line(finished, searched=run.searched)

    def _write(self, **changed: Any) -> None:
        left_s = self.clock.left_s if self.clock.total else None
        self._record = replace(
            self._record,
            left_s=left_s,
            study_left_s=self._study_left_s(left_s),
            searches_s=sum(self._searches.values()) + self._others_s,
            written=time.time(),
            **changed,
        )
        with suppress(OSError):  # nobody's measurement ends because it cannot be watched
            write_record(self._record, self._file)
        live("" if self._record.over else session_line(self._record))

    def _study_left_s(self, left_s: float | None) -> float | None:
        """The session's rest, and the study's other runs as if each took as long as those of this session did."""
        others = self._record.study_runs - self._record.study_done - self._record.runs
        if left_s is None or self.clock.run_s is None:
            return None
        return left_s + max(0, others) * self.clock.run_s

    def _line(self, run: FinishedRun, *, searched: bool) -> str:
        done, record = self.clock.done, self._record
        failed = f", {count_text(run.failed, 'request', of=run.requests)} failed" if run.failed else ""
        left = f"; about {duration_text(record.left_s)} left" if record.left_s is not None and done < self.clock.total else ""
        if record.study_left_s is not None and record.study_left_s > (record.left_s or 0.0):
            left += f"{' here and' if left else '; about'} {duration_text(record.study_left_s)} {'in all' if left else 'left in all'}"
        if record.searches_s:
            left += f"{', and' if left else ';'} searches of at most {duration_text(record.searches_s)}"
        number = f"run {done}" if searched else f"run {done} of {self.clock.total}"  # of a search nobody knows how many follow
        return f"{number}, {_load_text(run)}: {_speed_text(run)}, {run.duration_s:.1f} s{failed}{left}"


def session_line(record: SessionProgress, now: float | None = None) -> str:
    """A session in a line: how far it is, what it does, how its last run went, and the time left.

    Args:
        now: Unix time; None leaves out since when.
    """
    state, expected = record.state, ""
    if record.run:
        expected = f" of about {duration_text(record.run.expected_s)}" if record.run.expected_s is not None else ""
        state = _load_text(record.run) + (expected if now is None else "")
    elif state == "starting":
        state = f"starting {record.engine}"
    elif state == "between runs":
        state = record.search or state
    if now is not None and not record.over:
        state += f" for {duration_text(max(0.0, now - record.since))}{expected}"
    if record.state == "failed":
        state += f": {record.detail.partition(chr(10))[0]}"
    filled = round(_BAR * record.done / max(1, record.runs))
    parts = [
        record.deployment,
        f"{'█' * filled}{'░' * (_BAR - filled)} {record.done}/{record.runs}",
        state,
        _speed_text(record.last) if record.last else "",
        f"about {duration_text(record.left_s)} left" if record.left_s is not None and not record.over else "",
        f"searches of at most {duration_text(record.searches_s)}" if record.searches_s and not record.over else "",
    ]
    return "  ".join(filter(None, parts))


def _load_text(run: RunUnderWay | FinishedRun) -> str:
    return f"{run.workload}, {run.axis.replace('_', ' ')} {run.level:g}"


def _speed_text(run: FinishedRun) -> str:
    unit = "tokens" if run.unit == GENERATION.unit else run.unit
    name, value = ("E2E", run.e2e_p50_s) if run.ttft_p50_s is None else ("TTFT", run.ttft_p50_s)
    return f"{throughput_text(run.tokens_per_s, unit)}, {'no answer' if value is None else f'{name} P50 {value:.3f} s'}"


def duration_text(seconds: float) -> str:
    """A duration as people say it: `40 s`, `3 min`, `1 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


class _Size(NamedTuple):
    """How long a run's requests are sent (s; None where their answers decide), and what it asks for."""

    moments_s: float | None
    output_tokens: int
    requests: int

    @classmethod
    def of(cls, run: RunSpec) -> _Size:
        planned = schedule(run.workload, run.level, run.schedule_seed)
        moments = None if AXES[run.workload.axis].held else at_least_s(planned)
        return cls(moments, sum(x.tokens for x in planned), len(planned))

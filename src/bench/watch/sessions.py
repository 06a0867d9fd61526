"""Which sessions there are and what each is doing, from files alone: `progress.json`, the growing telemetry, and logs.

Nothing is trusted about clocks. A session on another machine shows that it lives by files that grow between two looks, and times of
its clock are set against the moment at which its record was seen to change.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import psutil

from bench.errors import BenchError
from bench.records.launch import Launch, read_launch
from bench.records.progress import FinishedRun, SessionProgress, read_progress
from bench.records.run import RECORD, TELEMETRY
from bench.study import Paths
from bench.watch.tail import Live, Tail

SILENT_S = 60.0  # a file that should grow does not: no sign of life
_FORGET_SESSION_S = 86400.0  # nothing changes, where no file has to grow: a session elsewhere that was killed
_LOOKS_S = 3.0  # for so long a session elsewhere is watched before its silence is believed: its clock may be wrong
_FORGET_S = 600.0  # an engine's log that has been silent for so long is of a build that ended
_MOMENT_S = 5.0  # between looks: the clocks of two machines can be set against each other
_END = 65536  # bytes of a log's end that are read


@dataclass(frozen=True)
class Session:
    """A session as it is now. Times are seconds by our clock.

    Attributes:
        state: the record's, or `stale`: its process is gone or, elsewhere, its telemetry has not grown for a minute.
        unsure: whether it may be another state, since the clocks of two machines may differ.
        here: whether its process is one of this machine. state_s, began_s: how long ago the state and the session began.
        silent_s: since something of it grew last. live: of the run under way. last_line: of the server's log while it starts.
        verdicts: of each finished run, what speaks against it so far.
        left_s, study_left_s: about how long the rest takes.
    """

    record: SessionProgress
    state: str
    unsure: bool
    here: bool
    state_s: float
    began_s: float
    silent_s: float
    live: Live | None
    last_line: str
    verdicts: tuple[tuple[FinishedRun, tuple[str, ...] | None], ...]
    left_s: float | None
    study_left_s: float | None

    @property
    def key(self) -> tuple[str, int, float]:
        """What distinguishes it from any other, an earlier attempt at the same session too."""
        return self.record.deployment, self.record.session, self.record.began

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as can be seen."""
        return not self.record.over and self.state != "stale"


@dataclass(frozen=True)
class Build:
    """An engine whose environment is being built.

    Attributes:
        engine: its name. since_s, silent_s: since the build began, and since its last line. last_line: of its log.
    """

    engine: str
    since_s: float
    silent_s: float
    last_line: str


@dataclass(frozen=True)
class Snapshot:
    """Everything at one look.

    Attributes:
        sessions: those that run or should. ended: those that ended since the first look. builds: engines being built.
        last: the session that ended last, where none runs.
    """

    sessions: tuple[Session, ...]
    builds: tuple[Build, ...]
    last: Session | None
    ended: tuple[Session, ...] = ()

    @property
    def unsure(self) -> bool:
        """Whether another look is needed to tell whether a session lives."""
        return any(session.unsure for session in self.sessions)


@dataclass
class _Seen:
    """What was seen of a session's files.

    Attributes:
        first, looked: when it was seen first and last (monotonic; s). changed: when it changed. signature: its files' sizes and times.
        silent_s: for how long nothing had grown when it was seen first. offset_s: our clock − its clock.
    """

    first: float
    looked: float
    changed: float
    signature: tuple[object, ...]
    written: float
    silent_s: float
    offset_s: float


class Watcher:
    """Looks at the results below `root` again and again; it only reads.

    Args:
        clock, monotonic, host, alive: those of this machine; tests plant others. `alive` takes a process id and when it started.
    """

    def __init__(
        self,
        root: Path = Path(),
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        host: str | None = None,
        alive: Callable[[int, float], bool] | None = None,
    ) -> None:
        self._root, self._clock, self._monotonic = root, clock, monotonic
        self._host, self._alive = host or socket.gethostname(), alive or _alive
        self._seen: dict[Path, _Seen] = {}
        self._tails: dict[Path, Tail] = {}
        self._judged: dict[Path, tuple[str, ...]] = {}
        self._past: set[tuple[str, int, float]] | None = None  # sessions that had ended before the first look

    def look(self) -> Snapshot:
        """What there is now."""
        every = [session for file in self._files() if (session := self._session(file))]
        running = sorted((s for s in every if not s.record.over), key=lambda s: s.record.deployment)
        # One that was killed is shown while nothing newer has begun.
        newest = max((s.record.began for s in every), default=0.0)
        shown = tuple(s for s in running if s.state != "stale" or s.record.began >= newest)
        if self._past is None:
            self._past = {s.key for s in every}
        self._past -= {s.key for s in every if s.alive}
        ended = tuple(s for s in every if s not in shown and s.key not in self._past)
        builds = tuple(self._builds())
        last = max((s for s in every if s.record.over), key=lambda s: s.record.written, default=None)
        return Snapshot(shown, builds, None if shown else last, ended)

    def _files(self) -> Iterator[Path]:
        for pattern in (Paths.PROGRESS, Paths.SESSION_PROGRESS):
            yield from sorted(self._root.glob(pattern.format(deployment="*", session="*")))

    def _session(self, file: Path) -> Session | None:
        try:
            record = read_progress(file)
        except BenchError:  # of another version, or just replaced; the next look finds it
            return None
        now, ticks = self._clock(), self._monotonic()
        folder = file.parent
        growing = folder / record.run.folder / TELEMETRY if record.run else None
        log = folder / record.detail if record.state == "starting" and record.detail else None
        seen = self._note(file, record, [path for path in (file, growing, log) if path], now, ticks)
        silent_s = ticks - seen.changed + seen.silent_s
        here = record.host == self._host
        stale = unsure = False
        if not record.over:
            if here:
                stale = not self._alive(record.pid, record.process_started)
            elif silent_s > (SILENT_S if growing and growing.exists() else _FORGET_SESSION_S):
                stale = True
                unsure = ticks - seen.first < _LOOKS_S
        ago = now - seen.offset_s
        since_written = max(0.0, ago - record.written)
        return Session(
            record,
            "stale" if stale else record.state,
            unsure,
            here,
            state_s=max(0.0, ago - record.since),
            began_s=max(0.0, ago - record.began),
            silent_s=silent_s,
            live=self._live(growing, record.deployment) if growing and not stale else None,
            last_line=_last_line(log) if log else "",
            verdicts=tuple((run, self._verdict(folder, run, record)) for run in record.finished),
            left_s=None if record.left_s is None else max(0.0, record.left_s - since_written),
            study_left_s=None if record.study_left_s is None else max(0.0, record.study_left_s - since_written),
        )

    def _note(self, file: Path, record: SessionProgress, files: list[Path], now: float, ticks: float) -> _Seen:
        """Remember what the files look like, and when that changed."""
        states = [state for path in files if (state := _state(path))]
        signature = tuple(states)
        seen = self._seen.get(file)
        if seen is None:
            newest = max((mtime for _, mtime in states), default=now)
            written_at = states[0][1] if states else now  # by the clock of the file system, which may be ours
            seen = _Seen(ticks, ticks, ticks, signature, record.written, max(0.0, now - newest), written_at - record.written)
            self._seen[file] = seen
        elif signature != seen.signature:
            if record.written != seen.written and ticks - seen.looked < _MOMENT_S:
                seen.offset_s = now - record.written  # it was written since the last look, a moment ago
            seen.signature, seen.written, seen.changed, seen.silent_s = signature, record.written, ticks, 0.0
        seen.looked = ticks
        return seen

    def _live(self, file: Path, deployment: str) -> Live | None:
        """What the server reports; where requests hold slots of the KV cache, those that are taken are its usage."""
        if file not in self._tails:
            self._tails = {kept: tail for kept, tail in self._tails.items() if kept.exists()}
            launch = self._launch(deployment)
            self._tails[file] = Tail(file, launch.servers if launch else 1)
        live, launch = self._tails[file].read(), self._launch(deployment)
        if live is None or live.kv_usage is not None or live.running is None or launch is None or launch.kv_slots is None:
            return live
        return replace(live, kv_usage=live.running / launch.kv_slots)

    def _launch(self, deployment: str) -> Launch | None:
        try:
            return read_launch(self._root / Paths.LAUNCH.format(deployment=deployment))
        except BenchError:
            return None

    def _verdict(self, folder: Path, run: FinishedRun, record: SessionProgress) -> tuple[str, ...] | None:
        """What speaks against a finished run; None where its record is not there (yet)."""
        path = folder / run.folder / RECORD
        if path not in self._judged:
            from bench.watch.judging import judged  # noqa: PLC0415 - the first look must not wait for it

            try:
                self._judged[path] = judged(path, run, record.thresholds)
            except BenchError:
                return None
        return self._judged[path]

    def _builds(self) -> Iterator[Build]:
        """Engines whose log is newer than their record, unless it has long been silent."""
        now = self._clock()
        for log in sorted(self._root.glob("logs/engine/*.log")):
            record, state = self._root / Paths.ENGINE.format(engine=log.stem), _state(log)
            built = _state(record)
            if state is None or (built and built[1] >= state[1] - 1) or now - state[1] > _FORGET_S:
                continue
            line = _last_line(log)
            if line and "ending on SIG" not in line:
                yield Build(
                    log.stem, max(0.0, now - _first_time(log, state[1])), max(0.0, now - state[1]), line.partition(" ")[2]
                )


def _state(path: Path) -> tuple[int, float] | None:
    """Size and time of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime


def _last_line(log: Path) -> str:
    """The last line of a log that is not blank; it may still be incomplete."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _END))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _first_time(log: Path, otherwise: float) -> float:
    """When a job's log began, by its first line."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            return datetime.fromisoformat(file.readline()[:20]).timestamp()
    except (OSError, ValueError):
        return otherwise


def _alive(pid: int, started: float) -> bool:
    """Whether that process still runs, and is not another one that has its number now."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 2 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False

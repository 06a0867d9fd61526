"""`progress.json`: how far a session is. It rewrites this small file between runs, never during one."""

from __future__ import annotations

from dataclasses import dataclass


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

"""`search.json` and `tuning.json`: what the searches of a deployment found; which settings of a server were tried, and what the best
of them gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.runs.files import read_known


@dataclass(frozen=True, kw_only=True)
class SearchedRun:
    """A run of a search.

    Attributes:
        level: its load. requests: how many it sends. repeat: the how manieth of that level. digest: of the run.
        excess: by SLO column, logarithm of what the run reached ÷ the limit. Empty where the run could not be judged.
    """

    level: float
    requests: int
    repeat: int
    digest: str
    excess: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """A search and its answer.

    Attributes:
        name: of the search. workload: its name. digest: of all that decides the answer. axis: `concurrency` or `request_rate`.
        slos: what had to be met. precision: half the width asked for, as a share.
        why: it ended, as `bench.search.placing.Answer` has it.
        limit, low, high: the highest load within the SLOs, and its interval at 95 %; limit is
            None where no run shows it, low 0 where no load is known to be within, high None where no load was too much.
        seconds: under load. runs: in the order in which the search took them into account.
        turns: requests of a conversation; above 1, loads count conversations.
    """

    name: str
    workload: str
    digest: str
    axis: str
    slos: tuple[str, ...]
    precision: float
    why: str
    limit: float | None
    low: float
    high: float | None
    seconds: float
    runs: tuple[SearchedRun, ...]
    turns: int = 1


@dataclass(frozen=True, kw_only=True)
class DeploymentSearches:
    """The searches of one deployment. digest: of the deployment."""

    deployment: str
    digest: str
    searches: tuple[SearchRecord, ...]


def found_in(paths: Iterable[Path]) -> tuple[tuple[str, SearchRecord], ...]:
    """The deployment of each search in these files, and what it found."""
    known = (each for path in paths if (each := read_known(DeploymentSearches, path)))
    return tuple((each.deployment, found) for each in known for found in each.searches)


MISSES = ("below", "alone")  #: why a search ended that found no rate within the SLOs
Phase = Literal["first look", "race", "confirmation"]


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One start of a candidate's server, and a search on it.

    Attributes:
        deployment: the candidate. phase: of the tuning. round: of that phase, from 1.
        middle, error: natural logarithm of the highest rate within the SLOs (requests/s) and its standard error; None where no rate
            meets them, or the visit does not show it.
        low, high: the rate's interval at 95 %; high is None where no rate was too high.
        why: the search ended, as `bench.search.placing.Answer` has it; `lost` once it was below the leader's (95 %); `died` where the
            server would not start or live.
        runs: under load. load_s: their time. began: Unix time (s). seconds: from before the start of the server to after its end.
        said: a failure's words.
    """

    deployment: str
    phase: Phase
    round: int
    middle: float | None
    error: float | None
    low: float
    high: float | None
    why: str
    runs: int
    load_s: float
    began: float
    seconds: float
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """Winner against default in starts of their own, by turns.

    Attributes:
        pairs: of starts. gain, low, high: of the objective, as factors, at 95 % confidence; None where the default meets the SLOs at
            no rate: then the winner alone was started, `pairs` times, and met them each time.
        rate, rate_low, rate_high: the winner's in these starts (requests/s), at 95 % confidence.
    """

    pairs: int
    gain: float | None
    low: float | None
    high: float | None
    rate: float
    rate_low: float
    rate_high: float


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """A tuning and what it found.

    Attributes:
        digest: of all that decides it but its minutes. objective: `requests` or `cost`. workload: its name. slos: what had to be met.
        default: the deployment that all are held against. candidates: all deployments, the default among them.
        settings: those that differ, by candidate and column. units: by candidate, what its rate is divided by (GPUs; 1 without).
        visits: in their order. dropped: candidates that are worse than the leader, with the visit (from 1) after which that was clear.
            untried: those that the minutes did not reach.
            settled: whether nobody is left who may be better than the leader.
        leader: the best of the race. confirmed: against the default, where another leads.
        winner: the deployment to use: the leader where its gain is shown, else the default; None where nothing meets the SLOs.
        unit: of a rate. It is called so whatever it counts: requests/s of an open loop, requests in flight of a closed one.
        minutes: that it may take. seconds: that it took.
    """

    digest: str
    objective: str
    workload: str
    slos: tuple[str, ...]
    default: str
    candidates: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Any]]
    units: Mapping[str, float]
    visits: tuple[Visit, ...]
    dropped: Mapping[str, int]
    untried: tuple[str, ...]
    settled: bool
    leader: str | None
    confirmed: Confirmed | None
    winner: str | None
    minutes: float
    seconds: float
    unit: str = "requests/s"


@dataclass(frozen=True, kw_only=True)
class Visits:
    """The visits of a tuning so far, so that one that was ended goes on. digest: as of `TuningRecord`."""

    digest: str
    visits: tuple[Visit, ...] = ()


def read_visits(path: Path, digest: str) -> Visits:
    """The visits in `path`, if they are of this tuning; else none."""
    record = read_known(Visits, path)
    return record if record and record.digest == digest else Visits(digest=digest)

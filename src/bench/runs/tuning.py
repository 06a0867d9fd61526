"""`tuning.json`: which settings of a server were tried, what each visit showed, and what the best of them gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.runs.files import read_known

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
class Contribution:
    """What one setting adds to the gain: the candidates that have the winner's value against those with the default's.

    Attributes:
        setting: its column. default, winner: its values. gain, low, high: as factors on the objective; None where no candidates tell.
    """

    setting: str
    default: Any
    winner: Any
    gain: float | None
    low: float | None
    high: float | None


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
            untried: those that the minutes did not reach. unpromising: those that were not worth a start by what others had shown.
            settled: whether nobody is left who may be better than the leader.
        leader: the best of the race. confirmed: against the default, where another leads and the minutes sufficed.
        winner: the deployment to use: the leader where its gain is shown, else the default; None where nothing meets the SLOs.
        contributions: of each setting in which winner and default differ.
        unit: of a rate. It is called so whatever it counts: requests/s of an open loop, requests in flight of a closed one.
        lacking_s: by how much the minutes fell short of a confirmation that was worth making (s); 0 where they did not.
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
    unpromising: tuple[str, ...]
    settled: bool
    leader: str | None
    confirmed: Confirmed | None
    winner: str | None
    contributions: tuple[Contribution, ...]
    minutes: float
    seconds: float
    lacking_s: float = 0.0
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

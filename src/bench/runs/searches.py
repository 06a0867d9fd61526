"""`search.json`: what the searches of a deployment found, and the runs that they measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

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

"""Which engines of a fleet were not as the others: silent, started again, or of another version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

Check = Literal["silent", "restarted", "version"]


@dataclass(frozen=True)
class WorkerVerdict:
    """One way in which a worker was not as the others of its fleet.

    Attributes:
        worker: its name. check: which way. value: longest time without a scrape (s; None: none at all), number of restarts, or
            version. usual: the version that most others have.
    """

    worker: str
    check: Check
    value: float | str | None
    usual: str | None = None


def worker_verdicts(workers: Sequence[Mapping[str, Any]], scrape_gap_s: float) -> list[WorkerVerdict]:
    """What sets workers of one run apart.

    Args:
        workers: rows of `bench.runs.columns.WORKER_FIELDS`. scrape_gap_s: longest time without a scrape that is not a gap.
    """
    found = []
    for row in workers:
        if row["scrape_gap_s"] is None or row["scrape_gap_s"] > scrape_gap_s:
            found.append(WorkerVerdict(row["worker"], "silent", row["scrape_gap_s"]))
        if row["restarts"]:
            found.append(WorkerVerdict(row["worker"], "restarted", row["restarts"]))
    versions = Counter(row["version"] for row in workers if row["version"] is not None)
    for usual, _ in versions.most_common(1):
        others = [row for row in workers if row["version"] not in (None, usual)]
        found += [WorkerVerdict(row["worker"], "version", row["version"], usual) for row in others]
    return found


def workers_of_runs(runs: pl.DataFrame, scrape_gap_s: float) -> dict[str, dict[str, list[WorkerVerdict]]]:
    """What sets workers apart, by deployment and run; a fleet's deployment is there even if nothing does."""
    found: dict[str, dict[str, list[WorkerVerdict]]] = {}
    for row in runs.filter(pl.col("workers").is_not_null()).select("deployment", "run", "workers").iter_rows(named=True):
        found.setdefault(row["deployment"], {})[row["run"]] = worker_verdicts(row["workers"], scrape_gap_s)
    return found

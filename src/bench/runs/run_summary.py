"""`summary.json`: one run's numbers, from which the summary table has its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.runs.files import read_as, typed, write_object

NO_COLUMNS = ("metrics_missing", "counters_fell", "scrape_gaps")  # of its entries: what the table has no column for


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run's numbers, and by name those that identify the run.

    Attributes:
        deployment: key of the deployment. run: name of the run. digest: of its definition. level: in the unit of its axis.
        repeat: from 1.
        scrape_endpoint: that of its engine's metrics. gpu_count_seen: GPUs that reported anything.
        metrics_missing: metrics that the server should report and did not. counters_fell: counters that lost what they had counted.
        scrape_gaps: of each endpoint beside the engine's, the longest time without a sample (s).
        figures: all numbers, these too, by the columns of the catalogue (`bench.runs.columns`), in the order of the file.
    """

    deployment: str | None = None
    run: str | None = None
    digest: str | None = None
    level: float
    repeat: int | None = None
    scrape_endpoint: str | None = None
    gpu_count_seen: int | None = None
    metrics_missing: tuple[str, ...] = ()
    counters_fell: tuple[str, ...] = ()
    scrape_gaps: Mapping[str, float | None] | None = None
    figures: Mapping[str, Any]

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> RunSummary:
        """The summary that has these entries.

        Raises:
            ValueError: it names the one that is not what its field declares.
        """
        return typed(cls, {**figures, "figures": dict(figures)})


def write_run_summary(summary: RunSummary, path: Path) -> None:
    """Write the entries in their order."""
    write_object(summary.figures, path)


def read_run_summary(path: Path) -> RunSummary:
    """The summary in `path`.

    Raises:
        BenchError: it names the file, the place in it and what is wrong.
    """
    return read_as(RunSummary.of, path, "Parse its run again: `bench parse`.", constants=True)

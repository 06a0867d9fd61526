"""A measured run as a search sees it: its summary, the requests by which it is judged, and why it cannot be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bench.parse.drift import place_of_run
from bench.parse.run import parse_run
from bench.parse.slo import goodput, judged_requests
from bench.parse.validity import reason_text, verdict
from bench.runs.run import RunRecord
from bench.study.config import Thresholds
from bench.study.slo import Slo


def judged_run(
    folder: Path, slos: Sequence[Slo], thresholds: Thresholds, tables: Path
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The summary of the run in `folder` with `judged`, and why it cannot be trusted, if it cannot.

    Args:
        tables: a folder for what is parsed.

    Raises:
        BenchError: a file is missing, or differs from what was measured.
    """
    names = {name: tables / f"{name}.parquet" for name in ("requests", "telemetry")}
    row = parse_run(folder, **names, wide=tables / "metrics.csv", summary=tables / "summary.json")
    row = {**row, **goodput(row, judged_requests(row, pl.read_parquet(names["requests"])), slos)}
    found = verdict(row, thresholds)
    return row, () if found.valid else tuple(reason_text(reason) for reason in found.found)


def speed(record: RunRecord) -> tuple[float, str, str] | tuple[None, None, None]:
    """How fast the machine was before the run, in reference loads a second, what load that was, and when its round began."""
    place = place_of_run(record)
    if place["reference_s"] is None:
        return None, None, None
    return 1 / place["reference_s"], place["reference_load"], place["reference_since"]

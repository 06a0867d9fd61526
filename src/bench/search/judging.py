"""A measured run as a search sees it: its summary, the requests by which it is judged, and why it cannot be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from bench.analysis import verdict
from bench.analysis.slo import goodput, judged_requests
from bench.parse import parse_run
from bench.records.run import ReferenceLoad
from bench.study import Slo
from bench.study.config import Thresholds
from bench.words.verdicts import reason_text

__all__ = ["judged_run", "speed"]


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


def speed(reference: ReferenceLoad | None, usual: ReferenceLoad | None) -> float:
    """How fast the machine was at a reference load ÷ at the usual one; 1 where it is not known."""
    if reference is None or usual is None or not reference.seconds or not usual.seconds:
        return 1.0
    ratio = median(usual.seconds) / median(reference.seconds)
    return ratio if math.isfinite(ratio) and ratio > 0 else 1.0

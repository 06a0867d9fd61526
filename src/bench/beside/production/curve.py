"""One curve of a study: the runs of one server under one workload, and the load that it sustains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError
from bench.findings.capacity.words import BURSTS, sustains
from bench.parse.fleet import FLEET
from bench.results import Results
from bench.runs.deployment import DeploymentFacts


@dataclass(frozen=True)
class Curve:
    """Attributes: point: its row of `capacity.parquet`. runs: summary rows, by level. facts: of the server; None without them."""

    results: Results
    point: Mapping[str, Any]
    runs: pl.DataFrame
    facts: DeploymentFacts | None

    @property
    def version(self) -> str | None:
        """The engine's, as the server reported it."""
        return self.facts.engine_version if self.facts else None

    def telemetry(self, run: Mapping[str, Any]) -> pl.DataFrame | None:
        """What was scraped during a run; None where there is nothing."""
        try:
            table = self.results.telemetry(run["deployment"], run["run"])
        except BenchError:
            return None
        table = table.filter(pl.col("endpoint") != FLEET)  # of the one server behind a router
        return table if table.height else None


def read_curve(folder: Path, workload: str | None = None) -> Curve:
    """One curve of a folder of results.

    Args:
        folder: with `:DEPLOYMENT` where it has several. workload: which; None: the only one that has a load that goes on.

    Raises:
        BenchError: there is no such curve, several could be meant, nothing is known of what it sustains, or a fleet answered it.
    """
    results = Results.open(folder)
    points = results.analysis("capacity")
    if results.deployment is not None:
        points = points.filter(deployment=results.deployment)
    point = _point(folder, points, workload)
    runs = results.runs.filter(**{name: point[name] for name in ("deployment", "workload", "axis")}).sort("level")
    if any(len(workers or ()) > 1 for workers in runs["workers"].to_list()):
        raise BenchError(
            f"{folder}: {point['deployment']} is a fleet, but production is held against one server. Give one replica's study."
        )
    return Curve(results, point, runs, results.facts(point["deployment"]))


def _point(folder: Path, capacity: pl.DataFrame, workload: str | None) -> dict[str, Any]:
    known = capacity["workload"].unique(maintain_order=True).to_list()
    if workload is not None and workload not in known:
        raise BenchError(f"--workload {workload}: not in {folder}, which has: {', '.join(known) or 'none'}.")
    lasting = capacity.filter(pl.col("basis") == "steady", pl.col("workload").is_in([workload] if workload else known))
    if lasting.is_empty():
        raise BenchError(f"{folder}: no capacity under a continuous load. {BURSTS}")
    rows = lasting.filter(pl.col("kind").is_in(["found", "above"])).to_dicts()
    if not rows:
        points = "; ".join(f"{row['deployment']} with {row['workload']}: {sustains(row)}" for row in lasting.to_dicts())
        raise BenchError(f"{folder}: no load is known to be sustained, so there is no limit to guard. {points}.")
    if len(rows) > 1:
        curves = "; ".join(f"RESULTS:{row['deployment']} --workload {row['workload']}" for row in rows)
        raise BenchError(f"{folder}: it has {len(rows)} curves. Choose one server and one workload: {curves}.")
    return rows[0]

"""What the project makes of a study whose files lie in a folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from bench.findings.capacity.points import operating_points
from bench.findings.causes import bottleneck
from bench.parse.run import parse_run
from bench.parse.table import aggregate
from bench.predict.relief import find_reliefs
from bench.study.config import Thresholds
from bench.study.slo import Slo, parse_slo

__all__ = ["evaluate_ladder", "evaluate_study"]


def evaluate_ladder(folder: Path) -> dict[str, Any]:
    """The operating point of the rows in `folder`, within the first limit and within both."""
    case = json.loads((folder / "server.json").read_text())
    slo, runs = _slo(case["limit"]), pl.read_parquet(folder / "rows.parquet")
    both = operating_points(runs, [slo, _slo(case["second"])]).row(0, named=True) if case["second"] else None
    return {"point": operating_points(runs, [slo]).row(0, named=True), "both": both}


def evaluate_study(folder: Path) -> dict[str, Any]:
    """The operating point of the study in `folder`, and its cause; `shown`: that which telemetry shows without replays and limits."""
    case = json.loads((folder / "server.json").read_text())
    slos = [_slo(case["limit"])]
    name = f"s{case['number']:03}"
    with tempfile.TemporaryDirectory() as scratch:
        results, summaries = Path(scratch), []
        deployed = results / "deployments" / name
        deployed.mkdir(parents=True)
        for file in ("launch.json", "deployment.json"):
            shutil.copy(folder / file, deployed / file)
        for run in sorted((folder / "runs").iterdir()):
            out = results / "runs" / name / run.name
            parse_run(run, requests=out / "requests.parquet", telemetry=out / "telemetry.parquet", wide=out / "metrics.csv",
                      summary=out / "summary.json")  # fmt: skip
            summaries.append(out / "summary.json")
        table = results / "summary.parquet"
        aggregate(
            summaries,
            expected=None,
            launches=[folder / "launch.json"],
            facts=[folder / "deployment.json"],
            thresholds=Thresholds(),
            slos=slos,
            summary=table,
            summary_csv=results / "summary.csv",
            timeseries=results / "timeseries.parquet",
        )
        runs = pl.read_parquet(table)
        points = operating_points(runs, slos)
        reliefs = find_reliefs(runs, results, points, slos, code="")
    point, relief = points.row(0, named=True), reliefs.curves[0] if reliefs.curves else None
    found = bottleneck(runs, point, slos, relief)
    shown = bottleneck(runs.with_columns(max_num_seqs=pl.lit(None, dtype=pl.Int64)), point, slos)
    gains = {each.resource: (each.low, each.gain, each.high) for each in found.gains}
    return {"point": point, "cause": found.cause, "shown": shown.cause, "gains": gains, "tied": found.tied,
            "no_model": relief.why_not if relief else None}  # fmt: skip


def _slo(limit: Mapping[str, Any]) -> Slo:
    return parse_slo(f"{limit['metric']}_p{100 * limit['share']:.0f}={1000 * limit['seconds']:g}ms")

"""`bench figures`: draw from any folder of parsed runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.aggregate import aggregate
from bench.cli.output import print_json, tracked
from bench.errors import BenchError
from bench.figures import Results, figures_of
from bench.figures.registry import load_figure
from bench.figures.save import save_figure
from bench.study import Paths
from bench.study.config import Thresholds

__all__ = ["run"]


def run(folder: Path, out: Path, wanted: Sequence[str] | None, *, json: bool) -> None:

    for name in wanted or []:
        load_figure(name)  # refuse a wrong name before any work
    runs = sorted(folder.rglob("summary.json"))
    if not runs:
        raise BenchError(f"{folder}: no summary.json at any depth; `bench parse` writes one into a run's folder.")
    summary, timeseries = out / "summary.parquet", out / "timeseries.parquet"
    aggregate(
        runs,
        launches=sorted(folder.rglob("launch.json")),
        facts=sorted(folder.rglob("deployment.json")),
        thresholds=Thresholds(),
        summary=summary,
        summary_csv=out / "summary.csv",
        timeseries=timeseries,
    )
    calibration = folder / Path(Paths.CALIBRATION).name
    results = Results.read(summary, timeseries, calibration=calibration if calibration.is_file() else None)
    names = wanted or figures_of(results.runs.to_dicts())
    written = [path for name in tracked(names, "Drawing") for path in save_figure(name, results, out / name)]
    if json:
        print_json([str(path) for path in written])
        return
    for path in written:
        print(path)

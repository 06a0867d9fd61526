"""`bench figures`: draw from any folder of parsed runs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import Json, ThresholdValues, option
from bench.cli.output import print_json, tracked
from bench.errors import BenchError


@command(
    "bench figures runs --output-dir figures",
    "bench figures results --output-dir drawn --figure latencies --figure kv-saturation",
)
def figures(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with parsed runs, at any depth.")],
    output_dir: Annotated[Path, option("DIR", "Where to draw; created if missing.")],
    figure: Annotated[
        list[str] | None,
        option("NAME", "Only this figure; repeatable.", default="those that the runs can answer", complete=completion.figures),
    ] = None,
    threshold: ThresholdValues = None,
    json: Json = False,
) -> None:
    """Gathers every summary.json below DIR (`bench parse` writes it) and draws the figures as SVG, PNG and Vega-Lite JSON, with the
    summary table beside them. Below a study's results/, the deployments' facts are used too.
    """
    from bench.findings.registry import draw_figure, figures_of, load_figure
    from bench.findings.tables import Tables
    from bench.parse.table import aggregate
    from bench.runs.paths import Paths
    from bench.study.thresholds import kept_thresholds, thresholds_of

    thresholds = thresholds_of(threshold)
    for name in figure or []:
        load_figure(name)  # refuse a wrong name before any work
    runs = sorted(folder.rglob("summary.json"))
    if not runs:
        raise BenchError(f"{folder}: no summary.json at any depth; `bench parse` writes one into a run's folder.")
    if not threshold:
        thresholds = thresholds_of(kept_thresholds(run.parent for run in runs))
    summary, timeseries = output_dir / "summary.parquet", output_dir / "timeseries.parquet"
    aggregate(
        runs,
        launches=sorted(folder.rglob("launch.json")),
        facts=sorted(folder.rglob("deployment.json")),
        thresholds=thresholds,
        summary=summary,
        summary_csv=output_dir / "summary.csv",
        timeseries=timeseries,
    )
    calibration = folder / Path(Paths.CALIBRATION).name
    tuning = folder / Path(Paths.TUNING).relative_to(Paths.RESULTS)
    results = Tables.read(
        summary,
        timeseries,
        calibration=calibration if calibration.is_file() else None,
        tuning=tuning if tuning.is_file() else None,
    )
    names = figure or figures_of(results.runs.to_dicts(), tuned=results.tuning is not None)
    written = []
    for name in tracked(names, "Drawing"):
        written += draw_figure(name, results, output_dir / name, leave_out=partial(_left_out, name))
    if json:
        print_json([str(path) for path in written])
        return
    for path in written:
        print(path)


def _left_out(name: str, why: str) -> None:
    print(f"{name} is left out, as it shows nothing: {why}", file=sys.stderr)

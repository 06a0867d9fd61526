"""`bench figures`: draw from any folder of parsed runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.cli.common import Commands, print_json
from bench.errors import BenchError

__all__ = ["add"]


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "figures",
        help="draw the figures of parsed runs",
        description="Gather every summary.json below DIR (`bench parse` writes it) and draw the figures as SVG, PNG and Vega-Lite "
        "JSON, with the summary table beside them. Below a study's results/, the deployments' facts are used too.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with parsed runs, at any depth")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="OUT", help="where to draw; made where missing")
    parser.add_argument(
        "--figure",
        action="append",
        metavar="NAME",
        help="only this figure; repeatable (default: those that the runs can answer)",
    )
    parser.add_argument("--json", action="store_true", help="print the written paths as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from bench.aggregate import aggregate  # noqa: PLC0415 - --help must not pay for it
    from bench.figures import Results, figures_of  # noqa: PLC0415
    from bench.figures.registry import load_figure  # noqa: PLC0415
    from bench.figures.save import save_figure  # noqa: PLC0415
    from bench.study.config import Thresholds  # noqa: PLC0415

    for name in options.figure or []:
        load_figure(name)  # refuse a wrong name before any work
    runs = sorted(options.folder.rglob("summary.json"))
    if not runs:
        raise BenchError(f"{options.folder}: no summary.json at any depth; `bench parse` writes one into a run's folder.")
    out: Path = options.output_dir
    summary, timeseries = out / "summary.parquet", out / "timeseries.parquet"
    aggregate(
        runs,
        launches=sorted(options.folder.rglob("launch.json")),
        facts=sorted(options.folder.rglob("deployment.json")),
        thresholds=Thresholds(),
        summary=summary,
        summary_csv=out / "summary.csv",
        timeseries=timeseries,
    )
    results = Results.read(summary, timeseries)
    names = options.figure or figures_of(results.runs.to_dicts())
    written = [path for name in names for path in save_figure(name, results, out / name)]
    if options.json:
        print_json([str(path) for path in written])
        return
    for path in written:
        print(path)

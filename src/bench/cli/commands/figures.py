"""`bench figures`: draw from any folder of parsed runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.entry import command
from bench.cli.options import Json, OutputDir, ThresholdValues, option, thresholds_of
from bench.cli.output import note, print_json, tracked
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.findings.tables import Tables
    from bench.report.paper import Paper

_LEAST_MM, _MOST_MM = 40, 400  # of a figure's width; convention


@command(
    "bench figures runs --output-dir figures",
    "bench figures results --output-dir paper --figure ttft --width 85mm --panel 2 --title '' --colors tiny-mha=black --format pdf,csv",
)
def figures(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with parsed runs, at any depth; of a study also DIR:DEPLOYMENT.")
    ],
    output_dir: OutputDir,
    figure: Annotated[
        list[str] | None,
        option("NAME", "Only this figure; repeatable.", default="those that the runs can answer"),
    ] = None,
    width: Annotated[
        str | None,
        option("MM", "Width of each, such as 85mm, with 8-point letters.", default="as in the report"),
    ] = None,
    panel: Annotated[int | None, option("N", "Only this panel, from 1.", default="all")] = None,
    title: Annotated[str | None, option("TEXT", "Another title; '' for none.", default="what its data show")] = None,
    labels: Annotated[list[str] | None, option("OLD=NEW", "Replace a word in it, such as tiny-mha=MHA. Repeatable.")] = None,
    colors: Annotated[
        list[str] | None, option("NAME=COLOR", "A deployment's colour, such as tiny-mha=#1b6. Repeatable.")
    ] = None,
    format: Annotated[
        str | None,
        option("KINDS", "Of pdf, svg, png, csv (what it is drawn from) and json (Vega-Lite).", default="svg,png,json"),
    ] = None,
    threshold: ThresholdValues = None,
    json: Json = False,
) -> None:
    """Draws SVG, PNG and Vega-Lite JSON. Of a study's results/ it draws what the report does, by the study's SLOs and thresholds.
    Of any other folder it gathers every summary.json below DIR (`bench parse` writes it), and puts a summary table beside the figures.
    """
    from bench.findings.registry import draw_figure, figures_of, load_figure
    from bench.report.figure import KINDS
    from bench.results import Results

    paper, kinds = _paper(width, panel, title, labels, colors), _kinds(format) if format else KINDS
    for name in figure or []:
        load_figure(name)  # refuse a wrong name before any work
    if threshold and not folder.exists() and Path(str(folder).rpartition(":")[0]).exists():
        raise BenchError(f"{folder}: --threshold judges the runs of a whole folder anew. Leave out :DEPLOYMENT.")
    if not threshold and (Results.of_study(folder) or not folder.exists()):  # results:tiny-mha
        study = Results.open(folder)
        results, names = study.tables, figure or study.figures()
    else:
        results = _gathered(folder, output_dir, threshold)
        slos = [str(slo) for slo in results.decision.slos]
        rows = [{**row, "slo": slos} for row in results.runs.to_dicts()]
        names = figure or figures_of(rows)
    written = []
    for name in tracked(names, "Drawing"):
        written += draw_figure(name, results, output_dir / name, leave_out=partial(_left_out, name), paper=paper, kinds=kinds)
    for old in sorted(set(paper.labels) - paper.met) if paper else ():
        note(f"--labels {old}: no figure that was drawn has this word.")
    if json:
        print_json([str(path) for path in written])
        return
    for path in written:
        print(path)


def _gathered(folder: Path, output_dir: Path, threshold: list[str] | None) -> Tables:
    """The parsed runs below a folder; their tables are written into the other one."""
    from bench.findings.analysis import slos_of
    from bench.findings.tables import Tables
    from bench.parse.table import aggregate
    from bench.runs.paths import Paths
    from bench.study.decision import Decision

    thresholds = thresholds_of(threshold)
    runs = sorted(folder.rglob("summary.json"))
    if not runs:
        raise BenchError(f"{folder}: no summary.json at any depth; `bench parse` writes one into a run's folder.")
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
    beside = (folder / Path(path).relative_to(Paths.RESULTS) for path in (Paths.CALIBRATION, Paths.TUNING))
    calibration, tuning = (file if file.is_file() else None for file in beside)  # of a study
    decision = Decision(slo=slos_of(folder / Path(Paths.ANALYSIS).name))
    return Tables.read(summary, timeseries, decision, calibration=calibration, tuning=tuning)


def _paper(
    width: str | None, panel: int | None, title: str | None, labels: Sequence[str] | None, colors: Sequence[str] | None
) -> Paper | None:
    """How the figures are wanted; None: as in a report. A BenchError tells what is no width, and what no pair."""
    from bench.report.figure import alt
    from bench.report.paper import Paper

    millimetres = re.fullmatch(r"(\d+(?:\.\d+)?) ?mm", width.strip()) if width is not None else None
    if width is not None and (millimetres is None or not _LEAST_MM <= float(millimetres[1]) <= _MOST_MM):
        raise BenchError(f"--width {width}: give millimetres from {_LEAST_MM} to {_MOST_MM}, such as 85mm.")
    known = alt.ColorName.resolve_references()["enum"]  # of CSS
    for name, colour in (coloured := _pairs("--colors", colors)).items():
        if not (re.fullmatch(r"#(?:[0-9a-fA-F]{3}){1,2}", colour) or colour.lower() in known):
            raise BenchError(
                f"--colors {name}={colour}: no such colour. Give one by its name in CSS, such as navy, or as #1b6 or #11bb66."
            )
    found = Paper(float(millimetres[1]) if millimetres else None, title, _pairs("--labels", labels), coloured, panel)
    return None if found == Paper() else found


def _pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        old, _, new = text.partition("=")
        if not (old and new) or re.search(r",[^\s,=]+=", new):
            raise BenchError(f"{option} {text}: give one NAME=VALUE, and {option} again for each further one.")
        found[old] = new
    return found


def _kinds(text: str) -> list[str]:
    from bench.report.paper import KINDS

    kinds = list(dict.fromkeys(each.strip() for each in text.split(",")))
    if strange := [kind for kind in kinds if kind not in KINDS]:
        raise BenchError(f"--format {strange[0]}: there are {', '.join(KINDS)}.")
    return kinds


def _left_out(name: str, why: str) -> None:
    note(f"{name} is not drawn, as it shows nothing: {why}")

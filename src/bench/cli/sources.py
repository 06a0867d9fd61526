"""What a user may name as a set of results: a folder, a table, or a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from bench.aggregate import summary_frame
from bench.analyse import Analysis, read_analysis
from bench.analysis.slo import goodput, judged_frame, judged_requests
from bench.axes import AXES
from bench.cli.checks import kept_thresholds, thresholds_of
from bench.errors import BenchError
from bench.runs.classes import class_names
from bench.runs.columns import COLUMNS
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.runs.run_summary import read_run_summary
from bench.runs.summary import read_summary
from bench.shipped import BENCH
from bench.study.decision import Decision
from bench.study.slo import Slo, applying


def read_source(text: str) -> pl.DataFrame:
    """The summary rows that `text` names.

    A folder of results or of parsed runs, a summary.parquet, either of them with `:DEPLOYMENT` behind it, or a deployment of the
    study in this folder; BenchError where it is none of these, or holds no runs.
    """
    runs, deployment = read_named(text)
    return runs if deployment is None else runs.filter(runs["deployment"] == deployment)


def read_named(text: str) -> tuple[pl.DataFrame, str | None]:
    """All summary rows of the place that `text` names, and the deployment that it names there; None where it means all."""
    place, colon, deployment = text.rpartition(":")
    study = Path(Paths.SUMMARY)
    if Path(text).exists():
        return _read(Path(text)), None
    if colon and Path(place).exists():
        runs = _read(Path(place))
    elif study.exists():
        place, deployment, runs = str(study), text, _read(study)
    else:
        raise BenchError(
            f"{text}: no such file or folder, and no deployment either, as {study} is missing. Give a folder with results or a "
            "summary.parquet, with :DEPLOYMENT behind it if it has several."
        )
    if deployment not in runs["deployment"]:
        where = f"{text}: no such file or folder, and {place}" if place == str(study) and not colon else place
        raise BenchError(f"{where} has no deployment {deployment!r}. There are: {', '.join(sorted(set(runs['deployment'])))}.")
    return runs, deployment


def with_goodput(runs: pl.DataFrame, text: str, slos: Sequence[Slo]) -> pl.DataFrame:
    """The rows with their goodput under `slos` and the requests that they are judged by, from each run's table of requests.

    Args:
        runs: summary rows of `read_source`. text: what they were read from.

    Raises:
        BenchError: neither the table nor a file beside it has the requests of a run.
    """

    place = _place(text)
    root = (place if place.is_dir() else place.parent) / "runs"
    found = []
    for run in runs.iter_rows(named=True):
        table = root / run["deployment"] / run["run"] / "requests.parquet"
        if table.exists():
            requests = judged_requests(run, pl.read_parquet(table))
        elif run["judged"] is not None:
            requests = judged_frame(run["judged"])
        else:
            raise BenchError(
                f"{table}: no such file, and {place} does not have the latencies of {run['run']}: an SLO cannot be judged. "
                f"Run the study's command again, or `{BENCH} figures`: both write the table anew from its runs."
            )
        found.append(goodput(run, requests, slos))
    return runs.with_columns(
        pl.Series("goodput_requests_per_s", [row["goodput_requests_per_s"] for row in found], dtype=pl.Float64),
        pl.Series("judged", [row["judged"] for row in found], dtype=COLUMNS["judged"].dtype),
    )


def capacity_of(runs: pl.DataFrame, text: str, decision: Decision) -> pl.DataFrame:
    """What each curve carries: as the study's analysis has it, if that is of the same SLOs and no older than the table; else `runs`
    are analysed.

    Args:
        runs: summary rows of `read_source`. text: what they were read from.

    Raises:
        BenchError: as `with_goodput`.
    """
    table = _table(_place(text))
    folder = table.parent / Path(Paths.ANALYSIS).name if table else None
    stored = folder and folder / "capacity.parquet"
    if table and folder and stored and stored.exists() and stored.stat().st_mtime >= table.stat().st_mtime:
        known = read_analysis(folder).capacity.join(runs, on=["deployment", "workload"], how="semi", maintain_order="left")
        by = {row[:2]: row[2:] for row in known.select("deployment", "workload", "slos", "failed_share").iter_rows()}
        if by == {curve: (slos, decision.failed_share) for curve, slos in _limits(runs, decision.slos).items()}:
            return known
    return Analysis(with_goodput(runs, text, decision.slos), decision).capacity


def _limits(runs: pl.DataFrame, slos: Sequence[Slo]) -> dict[tuple[str, str], list[str]]:
    """The SLOs that limit each curve with a capacity, as `operating_points` has them."""
    found = {}
    for (deployment, workload), group in runs.group_by("deployment", "workload"):
        limits = applying(slos, class_names(group["classes"][0]))
        if limits or not AXES[group["axis"][0]].held:
            found[str(deployment), str(workload)] = list(map(str, limits))
    return found


def _place(text: str) -> Path:
    return Path(text) if Path(text).exists() else Path(text.rpartition(":")[0] or Paths.SUMMARY)


def _table(place: Path) -> Path | None:
    tables = (place / "summary.parquet", place / Paths.SUMMARY) if place.is_dir() else (place,)
    return next((table for table in tables if table.exists()), None)


def _read(path: Path) -> pl.DataFrame:
    if path.name.endswith((".tar.gz", ".tgz")):
        raise BenchError(
            f"{path}: a pack holds raw records, not results. Take it in with `{BENCH} unpack {path}`, run the command that it "
            "prints, and give the results."
        )

    table = _table(path)
    return _of_parsed_runs(path) if table is None else read_summary(table)


def _of_parsed_runs(folder: Path) -> pl.DataFrame:
    """The rows of the parsed runs below a folder, judged by the thresholds with which they were taken."""
    runs = sorted(folder.rglob("summary.json"))
    if not runs:
        raise BenchError(
            f"{folder}: neither summary.parquet, nor {Paths.SUMMARY}, nor a summary.json at any depth. A study's command writes its "
            f"table, `{BENCH} parse` a run's summary."
        )
    launches = {launch.deployment: launch for launch in (read(Launch, path) for path in folder.rglob("launch.json"))}
    facts = {fact.deployment: fact for fact in (read(DeploymentFacts, path) for path in folder.rglob("deployment.json"))}
    thresholds = thresholds_of(kept_thresholds(run.parent for run in runs))
    return summary_frame([read_run_summary(run).figures for run in runs], launches, facts, thresholds)

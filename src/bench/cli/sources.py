"""What a user may name as a set of results: a folder, a table, or a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from bench.aggregate import summary_frame
from bench.analysis.slo import goodput, judged_frame, judged_requests
from bench.errors import BenchError
from bench.records.columns import COLUMNS
from bench.records.deployment import read_facts
from bench.records.launch import read_launch
from bench.records.run_summary import read_run_summary
from bench.records.summary import read_summary
from bench.study import Paths, Slo
from bench.study.config import Thresholds

__all__ = ["read_named", "read_source", "with_goodput"]


def read_source(text: str) -> pl.DataFrame:
    """The summary rows that `text` names.

    A folder of results or of parsed runs, a summary.parquet, either of them with `:DEPLOYMENT` behind it, or a deployment of the
    study in this folder.

    Raises:
        BenchError: there is nothing of that name, or it holds no runs.
    """
    runs, deployment = read_named(text)
    return runs if deployment is None else runs.filter(runs["deployment"] == deployment)


def read_named(text: str) -> tuple[pl.DataFrame, str | None]:
    """All summary rows of the place that `text` names, and the deployment that it names there; None where it means all.

    Raises:
        BenchError: as `read_source`.
    """
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
            f"{text}: no such file or folder; and no deployment of {study}, which is not here. Give a folder with results, a "
            "summary.parquet, or one of them with :DEPLOYMENT behind it."
        )
    if deployment not in runs["deployment"]:
        where = f"{text}: no such file or folder; and {place}" if place == str(study) and not colon else place
        raise BenchError(f"{where} has no deployment {deployment!r}. There are: {', '.join(sorted(set(runs['deployment'])))}.")
    return runs, deployment


def with_goodput(runs: pl.DataFrame, text: str, slos: Sequence[Slo]) -> pl.DataFrame:
    """The rows with their goodput under `slos` and the requests that they are judged by, from each run's table of requests.

    Args:
        runs: summary rows of `read_source`. text: what they were read from.

    Raises:
        BenchError: neither the table nor a file beside it has the requests of a run.
    """

    place = Path(text) if Path(text).exists() else Path(text.rpartition(":")[0] or Paths.SUMMARY)
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
                "Make the table again from its runs, with `make figures` or `bench figures`."
            )
        found.append(goodput(run, requests, slos))
    return runs.with_columns(
        pl.Series("goodput_requests_per_s", [row["goodput_requests_per_s"] for row in found], dtype=pl.Float64),
        pl.Series("judged", [row["judged"] for row in found], dtype=COLUMNS["judged"].dtype),
    )


def _read(path: Path) -> pl.DataFrame:
    """The summary rows in a table, in a folder with one, or of the parsed runs below a folder."""
    if path.name.endswith((".tar.gz", ".tgz")):
        raise BenchError(
            f"{path}: a pack holds raw records, not results. Take it in with `bench unpack {path}`, then run the `make figures` that "
            "that command prints, and give the results."
        )

    if path.is_dir():
        tables = (path / "summary.parquet", path / Paths.SUMMARY)
        table = next((table for table in tables if table.exists()), None)
        return _of_parsed_runs(path) if table is None else read_summary(table)
    return read_summary(path)


def _of_parsed_runs(folder: Path) -> pl.DataFrame:

    runs = sorted(folder.rglob("summary.json"))
    if not runs:
        raise BenchError(
            f"{folder}: neither summary.parquet, nor {Paths.SUMMARY}, nor a summary.json at any depth. `make figures` writes a study's "
            "table, `bench parse` a run's summary."
        )
    launches = {launch.deployment: launch for launch in map(read_launch, folder.rglob("launch.json"))}
    facts = {fact.deployment: fact for fact in map(read_facts, folder.rglob("deployment.json"))}
    return summary_frame([read_run_summary(run).figures for run in runs], launches, facts, Thresholds())

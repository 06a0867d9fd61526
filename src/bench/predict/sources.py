"""What a model is calibrated on, from a folder of results."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from bench.errors import BenchError
from bench.predict.calibrate import MeasuredRun, limits_of
from bench.predict.state import Limits
from bench.records.deployment import read_facts
from bench.records.launch import read_launch
from bench.study import Paths

__all__ = ["measured_runs", "read_limits"]


def measured_runs(table: pl.DataFrame, results: Path, deployment: str) -> list[MeasuredRun]:
    """The valid runs of a deployment whose requests are there.

    Args:
        table: the summary. results: the folder that it is of.
    """
    # Answers that come whole show no steps.
    usable = (pl.col("deployment") == deployment) & pl.col("valid") & pl.col("stream").fill_null(True)
    found = []
    for row in table.filter(usable).iter_rows(named=True):
        requests = _at(results, Paths.REQUESTS, deployment=deployment, run=row["run"])
        if requests.exists():
            found.append(MeasuredRun(row["run"], row, pl.read_parquet(requests)))
    return found


def read_limits(results: Path, deployment: str) -> Limits:
    """What the scheduler of a deployment obeys.

    Raises:
        BenchError: it is not known; the message says why.
    """
    launch_file, facts_file = (_at(results, path, deployment=deployment) for path in (Paths.LAUNCH, Paths.FACTS))
    if not launch_file.exists() or not facts_file.exists():
        raise BenchError(
            f"{launch_file.parent}: launch.json or deployment.json is not there, so the scheduler's limits are not known."
        )
    try:
        return limits_of(read_launch(launch_file), read_facts(facts_file))
    except BenchError as error:
        raise BenchError(f"{deployment}: {error}.") from None


def _at(results: Path, path: str, **names: str) -> Path:
    return results / Path(path.format(**names)).relative_to("results")

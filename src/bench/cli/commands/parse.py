"""`bench parse`."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.commands.shared import ONE_STAGE, Json, command


@command(
    ONE_STAGE,
    "bench parse runs/one",
    "bench parse runs/one --json",
)
def parse(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run, from `bench workload` or a study.")],
    json: Json = False,
) -> None:
    """Turn a run's raw records into tables and a summary, with a verdict on the run.

    Reads run.json, requests.jsonl and, if present, telemetry.jsonl.gz. Writes requests.parquet, telemetry.parquet, metrics.csv (elapsed
    seconds, then a column a series) and summary.json beside them. The verdict uses the default thresholds.
    """
    from bench.cli.parse import run

    run(folder, json=json)

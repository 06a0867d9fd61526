"""`summary.json`, the numbers of one run, and the summary table that has a row of each: every column of the catalogue, typed, whoever
made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError
from bench.runs.columns import COLUMNS, family_of
from bench.runs.files import read_as, typed, write_object

NO_COLUMNS = ("metrics_missing", "counters_fell", "scrape_gaps")  # of its entries: what the table has no column for


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run's numbers, and by name those that identify the run.

    Attributes:
        deployment: key of the deployment. run: name of the run. digest: of its definition. level: in the unit of its axis.
        repeat: from 1.
        scrape_endpoint: that of its engine's metrics. gpu_count_seen: GPUs that reported anything.
        metrics_missing: metrics that the server should report and did not. counters_fell: counters that lost what they had counted.
        scrape_gaps: of each endpoint beside the engine's, the longest time without a sample (s).
        figures: all numbers, these too, by the columns of the catalogue (`bench.runs.columns`), in the order of the file.
    """

    deployment: str | None = None
    run: str | None = None
    digest: str | None = None
    level: float
    repeat: int | None = None
    scrape_endpoint: str | None = None
    gpu_count_seen: int | None = None
    metrics_missing: tuple[str, ...] = ()
    counters_fell: tuple[str, ...] = ()
    scrape_gaps: Mapping[str, float | None] | None = None
    figures: Mapping[str, Any]

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> RunSummary:
        """The summary that has these entries. Raises ValueError: it names the one that is not what its field declares."""
        return typed(cls, {**figures, "figures": dict(figures)})


def write_run_summary(summary: RunSummary, path: Path) -> None:
    """Write the entries in their order."""
    write_object(summary.figures, path)


def read_run_summary(path: Path) -> RunSummary:
    """The summary in `path`. Raises BenchError: it names the file, the place in it and what is wrong."""
    return read_as(RunSummary.of, path, "Parse its run again: `bench parse`.")


_INTEGERS = [name for name, column in COLUMNS.items() if column.kind == "integer"]
# Without these a table is not one of runs.
_NEEDED = ("deployment", "workload", "axis", "level", "repeat", "valid", "counts_valid", "telemetry_valid", "failed_share")


def summary_table(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """The table of `rows`, each a run's values by column: what a row lacks is null.

    Raises:
        BenchError: a row has a key without a column, or a fraction where the catalogue has a whole number.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    if unknown := [name for name in names if name not in COLUMNS and family_of(name) is None]:
        raise BenchError(
            f"{', '.join(unknown)}: not a column of the summary table. Add a row for each to src/bench/runs/columns.toml."
        )
    for row in rows:
        for name in _INTEGERS:
            if isinstance(value := row.get(name), float) and not value.is_integer():
                raise BenchError(f"{name} is {value}, but must be a whole number by its row in src/bench/runs/columns.toml.")
    return pl.DataFrame(rows, schema=_schema(names))


def complete(table: pl.DataFrame) -> pl.DataFrame:
    """The table with every column of the catalogue in its order and of its type, null where the table has none; others come last."""
    schema = _schema(table.columns)
    missing = [pl.lit(None).alias(name) for name in schema if name not in table.columns]
    return table.with_columns(missing).cast(schema).select(*schema, pl.exclude(*schema))


def read_summary(path: Path) -> pl.DataFrame:
    """The table in a file, completed. Raises BenchError: it is not a table of runs."""
    remedy = "Make it again from its runs, with `make figures` or `bench figures`."
    try:
        table = pl.read_parquet(path)
        missing = [name for name in _NEEDED if name not in table.columns]
        whole = complete(table)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BenchError(f"{path}: not a summary table: {error}. `make figures` and `bench figures` write one.") from None
    if missing:
        raise BenchError(f"{path}: lacks {', '.join(missing)}: another program wrote it. {remedy}")
    return whole


def _schema(names: Iterable[str]) -> pl.Schema:
    """The types of every column, and of those families of which there are `names`."""
    families = {name: column for name in names if name not in COLUMNS and (column := family_of(name))}
    return pl.Schema({name: column.dtype for name, column in (COLUMNS | families).items()})

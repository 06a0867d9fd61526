"""Runs of a load that goes on, by what was measured in their steady windows."""

from __future__ import annotations

import polars as pl

from bench.records.columns import COLUMNS

__all__ = ["of_windows"]

_LOAD = ("workload", "axis", "level")
_STEADY = {name: column.steady for name, column in COLUMNS.items() if column.steady}


def of_windows(*tables: pl.DataFrame) -> list[pl.DataFrame]:
    """The tables with throughput and latencies of the steady window in place of those of the whole run, ramp and drain included.

    At loads alone of which every valid run in all tables has a window that is long enough: a window must not be compared with a whole
    run. Bursts have none, and stay as they are.

    Args:
        tables: summary rows. One of an older version has no windows, so none of its loads is replaced, nor the same load of another.
    """
    long_enough = pl.col("steady_from_s").is_not_null() & pl.col("steady_why").ne_missing("short")
    valid = pl.concat([table.filter("valid").select(*_LOAD, window=long_enough) for table in tables])
    loads = valid.group_by(_LOAD).agg(pl.col("window").all())
    return [_replaced(table, loads) for table in tables]


def _replaced(table: pl.DataFrame, loads: pl.DataFrame) -> pl.DataFrame:
    lasting = table.join(loads, on=_LOAD, how="left", maintain_order="left")
    here = pl.col("window").fill_null(False) & pl.col("steady_from_s").is_not_null()
    return lasting.with_columns(
        pl.when(here).then(steady).otherwise(column).alias(column) for column, steady in _STEADY.items()
    ).drop("window")

"""Runs of a load that goes on, by what was measured in their steady windows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

__all__ = ["of_windows"]

_LOAD = ("workload", "axis", "level")
_LATENCIES = [f"{name}_{what}" for name in ("ttft", "tpot", "e2e", "itl") for what in
              ("n", "mean_s", *(f"{p}{end}" for p in ("p50", "p90", "p95", "p99") for end in ("_s", "_bound_s")))]  # fmt: skip
_COLUMNS = {
    "throughput_tokens_per_s": "steady_tokens_per_s",
    "throughput_requests_per_s": "steady_requests_per_s",
    **{column: f"steady_{column}" for column in _LATENCIES},
}


def of_windows(*tables: pl.DataFrame) -> list[pl.DataFrame]:
    """The tables with throughput and latencies of the steady window in place of those of the whole run, ramp and drain included.

    At loads alone of which every valid run in all tables has a window that is long enough: a window must not be compared with a whole
    run. Bursts have none, and stay as they are.

    Args:
        tables: summary rows. One of an older version, without windows, leaves all as they are.
    """
    if not all({"steady_from_s", "steady_why", "valid"} <= set(table.columns) for table in tables):
        return list(tables)
    long_enough = pl.col("steady_from_s").is_not_null() & pl.col("steady_why").ne_missing("short")
    valid = pl.concat([table.filter("valid").select(*_LOAD, window=long_enough) for table in tables])
    loads = valid.group_by(_LOAD).agg(pl.col("window").all())
    return [_replaced(table, loads) for table in tables]


def _replaced(table: pl.DataFrame, loads: pl.DataFrame) -> pl.DataFrame:
    columns: Sequence[tuple[str, str]] = [
        (column, steady) for column, steady in _COLUMNS.items() if {column, steady} <= set(table.columns)
    ]
    lasting = table.join(loads, on=_LOAD, how="left", maintain_order="left")
    here = pl.col("window").fill_null(False) & pl.col("steady_from_s").is_not_null()
    return lasting.with_columns(pl.when(here).then(steady).otherwise(column).alias(column) for column, steady in columns).drop(
        "window"
    )

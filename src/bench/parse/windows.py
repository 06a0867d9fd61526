"""Runs of a load that goes on, by what was measured in their steady windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from bench.parse.level_values import became_steady
from bench.runs.columns import COLUMNS
from bench.runs.latencies import class_column, class_names

_LOAD = ("workload", "axis", "level")
# Column → that of the steady window.
OF_WINDOWS = {name: column.steady for name, column in COLUMNS.items() if column.steady}


def of_windows(*tables: pl.DataFrame, load: Sequence[str] = _LOAD) -> list[pl.DataFrame]:
    """The tables with throughput and latencies of the steady window in place of those of the whole run, ramp and drain included.

    A load is replaced only if every valid run of it, in all tables, has a window that is long enough: a window must not stand beside
    a whole run. Bursts have no windows, and stay as they are.

    Args:
        tables: summary rows. load: columns that tell loads apart.
    """
    return [
        table.with_columns(
            pl.when("window").then(steady).otherwise(column).alias(column) for column, steady in _replaced(table)
        ).drop("window")
        for table in _with_window(tables, load)
    ]


def _replaced(table: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Each column that is replaced, and by which, those of classes among them."""
    yield from OF_WINDOWS.items()
    known = table["classes"].drop_nulls().unique(maintain_order=True) if "classes" in table.columns else ()
    for name in dict.fromkeys(name for text in known for name in class_names(text)):
        pairs = ((class_column(name, column), class_column(name, steady)) for column, steady in OF_WINDOWS.items())
        yield from (pair for pair in pairs if set(pair) <= set(table.columns))


def with_rates_of_windows(runs: pl.DataFrame, column: str) -> pl.DataFrame:
    """The runs with a throughput of the steady window in place of that of the whole run, even of windows too short for latencies.

    A rate needs no window of several latencies, and the levels of one curve are compared: a whole run, ramp and drain included, beside
    windows would look like a fall, or a rise. A curve with a valid run that has no window at all stays as it is, as do bursts, and
    conversations: a short window has more of their first turns, which are faster, than a run that lasts.

    Args:
        runs: summary rows, before `of_windows` or after it. column: which throughput; one that windows do not have stays.
    """
    steady = OF_WINDOWS.get(column)
    if steady is None or steady not in runs.columns:
        return runs
    single = pl.col("turns").fill_null(1) <= 1
    known = (single & pl.col(steady).is_not_null() | ~pl.col("valid")).all().over("deployment", "workload")
    return runs.with_columns(pl.when(known & pl.col(steady).is_not_null()).then(steady).otherwise(column).alias(column))


def whole_runs(table: pl.DataFrame) -> pl.DataFrame:
    """The valid runs that `of_windows` leaves as they are, on curves where it replaces others.

    On such a curve a level's throughput and latencies include ramp and drain, and its neighbour's do not.

    Args:
        table: summary rows, before `of_windows` or after it.

    Returns:
        Their rows; none where every curve is of one kind.
    """
    (known,) = _with_window([table.filter("valid")])
    mixed = pl.col("window").any().over("deployment", "workload", "axis") & ~pl.col("window")
    return known.filter(mixed).drop("window")


def in_windows(table: pl.DataFrame) -> bool:
    """Whether the throughput and latencies of any valid run are those of its steady window. Args: table: as of `whole_runs`."""
    return bool(_with_window([table.filter("valid")])[0]["window"].any())


def _with_window(tables: Sequence[pl.DataFrame], load: Sequence[str] = _LOAD) -> list[pl.DataFrame]:
    """The tables with `window`: whether a row's steady window stands for it."""
    valid = pl.concat([table.filter("valid").select(*load, window=became_steady()) for table in tables])
    loads = valid.group_by(load).agg(pl.col("window").all())
    return [
        table.join(loads, on=load, how="left", maintain_order="left").with_columns(
            pl.col("window").fill_null(False) & pl.col("steady_from_s").is_not_null()
        )
        for table in tables
    ]

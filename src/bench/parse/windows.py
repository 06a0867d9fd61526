"""The one value that a quantity has at a level, wherever it is printed or drawn; of a load that goes on, that of its steady windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import polars as pl

from bench.runs.columns import COLUMNS
from bench.runs.latencies import class_column, class_names
from bench.statistics.percentiles import percentile_of
from bench.study.slo import Slo

_KEYS = ("deployment", "workload", "axis", "level")
_POOLED = "_of_all"  # suffix of a percentile of all requests
_HIGHEST = ("kv_usage_peak",)  # the highest of a level's runs counts


def level_value(column: str) -> pl.Expr:
    """The value of a level by those of its runs: their mean, or the highest of a peak."""
    return pl.col(column).max() if column in _HIGHEST else pl.col(column).mean()


def became_steady() -> pl.Expr:
    """Whether a run has a steady window that is long enough."""
    return pl.col("steady_from_s").is_not_null() & pl.col("steady_why").ne_missing("short")


def level_values(runs: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The values of each level that has a valid run.

    A latency's percentile is that of all judged requests of the level's valid runs together, as SLOs are judged: without runs that did
    not become steady beside others that did. A failed request is slower than any limit, so it is infinite where that share of them
    failed. Without judged requests, and of all other quantities, it
    is the mean of the runs, or the highest of a peak.

    Args:
        runs: summary rows of steady windows (`of_windows`). columns: of them; null where they have no such column.

    Returns:
        One row a level, in the order of the runs: `deployment`, `workload`, `axis`, `level` and `columns`.
    """
    known = runs.filter("valid")
    absent = [pl.lit(None, dtype=pl.Float64).alias(column) for column in columns if column not in runs.columns]
    levels = (
        known.with_columns(absent)
        .group_by(_KEYS, maintain_order=True)
        .agg(level_value(column).cast(pl.Float64) for column in columns)
    )
    latencies = {column: slo for column in columns if (slo := Slo.named(column))}
    if not latencies or not isinstance(runs.schema.get("judged"), pl.List):
        return levels
    known = known.filter(became_steady() | ~became_steady().any().over(_KEYS))
    requests = known.select(*_KEYS, "judged").explode("judged").drop_nulls("judged").unnest("judged")
    pooled = requests.group_by(_KEYS).agg(_percentile(slo).alias(column) for column, slo in latencies.items())
    together = levels.join(pooled, on=_KEYS, how="left", maintain_order="left", suffix=_POOLED)
    return together.select(
        *_KEYS,
        *(pl.coalesce(f"{column}{_POOLED}", column).alias(column) if column in latencies else column for column in columns),
    )


def _percentile(slo: Slo) -> pl.Expr:
    """The percentile of an SLO, of all requests or of its class (s)."""
    values = pl.when("ok").then(pl.col(slo.metric)).otherwise(math.inf)
    if slo.request_class:
        values = values.filter(pl.col("request_class") == slo.request_class)
    return percentile_of(values, slo.share)


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
    windows would look like a fall, or a rise. So it is left out where a valid run of the curve has no window at all, and of
    conversations: a short window has more of their first turns, which are faster, than a run that lasts. Bursts stay as they are.

    Args:
        runs: summary rows, before `of_windows` or after it. column: which throughput; one that windows do not have stays.
    """
    steady = OF_WINDOWS.get(column)
    if steady is None or steady not in runs.columns:
        return runs
    single = pl.col("turns").fill_null(1) <= 1
    known = (single & pl.col(steady).is_not_null() | ~pl.col("valid")).all().over("deployment", "workload")
    rates = runs.with_columns(pl.when(known & pl.col(steady).is_not_null()).then(steady).otherwise(column).alias(column))
    (others,) = _with_window([runs.filter(~known).filter("valid")])
    whole = others.filter(pl.col("window").any().over("deployment", "workload", "axis") & ~pl.col("window"))
    return rates.join(whole, on=["deployment", "run"], how="anti", maintain_order="left")


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

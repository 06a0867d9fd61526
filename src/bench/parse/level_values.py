"""The one value that a quantity has at a level, wherever it is printed or drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

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

"""The one value that a quantity has at a level, wherever it is printed or drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bench.parse.percentiles import percentile
from bench.study import Slo

__all__ = ["level_value", "level_values", "reached"]

_KEYS = ("deployment", "workload", "axis", "level")
_HIGHEST = ("kv_usage_peak",)  # of which the highest of a level's runs counts


def level_value(column: str) -> pl.Expr:
    """The value of a level by those of its runs: their mean, or the highest of a peak."""
    return pl.col(column).max() if column in _HIGHEST else pl.col(column).mean()


def level_values(runs: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The values of each level that has a valid run.

    A latency's percentile is that of all judged requests of the level's valid runs together, as SLOs are judged; a failed request is
    slower than any limit, so it is infinite where that share of them failed. Without judged requests, and of all other quantities, it
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
    if not latencies or "judged" not in runs.columns:
        return levels
    pooled: dict[str, list[float | None]] = {column: [] for column in latencies}
    for _, group in known.group_by(_KEYS, maintain_order=True):
        judged = [each for run in group["judged"].to_list() for each in run or ()]
        for column, slo in latencies.items():
            pooled[column].append(reached(judged, slo))
    return levels.with_columns(
        pl.coalesce(pl.Series(values, dtype=pl.Float64), pl.col(column)).alias(column) for column, values in pooled.items()
    )


def reached(judged: Sequence[Mapping[str, Any]], slo: Slo) -> float | None:
    """The percentile of an SLO, of all requests or of its class (s): infinity where that share of them failed, None without any."""
    mine = [each for each in judged if slo.request_class in (None, each.get("request_class"))]
    values = [each[slo.metric] if each["ok"] else math.inf for each in mine]
    return percentile(pl.Series(values, dtype=pl.Float64), slo.share)

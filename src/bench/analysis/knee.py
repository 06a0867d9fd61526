"""The knee of a curve: where the tail of TTFT leaves the median while throughput flattens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from bench.analysis.level_values import level_values

# P99 ÷ P50 from which a latency's tail has left its median; convention: TTFT of a burst that is computed in order has 2
APART = 3.0
FLATTENS = 0.5  # share of proportional throughput below which added load flattens; convention
_SCHEMA = {"deployment": pl.String, "workload": pl.String, "knee": pl.Float64, "knee_below": pl.Float64}


def knees(runs: pl.DataFrame) -> pl.DataFrame:
    """The knee of each curve.

    It is the lowest level from which on TTFT's P99 is three times its P50 or more, and at which the load above that of the best lower
    level brought less than half of its share of requests/s: ln(throughput ratio) ÷ ln(load ratio) < 0.5, all by `level_values`. A
    percentile is infinite where that share of requests failed, and such a tail has left its median too. The knee
    lies above `knee_below`, the level before it, and not above `knee`; both are null where the tail stays with the median, where only
    the lowest level is beyond it, or where throughput still grows.

    Args:
        runs: summary rows (`deployment`, `workload`, `level`, `valid`, `ttft_p50_s`, `ttft_p99_s`, `throughput_requests_per_s`).

    Returns:
        One row a deployment and workload: `knee`, `knee_below` (in the load's unit).
    """
    rows = []
    columns = ("ttft_p50_s", "ttft_p99_s", "throughput_requests_per_s")
    for (deployment, workload), group in runs.group_by("deployment", "workload", maintain_order=True):
        values = level_values(group, columns)
        levels = values.filter(pl.all_horizontal(pl.col(columns) > 0)).sort("level")
        spread = pl.when(pl.col("ttft_p50_s").is_finite()).then(pl.col("ttft_p99_s") / pl.col("ttft_p50_s")).otherwise(math.inf)
        at, below = _knee(
            levels["level"].to_list(),
            levels.select(spread).to_series().to_list(),
            levels["throughput_requests_per_s"].to_list(),
        )
        rows.append((deployment, workload, at, below))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _knee(
    load: Sequence[float], spread: Sequence[float], throughput: Sequence[float]
) -> tuple[float, float] | tuple[None, None]:
    """The knee and the level before it. Args: of each level, ascending: its load, P99 ÷ P50, and throughput."""
    first = next((i for i in range(len(load)) if all(x >= APART for x in spread[i:])), len(load))
    for i in range(max(first, 1), len(load)):
        best = max(range(i), key=lambda j: throughput[j])
        if math.log(throughput[i] / throughput[best]) / math.log(load[i] / load[best]) < FLATTENS:
            return load[i], load[i - 1]
    return None, None

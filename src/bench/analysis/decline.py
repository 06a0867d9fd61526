"""What throughput loses beyond a full KV cache."""

from __future__ import annotations

import polars as pl

from bench.analysis.level_values import level_values

__all__ = ["declines"]


def declines(runs: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """The throughput of the last level at which the KV cache had room, and that of the highest level.

    Args:
        runs: summary rows (`deployment`, `workload`, `level`, `valid`, `throughput_tokens_per_s`). found: rows of `saturation` of them.

    Returns:
        One row a curve whose cache fills above its lowest level: `deployment`, `workload`, `below`, `highest` (levels), `before` and
        `after` (output tokens/s) and `change` (after ÷ before − 1).
    """
    curve = ["deployment", "workload"]
    levels = level_values(runs, ["throughput_tokens_per_s"]).rename({"throughput_tokens_per_s": "speed"}).drop_nulls()
    last = levels.sort("level").group_by(curve).agg(highest=pl.col("level").last(), after=pl.col("speed").last())
    first = levels.select(*curve, below="level", before="speed")
    return (
        found.drop_nulls(["measured", "below"])
        .select(*curve, "measured", "below")
        .join(first, on=[*curve, "below"], maintain_order="left")
        .join(last, on=curve, maintain_order="left")
        .filter(pl.col("highest") >= pl.col("measured"))
        .select(*curve, "below", "highest", "before", "after", change=pl.col("after") / pl.col("before") - 1)
    )

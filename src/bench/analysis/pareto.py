"""The Pareto frontier: loads that no other one beats both in the speed that a user sees and in throughput per GPU."""

from __future__ import annotations

import polars as pl

from bench.analysis.level_values import level_values

__all__ = ["speeds", "unbeaten"]

_LEVEL = ("deployment", "workload", "axis", "level")


def speeds(runs: pl.DataFrame) -> pl.DataFrame:
    """What a user and what a GPU get at each level (`level_values`); without levels at which either is not known.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `valid`, `tpot_p50_s`, `throughput_tokens_per_s`, `gpus`).

    Returns:
        One row a level: `deployment`, `workload`, `axis`, `level`, `a_user` (tokens/s, 1 ÷ TPOT P50: how fast the tokens after the
        first come), `an_instance` and `a_gpu` (output tokens/s; null where the number of GPUs is not known or 0), and `unbeaten`
        among those of its workload, by the GPU where all of them know it and else by the instance.
    """
    levels = (
        level_values(runs, ["tpot_p50_s", "throughput_tokens_per_s", "gpus"])
        .select(*_LEVEL, a_user=1 / pl.col("tpot_p50_s"), an_instance="throughput_tokens_per_s", gpus="gpus")
        .drop_nulls(["a_user", "an_instance"])
        .with_columns(a_gpu=pl.when(pl.col("gpus") > 0).then(pl.col("an_instance") / pl.col("gpus")))
    )
    column = "an_instance" if levels["a_gpu"].null_count() else "a_gpu"
    parts = [
        part.with_columns(unbeaten=unbeaten(part, "a_user", column))
        for part in levels.partition_by("workload", maintain_order=True)
    ]
    return pl.concat(parts) if parts else levels.with_columns(unbeaten=pl.lit(True))


def unbeaten(rows: pl.DataFrame, x: str, y: str) -> pl.Series:
    """Whether no other row has as much of both `x` and `y`, and more of one."""
    points = list(rows.select(x, y).iter_rows())
    beaten = [any(c >= a and d >= b and (c, d) != (a, b) for c, d in points) for a, b in points]
    return ~pl.Series(beaten, dtype=pl.Boolean)

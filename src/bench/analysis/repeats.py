"""What repeats of a level agree on: their mean, with its confidence interval."""

from __future__ import annotations

import polars as pl

from bench.statistics import student_t


def repeats(runs: pl.DataFrame, column: str) -> pl.DataFrame:
    """Mean of `column` over the valid repeats of each level, with the 95 % interval of the mean.

    The interval is mean ± t · s / √n, with s the sample's standard deviation (n − 1) and t Student's for n − 1 degrees of freedom. It
    takes repeats as independent and about normal; with two of them t is 12.7, and says so.

    Args:
        runs: summary rows (`deployment`, `workload`, `valid`, `level` and `column`); those without a value are left out.

    Returns:
        One row a deployment, workload and level that has a valid run: `n`, `mean`, `low`, `high` (null for n < 2), in the
        unit of `column`.
    """
    levels = (
        runs.filter(pl.col("valid") & pl.col(column).is_not_null() & pl.col("level").is_not_null())
        .group_by("deployment", "workload", "level", maintain_order=True)
        .agg(
            n=pl.len(),
            mean=pl.col(column).mean(),
            deviation=pl.col(column).std(),
        )
    )
    quantiles = {n: student_t(n - 1) for n in levels["n"].unique() if n > 1}
    t = pl.col("n").replace_strict(quantiles, default=None, return_dtype=pl.Float64)
    half = t * pl.col("deviation") / pl.col("n").sqrt()
    return levels.with_columns(low=pl.col("mean") - half, high=pl.col("mean") + half).drop("deviation")

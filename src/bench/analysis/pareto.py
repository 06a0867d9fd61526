"""The Pareto frontier: loads that no other one beats both in the speed that a user sees and in throughput per GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Any

import polars as pl

from bench.analysis.blocks import ASSUMED_SPREAD, FEWEST_SESSIONS
from bench.analysis.level_values import level_values
from bench.statistics import TAIL, student_t

__all__ = ["speeds", "unbeaten"]

_LEVEL = ("deployment", "workload", "axis", "level")


def speeds(runs: pl.DataFrame) -> pl.DataFrame:
    """What a user and what a GPU get at each level (`level_values`); without levels at which either is not known or 0, or TPOT is
    infinite because too many requests failed.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `session`, `valid`, `tpot_p50_s`, `throughput_tokens_per_s`,
            `gpus`).

    Returns:
        One row a level: `deployment`, `workload`, `axis`, `level`, `a_user` (tokens/s, 1 ÷ TPOT P50: how fast the tokens after the
        first come), `an_instance` and `a_gpu` (output tokens/s; null where the number of GPUs is not known or 0), `unbeaten`
        among those of its workload, by the GPU where all of them know it and else by the instance, and `established`: whether that is
        more than noise could have made of it, at 95 % for each level; false where no level was measured twice, or no
        single run of the level has both values.
    """
    values = pl.col("tpot_p50_s", "throughput_tokens_per_s")
    known = pl.all_horizontal(values.is_finite() & (values > 0))
    noise = (
        runs.filter("valid", known)
        .group_by(_LEVEL, maintain_order=True)
        .agg(
            users=-pl.col("tpot_p50_s").log(),
            instances=pl.col("throughput_tokens_per_s").log(),
            sessions=pl.col("session").fill_null(1).n_unique(),
        )
    )
    levels = (
        level_values(runs, ["tpot_p50_s", "throughput_tokens_per_s", "gpus"])
        .filter(known)
        .select(*_LEVEL, a_user=1 / pl.col("tpot_p50_s"), an_instance="throughput_tokens_per_s", gpus="gpus")
        .join(noise, on=_LEVEL, how="left", maintain_order="left")
        .with_columns(a_gpu=pl.when(pl.col("gpus") > 0).then(pl.col("an_instance") / pl.col("gpus")))
    )
    column = "an_instance" if levels["a_gpu"].null_count() else "a_gpu"
    parts = [
        part.with_columns(
            unbeaten=(front := unbeaten(part, "a_user", column)),
            established=_established(part.to_dicts(), front.to_list(), per_gpu=column == "a_gpu"),
        )
        for part in levels.partition_by("workload", maintain_order=True)
    ]
    whole = pl.concat(parts) if parts else levels.with_columns(unbeaten=pl.lit(True), established=pl.lit(False))
    return whole.drop("users", "instances", "sessions")


def _established(levels: Sequence[dict[str, Any]], front: Sequence[bool], *, per_gpu: bool) -> pl.Series:
    """Whether it is more than noise that each level is on the frontier, or that it is not.

    A run's noise is what the repeats of all levels show, in ln; of two deployments with fewer than four sessions, starts are held to
    differ by 10 % beside it. A level is off the frontier where one other is significantly better in both; it is on it where each
    other is significantly worse in one. Each is shown at 5 % ÷ the number of others (Bonferroni), by Student's t.

    Args:
        levels: of one workload, each with `users` and `instances`, the ln of its runs' values, null where no run has both.
    """
    axes = [
        (level["users"] or [], [x - math.log(level["gpus"] if per_gpu else 1) for x in level["instances"] or []])
        for level in levels
    ]
    freedom = sum(len(users) - 1 for users, _ in axes if users)
    if not freedom or len(levels) < 2:
        return pl.Series([False] * len(levels), dtype=pl.Boolean)
    noise = [sum((len(a[i]) - 1) * variance(a[i]) for a in axes if len(a[i]) > 1) / freedom for i in (0, 1)]
    bar = student_t(freedom, 1 - 4 * TAIL / (len(levels) - 1))

    def above(one: int, other: int, axis: int) -> bool:
        """Whether one level is significantly higher than another; not where one of them has no run to tell."""
        mine, its = axes[one][axis], axes[other][axis]
        if not (mine and its):
            return False
        apart = levels[one]["deployment"] != levels[other]["deployment"]
        sessions = min(levels[one]["sessions"], levels[other]["sessions"])
        starts = ASSUMED_SPREAD**2 / sessions if apart and sessions < FEWEST_SESSIONS else 0.0
        return fmean(mine) - fmean(its) > bar * math.sqrt(noise[axis] * (1 / len(mine) + 1 / len(its)) + starts)

    every = range(len(levels))
    return pl.Series(
        [
            all(above(i, j, 0) or above(i, j, 1) for j in every if j != i)
            if front[i]
            else any(above(j, i, 0) and above(j, i, 1) for j in every)
            for i in every
        ],
        dtype=pl.Boolean,
    )


def unbeaten(rows: pl.DataFrame, x: str, y: str) -> pl.Series:
    """Whether no other row has as much of both `x` and `y`, and more of one."""
    points = list(rows.select(x, y).iter_rows())
    beaten = [any(c >= a and d >= b and (c, d) != (a, b) for c, d in points) for a, b in points]
    return ~pl.Series(beaten, dtype=pl.Boolean)

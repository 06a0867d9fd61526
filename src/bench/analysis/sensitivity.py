"""How the operating point moves with an SLO's limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from bench.analysis.slo import operating_points
from bench.study import Slo

__all__ = ["sensitivity"]

_SCHEMA = {
    "deployment": pl.String,
    "workload": pl.String,
    "limit_s": pl.Float64,
    "c_max": pl.Float64,
    "usable_rps": pl.Float64,
}


def sensitivity(runs: pl.DataFrame, slos: Sequence[Slo], slo: Slo, limits_s: Sequence[float]) -> pl.DataFrame:
    """`C_max` and usable requests/s of each curve where `slo` has another limit and the other SLOs stay.

    Args:
        runs: summary rows, as `operating_points` takes them; other curves change nothing. slo: one of `slos`. limits_s: its
            limits (s).

    Returns:
        One row a curve and limit at which a measured load meets all: `deployment`, `workload`, `limit_s`, `c_max`, `usable_rps`.
    """
    parts = [pl.DataFrame(schema=_SCHEMA)]
    for limit in limits_s:
        moved = [replace(each, limit_s=limit) if each == slo else each for each in slos]
        points = operating_points(runs, moved).with_columns(limit_s=pl.lit(limit))
        parts.append(points.drop_nulls("c_max").select(*_SCHEMA))
    return pl.concat(parts)


def steps_of(runs: pl.DataFrame, slo: Slo) -> list[float]:
    """The limits at which something changes: every level's mean of the SLO's percentile (s), ascending."""
    means = (
        runs.filter("valid")
        .drop_nulls(slo.column)
        .group_by("deployment", "workload", "level")
        .agg(pl.col(slo.column).cast(pl.Float64).log().mean().exp())
    )
    return means[slo.column].unique().sort().to_list()

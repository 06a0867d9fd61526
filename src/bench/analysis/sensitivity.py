"""How the operating point moves with an SLO's limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from bench.analysis.capacity import operating_points
from bench.analysis.level_values import level_values
from bench.analysis.windows import of_windows
from bench.study.slo import Slo

_SCHEMA = {
    "deployment": pl.String,
    "workload": pl.String,
    "limit_s": pl.Float64,
    "c_max": pl.Float64,
    "usable_rps": pl.Float64,
    "usable_low": pl.Float64,
    "usable_high": pl.Float64,
}


def sensitivity(
    runs: pl.DataFrame, slos: Sequence[Slo], slo: Slo, limits_s: Sequence[float], failed_share: float = 0.01
) -> pl.DataFrame:
    """`C_max` and usable requests/s of each curve where `slo` has another limit and the other SLOs stay.

    Args:
        runs: summary rows, as `operating_points` takes them; other curves change nothing. slo: one of `slos`. limits_s: its
            limits (s). failed_share: of requests that may fail (0–1).

    Returns:
        One row a curve and limit at which a measured load meets all: `deployment`, `workload`, `limit_s`, `c_max`, `usable_rps` and its
        `usable_low` and `usable_high`, null where not established.
    """
    rows: dict[float, list[dict[str, Any]]] = {}
    laxer: dict[tuple[str, str], dict[str, Any]] = {}
    for limit in sorted(set(limits_s), reverse=True):
        moved = [replace(each, limit_s=limit) if each == slo else each for each in slos]
        points = operating_points(runs, moved, failed_share).with_columns(limit_s=pl.lit(limit))
        for row in points.select(*_SCHEMA).to_dicts():
            curve = row["deployment"], row["workload"]
            # Estimates of few requests may say that a stricter limit allows more: then the laxer one's counts.
            if curve not in laxer or (row["c_max"] or 0) <= (laxer[curve]["c_max"] or 0):
                laxer[curve] = row
            rows.setdefault(limit, []).append({**laxer[curve], "limit_s": limit})
    return pl.DataFrame([row for limit in limits_s for row in rows.get(limit, ())], schema=_SCHEMA).drop_nulls("c_max")


# factors on a level's percentile at which limits are tried: a level that just meets a limit is significantly within it somewhat above;
# convention
_ABOVE = (1.0, 1.05, 1.2)


def steps_of(runs: pl.DataFrame, slo: Slo) -> list[float]:
    """Limits around which something changes: each level's value of the SLO's percentile, and 5 and 20 % more (s), ascending.

    Of a load that goes on it is that of the steady windows, as in `operating_points`.
    """
    (windows,) = of_windows(runs)
    values = level_values(windows, [slo.column])[slo.column].drop_nulls().unique()
    return sorted({above * value for value in values if math.isfinite(value) for above in _ABOVE})

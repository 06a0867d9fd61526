"""The Pareto frontier: loads within the SLOs that no other one beats both in speed and in throughput per dollar or GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from bench.analysis.economics import Prices, economics
from bench.analysis.level_values import level_values
from bench.analysis.sizing import HOUR_S

_METRIC = "throughput_tokens_per_s"
# By what throughput is counted, and by what an instance's tokens/s are divided for it; the first that is known of all levels counts.
THROUGHPUTS = {"a_dollar": "dollars", "a_gpu": "gpus", "an_instance": None}


def trade_offs(
    runs: pl.DataFrame, latency: str, *, capacity: pl.DataFrame | None = None, prices: Prices | None = None
) -> pl.DataFrame:
    """What a user waits and what the hardware gives at each level (`level_values`), and which levels are on the frontier of both.

    Levels are left out at which either is not known or 0, or the latency is infinite because too many requests failed.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `valid`, the latency, `throughput_tokens_per_s`, `gpus`, and
            what `economics` reads). latency: column of what is to be short (s), such as `tpot_p50_s`.
        capacity: rows of `operating_points` under the SLOs; None without any. A curve that has no row has no limit.
        prices: what an hour costs; None: not known.

    Returns:
        One row a level: `deployment`, `workload`, `axis`, `level`, the latency (s), `an_instance` and `a_gpu` (output tokens/s),
        `a_dollar` (output tokens a USD), each null where not known; `within`, whether the level is sustained within the SLOs (null
        where not known), and `unbeaten` among those of its workload that are, by `throughput_of`.
    """
    cost = None if prices is None else economics(runs, prices)["cost_per_h"] / HOUR_S
    values = pl.col(latency, _METRIC)
    levels = level_values(
        runs.with_columns(dollars=pl.lit(cost, dtype=pl.Float64)), [latency, _METRIC, "gpus", "dollars"]
    ).filter(pl.all_horizontal(values.is_finite() & (values > 0)))
    levels = levels.with_columns(
        pl.when(pl.col(by) > 0).then(pl.col(_METRIC) / pl.col(by)).alias(name) if by else pl.col(_METRIC).alias(name)
        for name, by in THROUGHPUTS.items()
    )
    limits = {(row["deployment"], row["workload"]): row for row in (capacity.to_dicts() if capacity is not None else ())}
    within = [_within(row["level"], limits.get((row["deployment"], row["workload"]))) for row in levels.iter_rows(named=True)]
    levels = levels.with_columns(within=pl.Series(within, dtype=pl.Boolean))
    each = throughput_of(levels)
    key = ["workload", "deployment", "level"]
    candidates = levels.filter("within").select(*key, latency, each)
    better = (pl.col(f"{latency}_right") <= pl.col(latency)) & (pl.col(f"{each}_right") >= pl.col(each))
    other = (pl.col(f"{latency}_right") < pl.col(latency)) | (pl.col(f"{each}_right") > pl.col(each))
    beaten = candidates.join(candidates, on="workload").filter(better & other).select(key).unique()
    unbeaten = candidates.join(beaten, on=key, how="anti").select(*key, unbeaten=pl.lit(True))
    return levels.join(unbeaten, on=key, how="left", maintain_order="left").select(
        "deployment", "workload", "axis", "level", latency, *THROUGHPUTS, "within", pl.col("unbeaten").fill_null(False)
    )


def throughput_of(levels: pl.DataFrame) -> str:
    """The first of `THROUGHPUTS` that all levels have. Args: levels: of `trade_offs`."""
    return next(name for name in THROUGHPUTS if not levels[name].null_count())


def _within(load: float, limit: Mapping[str, Any] | None) -> bool | None:
    """Whether a load is sustained within the SLOs; None where not known. Args: limit: the curve's row; None where nothing limits it."""
    if limit is None or (limit["c_max"] is not None and load <= limit["c_max"]):
        return True
    if limit["missed_at"] is None or load < limit["missed_at"] or limit["kind"] not in ("found", "below"):
        return None
    return None if load == limit["missed_at"] and any(miss["close"] for miss in limit["missed"]) else False

"""The engines of each fleet: what sets them apart, and what each had of the load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from bench.analysis.efficiency import Efficiency
from bench.analysis.level_values import level_values
from bench.analysis.loss import Loss
from bench.analysis.windows import of_windows
from bench.analysis.workers import workers_of_runs
from bench.study.config import Thresholds
from bench.words.workers import between, efficiency, hits, loss, sentences

_KEYS = ("deployment", "workload", "family", "axis", "turns", "level")
_MEANS = ("running_mean", "waiting_mean", "kv_usage_mean", "prefix_hit_rate")


def fleets(
    runs: pl.DataFrame, thresholds: Thresholds, measured: Sequence[Efficiency] = (), lost: Sequence[Loss] = ()
) -> list[dict[str, Any]]:
    """Each deployment with several workers: `deployment`, `efficiency` of its curves, `losses` of workers and `hits` of prefix caches
    in words, `sentences` on what sets its workers apart, and `rows` of a level and a worker.

    A row has the shares of requests and of output tokens (0–1) that the worker had of its level's runs, the highest KV usage, and the
    means over runs of the other columns; null where no run has a value.

    Args:
        runs: rows of the summary. measured, lost: of the study's fleets.
    """
    known = runs.filter(pl.col("workers").is_not_null())
    table = known.select(*_KEYS, pl.col("workers")).explode("workers").unnest("workers")
    apart = workers_of_runs(known, thresholds.scrape_gap_s)
    rows = {(row["deployment"], row["run"]): row for row in runs.drop_nulls("lost_at_s").iter_rows(named=True)}
    return [
        {
            "deployment": name,
            "efficiency": [efficiency(each) for each in measured if each.fleet == name],
            "losses": [loss(rows[name, each.run], each.holds) for each in lost if each.deployment == name],
            "hits": _hits(known.filter(deployment=name)),
            "sentences": sentences(apart[name]),
            # One worker is alike, and had all of the load.
            "rows": _rows(own) if (own := table.filter(deployment=name))["worker"].n_unique() > 1 else [],
        }
        for name in apart
    ]


def in_front(runs: pl.DataFrame) -> list[str]:
    """What stands in front of the workers of each deployment does, in words. Args: runs: rows of the summary."""
    known = runs.filter(pl.col("workers").is_not_null())
    names = known["deployment"].unique(maintain_order=True)
    return between({name: known.filter(deployment=name).to_dicts() for name in names})


def _hits(runs: pl.DataFrame) -> list[str]:
    """Of each load where a prefix cache served something, in words: the share of prompt tokens that it served, and TTFT P50."""
    rate = pl.coalesce("prefix_hit_rate", "prefix_hit_rate_answers")
    (windows,) = of_windows(runs.with_columns(prefix_hit_rate=rate))
    levels = level_values(windows, ["prefix_hit_rate", "ttft_p50_s"]).filter(pl.col("prefix_hit_rate") > 0)
    return [hits(row) for row in levels.iter_rows(named=True)]


def _rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    alike = (*_KEYS, "role")
    each = table.group_by(*alike, "worker", maintain_order=True).agg(
        pl.col("requests", "generation_tokens").sum(),
        *(pl.col(name).null_count().alias(f"{name}_lacking") for name in ("requests", "generation_tokens")),
        pl.col("kv_usage_peak").max(),
        *(pl.col(name).mean() for name in _MEANS),
        pl.col("version").first(),
    )
    shares = [
        pl.when(pl.col(f"{name}_lacking").sum().over(alike) == 0, pl.col(name).sum().over(alike) > 0)
        .then(pl.col(name) / pl.col(name).sum().over(alike))
        .alias(f"{name}_share")
        for name in ("requests", "generation_tokens")
    ]
    return each.with_columns(shares).sort("workload", "axis", "level", maintain_order=True).to_dicts()

"""The engines of each fleet: what sets them apart, and what each had of the load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from bench.analysis.efficiency import Efficiency
from bench.analysis.workers import workers_of_runs
from bench.study.config import Thresholds
from bench.words.workers import efficiency, sentences

_KEYS = ("deployment", "workload", "family", "axis", "turns", "level")
_MEANS = ("running_mean", "waiting_mean", "kv_usage_mean", "prefix_hit_rate")


def fleets(runs: pl.DataFrame, thresholds: Thresholds, measured: Sequence[Efficiency] = ()) -> list[dict[str, Any]]:
    """Each deployment with several workers: `deployment`, `efficiency` of its curves in words, `sentences` on what sets its workers
    apart, and `rows` of a level and a worker.

    A row has the shares of requests and of output tokens (0–1) that the worker had of its level's runs, the highest KV usage, and the
    means over runs of the other columns; null where no run has a value.

    Args:
        runs: rows of the summary. measured: of the study's fleets.
    """
    known = runs.filter(pl.col("workers").is_not_null())
    table = known.select(*_KEYS, pl.col("workers")).explode("workers").unnest("workers")
    return [
        {
            "deployment": name,
            "efficiency": [efficiency(each) for each in measured if each.fleet == name],
            "sentences": sentences(apart),
            # One worker is alike, and had all of the load.
            "rows": _rows(own) if (own := table.filter(deployment=name))["worker"].n_unique() > 1 else [],
        }
        for name, apart in workers_of_runs(known, thresholds.scrape_gap_s).items()
    ]


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

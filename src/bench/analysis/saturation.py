"""Where a deployment saturates: by its KV cache, its queue and its throughput, beside what geometry predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from bench.analysis.regions import regions

__all__ = ["SATURATED_KV_USAGE", "saturated", "saturation"]

SATURATED_KV_USAGE = 0.99
_SCHEMA = {
    "deployment": pl.String,
    "workload": pl.String,
    "axis": pl.String,
    "model": pl.String,
    "measured": pl.Float64,
    "below": pl.Float64,
    "queue": pl.Float64,
    "queue_below": pl.Float64,
    "predicted": pl.Float64,
    "levels_apart": pl.Int64,
    "peak_at": pl.Float64,
    "kv_bytes_per_token": pl.Int64,
    "parameters": pl.Int64,
}


def saturated() -> pl.Expr:
    """Whether a run filled the KV cache.

    A request was preempted, which vLLM does only when no block is free; or peak usage is 0.99 or more; or requests waited while usage
    was within one block (and the one that vLLM keeps for itself) of full, where the cache has so few blocks that this is below
    0.99. The counter sees what the gauge, scraped five times a second, can miss.

    Args (columns):
        `kv_usage_peak` (0–1), `waiting_peak` (requests), `preemptions`, `kv_blocks` (null where unknown).
    """
    near = pl.col("kv_usage_peak") >= 1 - 2 / pl.col("kv_blocks").fill_null(1_000_000)
    waited = pl.col("waiting_peak") > 0
    return (pl.col("preemptions") > 0) | (pl.col("kv_usage_peak") >= SATURATED_KV_USAGE) | (near & waited)


def saturation(runs: pl.DataFrame) -> pl.DataFrame:
    """Where each deployment saturates under each workload, by three signals side by side, and as predicted.

    The KV cache: the lowest level of which every valid run filled it, as have all higher levels; the level below it bounds it from
    below. The queue: the same of requests that wait once the load stands. Null where no level did: nothing is extrapolated. The
    throughput of whole runs: its turning points, as `regions` finds them.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `repeat`, `valid`, `content_valid`, `saturated`,
            `waiting_standing`, `throughput_tokens_per_s`, `predicted_saturation`, and the model's `kv_bytes_per_token` and
            `parameters`).

    Returns:
        One row a deployment and workload: `measured`, `below` (highest level that did not fill the cache), `queue`, `queue_below`,
        `predicted`, `levels_apart` (levels of the ladder between the level at which the prediction says it saturates and the measured
        one), `peak_at` (level of the highest throughput, medians of valid runs), `kv_bytes_per_token`, `parameters`; all columns of
        `regions`; and `signals`, how the three compare, in words.
    """
    rows = []
    valid = runs.filter("content_valid")  # a late client changes nothing of what the server counted
    for (deployment, workload), group in valid.group_by("deployment", "workload", maintain_order=True):
        ladder: list[float] = group["level"].unique().sort().to_list()
        # Of this a late client does take something away.
        timed = group.filter("valid").group_by("level").agg(pl.col("throughput_tokens_per_s").median()).drop_nulls()
        highest = timed.sort("throughput_tokens_per_s", "level", descending=[True, False])["level"]
        measured, below = _from(group, pl.col("saturated"))
        queue, queue_below = _from(group, pl.col("waiting_standing") > 0)
        # A number of requests says nothing of a rate.
        counted = group["axis"][0] == "concurrency"
        predicted = group["predicted_saturation"].drop_nulls().max() if counted else None
        expected = (
            next((i for i, level in enumerate(ladder) if level >= predicted), None)  # type: ignore[operator]
            if predicted is not None
            else None
        )
        rows.append(
            {
                "deployment": deployment,
                "workload": workload,
                "axis": group["axis"][0],
                "model": group["model"][0],
                "measured": measured,
                "below": below,
                "queue": queue,
                "queue_below": queue_below,
                "predicted": predicted,
                "levels_apart": ladder.index(measured) - expected if measured is not None and expected is not None else None,
                "peak_at": highest[0] if len(highest) else None,
                "kv_bytes_per_token": group["kv_bytes_per_token"][0],
                "parameters": group["parameters"][0],
            }
        )
    frame = pl.DataFrame(rows, schema=_SCHEMA).join(
        regions(runs), on=["deployment", "workload"], how="left", maintain_order="left"
    )
    return frame.with_columns(signals=pl.Series([_compared(row) for row in frame.iter_rows(named=True)], dtype=pl.String))


def _from(group: pl.DataFrame, sign: pl.Expr) -> tuple[float | None, float | None]:
    """The lowest level from which on all runs that can tell show `sign`, and the level below it; null where there is none."""
    told = group.select("level", sign=sign).drop_nulls()
    levels = told.group_by("level").agg(pl.col("sign").all()).sort("level")
    ladder, signs = levels["level"].to_list(), levels["sign"].to_list()
    first = next((i for i in range(len(ladder)) if all(signs[i:])), None)
    return (None, None) if first is None else (ladder[first], ladder[first - 1] if first else None)


def _compared(row: Mapping[str, Any]) -> str:
    """How the three signals compare: those whose intervals have a load in common agree."""
    told: dict[str, tuple[float, float]] = {}
    for name, low, high, found in (
        ("throughput", "saturation_low", "saturation_high", "saturation_at"),
        ("KV cache", "below", "measured", "measured"),
        ("queue", "queue_below", "queue", "queue"),
    ):
        if row[found] is not None:
            told[name] = (row[low] or 0.0, math.inf if row[high] is None else row[high])
    if len(told) < 2:
        return f"{next(iter(told))} alone" if told else "none"
    if max(low for low, _ in told.values()) <= min(high for _, high in told.values()):
        *others, last = told
        return f"{', '.join(others)} and {last} agree"
    return " before ".join(sorted(told, key=lambda name: (told[name][1], told[name][0])))

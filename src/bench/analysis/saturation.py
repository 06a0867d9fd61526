"""Where a deployment saturates: by its KV cache, its queue and its throughput, beside what geometry predicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from bench.analysis.level_values import level_value
from bench.analysis.regions import regions
from bench.axes import CONCURRENCY
from bench.runs.columns import schema_of

_CURVE = ["deployment", "workload"]
SATURATED_KV_USAGE = 0.99  # KV usage from which a cache is full; convention


def saturated() -> pl.Expr:
    """Whether a run filled the KV cache: a request could not be admitted, or had to be preempted; null where that is not known.

    - A request was preempted, which vLLM does only when no block is free. The counter sees what the gauge, scraped five times a
      second, can miss.
    - Peak usage is 0.99 or more.
    - Requests waited once the load stood, and what was free then was less than a prompt (its 90th percentile), which vLLM admits
      whole or not at all, and the block that it keeps for itself; not where all of `max_num_seqs` ran, which is a bound of its own.

    Args (columns):
        `kv_usage_peak`, `kv_usage_queued` (0–1), `waiting_standing`, `running_peak`, `max_num_seqs` (requests), `preemptions`,
        `kv_tokens`, `kv_blocks` (of all `engines` together, whose fullest one the usage is of), `prompt_tokens_p90` (null where
        unknown).
    """
    engines = pl.col("engines").fill_null(1)
    block = pl.col("kv_tokens") / pl.col("kv_blocks")
    free = (1 - pl.col("kv_usage_queued")) * pl.col("kv_tokens") / engines
    slots = pl.col("running_peak") < pl.col("max_num_seqs").fill_null(math.inf) * engines
    refused = (pl.col("waiting_standing") > 0) & (free < pl.col("prompt_tokens_p90") + 2 * block.fill_null(0)) & slots
    signs = (pl.col("preemptions") > 0, pl.col("kv_usage_peak") >= SATURATED_KV_USAGE, refused)
    # Any sign decides; without one, it is not known where the gauge or the counter is missing.
    return (
        pl.when(pl.any_horizontal(sign.fill_null(False) for sign in signs))
        .then(True)
        .otherwise(pl.when(pl.col("kv_usage_peak").is_not_null()).then(False))
    )


def fills_first(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row of `saturation` that fills the KV cache at the lowest level; of several, the one whose level below it is the closest.

    None where no number of requests in flight fills it.
    """
    filled = (row for row in rows if row["axis"] == CONCURRENCY and row["measured"] is not None)
    return min(filled, key=lambda row: (row["measured"], -(row["below"] or 0.0)), default=None)


def saturation(runs: pl.DataFrame) -> pl.DataFrame:
    """Where each deployment saturates under each workload, by its KV cache, its queue and its throughput, and as predicted.

    The KV cache: the lowest level of which every valid run filled it, as have all higher levels; the level below it bounds it from
    below. The queue: the same of requests that wait once the load stands. Null where no level did: nothing is extrapolated. The
    throughput: its turning points, as `regions` finds them.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `repeat`, `valid`, `counts_valid`, `saturated`,
            `waiting_standing`, `throughput_tokens_per_s`, `predicted_saturation`, and the model's `kv_bytes_per_token` and
            `parameters`).

    Returns:
        One row a deployment and workload: `measured`, `below` (highest level that did not fill the cache), `cache_known` (whether any
        run shows if it did), `queue`, `queue_below`, `predicted`, `levels_apart` (levels of the sweep between the level at which the
        prediction says it saturates and the measured one; null where no level below shows which), `peak_at` (level of the highest
        throughput), `kv_bytes_per_token`, `parameters`, and all columns of `regions`.
    """
    rows = []
    valid = runs.filter("counts_valid")  # a late client does not change what the server counts
    for (deployment, workload), group in valid.group_by("deployment", "workload", maintain_order=True):
        levels: list[float] = group["level"].unique().sort().to_list()
        # A late client changes these.
        timed = group.filter("valid").group_by("level").agg(level_value("throughput_tokens_per_s")).drop_nulls()
        highest = timed.sort("throughput_tokens_per_s", "level", descending=[True, False])["level"]
        measured, below = _from(group, pl.col("saturated"))
        queue, queue_below = _from(group, pl.col("waiting_standing") > 0)
        # A prediction in requests says nothing about a rate.
        counted = group["axis"][0] == CONCURRENCY
        predicted = group["predicted_saturation"].drop_nulls().max() if counted else None
        expected = (
            next((i for i, level in enumerate(levels) if level >= predicted), None)  # type: ignore[operator]
            if predicted is not None
            else None
        )
        # Of a cache that is full at the lowest level already, a prediction below that is neither right nor wrong.
        shown = levels.index(measured) - expected if measured is not None and expected is not None else None
        rows.append(
            {
                "deployment": deployment,
                "workload": workload,
                "axis": group["axis"][0],
                "model": group["model"][0],
                "measured": measured,
                "below": below,
                "cache_known": bool(group["saturated"].is_not_null().any()),
                "queue": queue,
                "queue_below": queue_below,
                "predicted": predicted,
                "levels_apart": None if shown is None or (below is None and not shown) else shown,
                "peak_at": highest[0] if len(highest) else None,
                "kv_bytes_per_token": group["kv_bytes_per_token"][0],
                "parameters": group["parameters"][0],
            }
        )
    turns = regions(runs)
    whole = schema_of("saturation")
    schema = {name: dtype for name, dtype in whole.items() if name in _CURVE or name not in turns.columns}
    return pl.DataFrame(rows, schema=schema).join(turns, on=_CURVE, how="left", maintain_order="left").select(list(whole))


def _from(group: pl.DataFrame, sign: pl.Expr) -> tuple[float | None, float | None]:
    """The lowest level from which on all runs of which it is known show `sign`, and the level below it; null where there is none."""
    known = group.select("level", sign=sign).drop_nulls()
    levels = known.group_by("level").agg(pl.col("sign").all()).sort("level")
    loads, signs = levels["level"].to_list(), levels["sign"].to_list()
    first = next((i for i in range(len(loads)) if all(signs[i:])), None)
    return (None, None) if first is None else (loads[first], loads[first - 1] if first else None)

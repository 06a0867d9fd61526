"""Where a deployment's KV cache is full: measured from its runs, beside what geometry predicts."""

from __future__ import annotations

import polars as pl

__all__ = ["SATURATED_KV_USAGE", "saturated", "saturation"]

SATURATED_KV_USAGE = 0.99


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
    """Measured and predicted saturation of each deployment under each workload.

    The measured one is the lowest level of which every valid run filled the KV cache, as have all higher levels; the level below it
    bounds it from below. Null where no level did: nothing is extrapolated.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `valid`, `content_valid`, `saturated`,
            `throughput_tokens_per_s`, `predicted_saturation`, and the model's `kv_bytes_per_token` and `parameters`).

    Returns:
        One row a deployment and workload: `measured`, `below` (highest level that did not saturate), `predicted`,
        `levels_apart` (levels of the ladder between the level at which the prediction says it saturates and the measured one),
        `peak_at` (level of the highest throughput, medians of valid runs), `kv_bytes_per_token`, `parameters`.
    """
    rows = []
    valid = runs.filter("content_valid")  # a late client changes nothing of what the server counted
    for (deployment, workload), group in valid.group_by("deployment", "workload", maintain_order=True):
        levels = group.group_by("level").agg(pl.col("saturated").all()).sort("level")
        # Of this a late client does take something away.
        timed = group.filter("valid").group_by("level").agg(pl.col("throughput_tokens_per_s").median()).drop_nulls()
        highest = timed.sort("throughput_tokens_per_s", "level", descending=[True, False])["level"]
        ladder: list[float] = levels["level"].to_list()
        full: list[bool] = levels["saturated"].to_list()
        first = next((i for i in range(len(ladder)) if all(full[i:])), None)
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
                "measured": ladder[first] if first is not None else None,
                "below": ladder[first - 1] if first else None,
                "predicted": predicted,
                "levels_apart": first - expected if first is not None and expected is not None else None,
                "peak_at": highest[0] if len(highest) else None,
                "kv_bytes_per_token": group["kv_bytes_per_token"][0],
                "parameters": group["parameters"][0],
            }
        )
    return pl.DataFrame(
        rows,
        schema={
            "deployment": pl.String,
            "workload": pl.String,
            "axis": pl.String,
            "model": pl.String,
            "measured": pl.Float64,
            "below": pl.Float64,
            "predicted": pl.Float64,
            "levels_apart": pl.Int64,
            "peak_at": pl.Float64,
            "kv_bytes_per_token": pl.Int64,
            "parameters": pl.Int64,
        },
    )

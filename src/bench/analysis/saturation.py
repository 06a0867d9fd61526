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

SATURATED_KV_USAGE = 0.99  # KV usage from which a cache is full; convention
# Each signal with the columns of the load at which it does not show yet, of the one from which on it does, and of its best estimate.
_SIGNALS = (
    ("throughput", "saturation_low", "saturation_high", "saturation_at"),
    ("kv_cache", "below", "measured", "measured"),
    ("queue", "queue_below", "queue", "queue"),
)
_SCHEMA = {name: dtype for name, dtype in schema_of("saturation").items() if not name.startswith("signals")}


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
    # Any sign decides; without one, it is not known where the gauge or the counter is missing.
    return (
        pl.when(pl.any_horizontal(sign.fill_null(False) for sign in _signs().values()))
        .then(True)
        .otherwise(pl.when(pl.col("kv_usage_peak").is_not_null()).then(False))
    )


def _signs() -> dict[str, pl.Expr]:
    """The signs of a full cache by name, as `saturated` describes them; null where not known."""
    engines = pl.col("engines").fill_null(1)
    block = pl.col("kv_tokens") / pl.col("kv_blocks")
    free = (1 - pl.col("kv_usage_queued")) * pl.col("kv_tokens") / engines
    slots = pl.col("running_peak") < pl.col("max_num_seqs").fill_null(math.inf) * engines
    return {
        "usage": pl.col("kv_usage_peak") >= SATURATED_KV_USAGE,
        "preempted": pl.col("preemptions") > 0,
        "refused": (pl.col("waiting_standing") > 0) & (free < pl.col("prompt_tokens_p90") + 2 * block.fill_null(0)) & slots,
    }


def filled(runs: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """By which sign each curve's KV cache is full, at the lowest level at which it is.

    Args:
        runs: summary rows with what `saturated` takes. found: rows of `saturation` of these runs.

    Returns:
        One row a curve that filled its cache: `deployment`, `workload`, `measured`, `usage` (0–1, the highest peak of its runs there),
        and `sign`, by which they count as full: the first of `usage`, `preempted` and `refused` that a run has.
    """
    curve = ["deployment", "workload"]
    signs = [pl.when(sign).then(pl.lit(name)) for name, sign in _signs().items()]
    there = (
        runs.filter("counts_valid", "saturated")
        .join(found.select(*curve, "measured"), left_on=[*curve, "level"], right_on=[*curve, "measured"], how="semi")
        .group_by(curve)
        .agg(usage=level_value("kv_usage_peak"), sign=pl.coalesce(signs).first())
    )
    return found.select(*curve, "measured").drop_nulls().join(there, on=curve, maintain_order="left")


def fills_first(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row of `saturation` that fills the KV cache at the lowest level; of several, the one whose level below it is the closest.

    None where no number of requests in flight fills it.
    """
    filled = (row for row in rows if row["axis"] == CONCURRENCY and row["measured"] is not None)
    return min(filled, key=lambda row: (row["measured"], -(row["below"] or 0.0)), default=None)


def saturation(runs: pl.DataFrame, found: pl.DataFrame | None = None) -> pl.DataFrame:
    """Where each deployment saturates under each workload, by three signals side by side, and as predicted.

    The KV cache: the lowest level of which every valid run filled it, as have all higher levels; the level below it bounds it from
    below. The queue: the same of requests that wait once the load stands. Null where no level did: nothing is extrapolated. The
    throughput: its turning points, as `regions` finds them.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `repeat`, `valid`, `counts_valid`, `saturated`,
            `waiting_standing`, `throughput_tokens_per_s`, `predicted_saturation`, and the model's `kv_bytes_per_token` and
            `parameters`).
        found: rows of `regions` of these runs' mean throughput; None finds them.

    Returns:
        One row a deployment and workload: `measured`, `below` (highest level that did not fill the cache), `cache_known` (whether any
        run shows if it did), `queue`, `queue_below`, `predicted`, `levels_apart` (levels of the sweep between the level at which the
        prediction says it saturates and the measured one; null where no level below shows which), `peak_at` (level of the highest
        throughput), `kv_bytes_per_token`, `parameters`; all columns of `regions` but the metric; and `signals`, those of the three that
        show (`throughput`, `kv_cache`, `queue`), the first one first, those that cannot be told apart as one (`kv_cache and queue`);
        and `signals_agree`: whether there are several, each of which lies in the intervals of all; null where they merely overlap.
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
    frame = pl.DataFrame(rows, schema=_SCHEMA).join(
        (regions(runs) if found is None else found).drop("metric"),
        on=["deployment", "workload"],
        how="left",
        maintain_order="left",
    )
    signals = [_signals(row) for row in frame.iter_rows(named=True)]
    return frame.with_columns(
        signals=pl.Series([names for names, _ in signals], dtype=pl.List(pl.String)),
        signals_agree=pl.Series([agree for _, agree in signals], dtype=pl.Boolean),
    )


def _from(group: pl.DataFrame, sign: pl.Expr) -> tuple[float | None, float | None]:
    """The lowest level from which on all runs of which it is known show `sign`, and the level below it; null where there is none."""
    known = group.select("level", sign=sign).drop_nulls()
    levels = known.group_by("level").agg(pl.col("sign").all()).sort("level")
    loads, signs = levels["level"].to_list(), levels["sign"].to_list()
    first = next((i for i in range(len(loads)) if all(signs[i:])), None)
    return (None, None) if first is None else (loads[first], loads[first - 1] if first else None)


def _signals(row: Mapping[str, Any]) -> tuple[list[str], bool | None]:
    """The signals that show, those that are not known to be apart as one, in the order of their loads; and whether all agree.

    Each lies above the low end of its range, where it does not show yet, so ranges that touch at an end are apart.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for name, low, high, found in _SIGNALS:
        if row[found] is not None:
            ranges[name] = (row[low] or 0.0, math.inf if row[high] is None else row[high])
    groups: list[list[str]] = []
    for name in sorted(ranges, key=lambda name: (ranges[name][1], ranges[name][0])):
        group = [name]
        while groups and max(ranges[each][1] for each in groups[-1]) > min(ranges[each][0] for each in group):
            group = [*groups.pop(), *group]
        groups.append(group)
    points = [row[found] for name, *_, found in _SIGNALS if name in ranges]
    together = all(low < point <= high for point in points for low, high in ranges.values())
    agree = len(ranges) > 1 and len(groups) == 1
    return [" and ".join(sorted(group, key=list(ranges).index)) for group in groups], None if agree and not together else agree

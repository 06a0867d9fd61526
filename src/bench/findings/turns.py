"""Turns of conversations: what each took, and what of its prompt a prefix cache served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from bench.report.blocks import Block, Column, Section, Table, Text, cell_of_latency

if TYPE_CHECKING:
    from bench.findings.view import View

_LEVEL = ("deployment", "workload", "family", "axis", "turns", "level")
_COLUMNS = (
    Column("curve", "curve"),
    Column("load", "load"),
    Column("turn", "turn", "%d"),
    Column("requests", "requests", "%d"),
    Column("TTFT P50", "ttft_p50"),
    Column("TTFT P90", "ttft_p90"),
    Column("prompt tokens", "prompt", "%.0f"),
    Column("of these cached", "cached", "%.0f"),
    Column("hit rate", "hit_rate", "%.0f %%", 100),
)
_MEANING = (
    "TTFT: each run's percentile, averaged over valid runs. Prompt tokens: the mean of a request, with its history. Cached: those "
    "served by the prefix cache, as the server reports; a dash: not reported. A turn after a call of tools is a turn as well."
)


def turn_rows(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """Each turn at each level of each curve; none where requests stand alone.

    Args:
        runs: rows of the summary, with `by_turn`.

    Returns:
        `deployment`, `workload`, `family`, `axis`, `turns`, `level`, `turn`, `requests` (of all valid runs), `ttft_p50_s` and
        `ttft_p90_s` (means over runs), `prompt` and `cached` (mean tokens of a request) and `hit_rate` (0–1).
    """
    table = runs.filter(pl.col("valid") & (pl.col("by_turn").list.len() > 0)).select(*_LEVEL, "by_turn")
    each = table.explode("by_turn").unnest("by_turn")
    cached = pl.when(pl.col("cached_tokens").null_count() == 0).then(pl.col("cached_tokens").sum())
    rows = each.group_by(*_LEVEL, "turn", maintain_order=True).agg(
        pl.col("requests", "prompt_tokens").sum(), pl.col("ttft_p50_s", "ttft_p90_s").mean(), cached_tokens=cached
    )
    shares = {
        "prompt": pl.col("prompt_tokens") / pl.col("requests"),
        "cached": pl.col("cached_tokens") / pl.col("requests"),
        "hit_rate": pl.col("cached_tokens") / pl.col("prompt_tokens"),
    }
    return rows.with_columns(**shares).sort("deployment", "workload", "level", "turn").to_dicts()


def section(view: View) -> Section:
    rows = [
        {
            **row,
            **{key: cell_of_latency(row[f"{key}_s"], met=None) for key in ("ttft_p50", "ttft_p90")},
        }
        for row in view.of_curves(turn_rows(view.results.runs))
    ]
    blocks: list[Block] = [Table("Every turn at every level", _COLUMNS, rows), Text(_MEANING)] if rows else []
    return Section("turns", "Turns of conversations", blocks, short=blocks)

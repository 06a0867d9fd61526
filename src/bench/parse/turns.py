"""What each turn of conversations took, and what of it a prefix cache served."""

from __future__ import annotations

from typing import Any

import polars as pl


def by_turn(requests: pl.DataFrame) -> list[dict[str, Any]] | None:
    """A row a turn, from 1 on, of the type `turns` (`bench.runs.columns`); None where no request follows another.

    Args:
        requests: of a run, by `index`, `after` (index of the turn before), `outcome`, `ttft_s` (s), `prompt_tokens`, `cached_tokens`.
    """
    before = dict(requests.select("index", "after").sort("index").iter_rows())
    turns: dict[int, int] = {}
    for index, after in before.items():  # which comes ahead
        turns[index] = turns.get(after, 0) + 1 if after is not None else 1
    if max(turns.values(), default=1) == 1:
        return None
    ok = requests.with_columns(turn=pl.col("index").replace_strict(turns)).filter(pl.col("outcome") == "ok")
    cached = pl.when(pl.col("cached_tokens").null_count() == 0).then(pl.col("cached_tokens").sum())
    ttft = {f"ttft_p{at}_s": pl.col("ttft_s").quantile(at / 100, "linear") for at in (50, 90)}
    found = ok.group_by("turn").agg(pl.len().alias("requests"), pl.col("prompt_tokens").sum(), **ttft, cached_tokens=cached)
    return found.sort("turn").to_dicts()

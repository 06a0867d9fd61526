"""Latencies and throughput from request records, those of each turn of conversations too. Definitions: docs/reference/metrics.md."""

from __future__ import annotations

from typing import Any

import polars as pl

from bench.runs.latencies import LATENCIES

_LEAST_COVERED = 0.25  # shortest last bin ÷ the others, as a sliver would turn a few tokens into a spike; convention


def latency_columns(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Add `normalised_latency_s` and the latencies that are computed (`LATENCIES`) to one row a request.

    TTFO = first token that is not reasoning − sent.
    TPOT = (E2E − TTFT) / (n − k), with n the tokens that were streamed and k those that came at the first moment: 1, but for answers
    that come in larger pieces. It is null if no token came after that moment, or if n or k is unknown.
    Normalised latency = E2E / completion tokens.

    Args:
        requests: `ttft_s`, `e2e_s`, `sent_s`, `first_output_s` (s), `completion_tokens`, `streamed_tokens` (null: as many as the server
            counts) and `first_tokens`.
    """
    n = pl.col("completion_tokens")
    requests = requests.with_columns(streamed_tokens=pl.coalesce("streamed_tokens", n))
    comes_later = pl.col("streamed_tokens") > pl.col("first_tokens")
    return requests.with_columns(
        **{
            f"{name}_s": pl.when((n >= latency.fewest_tokens) & comes_later).then(latency.of(pl.col))
            if latency.fewest_tokens
            else latency.of(pl.col)
            for name, latency in LATENCIES.items()
            if latency.of
        },
        normalised_latency_s=pl.when(n > 0).then(pl.col("e2e_s") / n),
    )


def by_chunk(requests: pl.DataFrame, **of_requests: pl.Expr) -> pl.DataFrame:
    """A row a chunk: its moment `token_times_s` (s), and its part of what its request has, the same for each of its chunks."""
    chunks = pl.col("token_times_s").list.len()
    parts = {name: whole / chunks for name, whole in of_requests.items()}
    return requests.filter(chunks > 0).select("token_times_s", **parts).explode("token_times_s")


def throughput_series(requests: pl.DataFrame, width_s: float) -> pl.DataFrame:
    """Output tokens a second over time, from the arrival of each chunk at the client.

    Args:
        requests: `token_times_s` (list, s since the run's start) and `completion_tokens`. width_s: width of a bin (s).

    Returns:
        `elapsed_s` (middle of the bin), `tokens_per_s`. The last bin ends with the last token, and its rate is over the part that it
        covers.
    """
    chunks = by_chunk(requests, tokens=pl.col("completion_tokens").fill_null(0)).with_columns(
        bin=(pl.col("token_times_s") / width_s).floor().cast(pl.Int64)
    )
    if chunks.is_empty():
        return pl.DataFrame(schema={"elapsed_s": pl.Float64, "tokens_per_s": pl.Float64})
    last = float(chunks["token_times_s"].max())  # type: ignore[arg-type]
    per_bin = chunks.group_by("bin").agg(pl.col("tokens").sum())
    bins = pl.DataFrame({"bin": range(int(last // width_s) + 1)}, schema={"bin": pl.Int64})
    begin, end = pl.col("bin") * width_s, pl.min_horizontal((pl.col("bin") + 1) * width_s, pl.lit(last))
    return (
        bins.join(per_bin, on="bin", how="left")
        .sort("bin")
        .with_columns(covered=(end - begin))
        .filter(pl.col("covered") >= _LEAST_COVERED * width_s)
        .select(elapsed_s=begin + pl.col("covered") / 2, tokens_per_s=pl.col("tokens").fill_null(0.0) / pl.col("covered"))
    )


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

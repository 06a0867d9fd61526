"""How the chunks of a run's answers relate to tokens, and which latencies that supports. See docs/reference/metrics.md."""

from __future__ import annotations

from typing import Any

import polars as pl

__all__ = ["ONE_EACH", "gaps_between_tokens", "stream_figures", "supported"]

_FEWEST = 4  # tokens of the shortest answer that can show buffering
_HELD_BACK = 0.5  # share of buffered answers at which the moments of tokens are dropped
_UNKNOWN = 0.05  # share of answers whose streamed tokens may be unknown
ONE_EACH = 1.25  # most tokens a chunk at which gaps between chunks count as ITL; its inverse is the fewest


def stream_figures(ok: pl.DataFrame) -> dict[str, Any]:
    """Counts over answered requests that were streamed; nulls if none was.

    Args:
        ok: `completion_tokens`, `streamed_tokens`, `first_tokens`, `arrivals`, `token_times_s`, `done`.

    Returns:
        `tokens_per_chunk` (streamed tokens ÷ chunks that carry any); `tokens_per_arrival` (likewise by the moments at which tokens
        came); `hidden_tokens` (tokens that the server counts and did not stream, such as reasoning that it keeps to itself);
        `unknown_streamed` (answers whose number of streamed tokens is unknown); `held_back_answers` (of four tokens or
        more, which came at one moment); `without_done` (answers without `[DONE]`).
    """
    streamed = ok.filter(pl.col("first_token_s").is_not_null())
    if streamed.is_empty():
        names = ("tokens_per_chunk", "tokens_per_arrival", "hidden_tokens", "unknown_streamed", "held_back_answers")
        return dict.fromkeys((*names, "without_done"))
    known = streamed.filter(pl.col("first_tokens").is_not_null() & pl.col("streamed_tokens").is_not_null())
    tokens = int(known["streamed_tokens"].sum() or 0)
    hidden = known.select((pl.col("completion_tokens") - pl.col("streamed_tokens")).sum()).item()
    return {
        "tokens_per_chunk": _ratio(tokens, known["token_times_s"].list.len().sum()),
        "tokens_per_arrival": _ratio(tokens, known["arrivals"].sum()),
        "hidden_tokens": int(hidden or 0),
        "unknown_streamed": len(streamed) - len(known),
        "held_back_answers": known.filter(_at_once()).height,
        "without_done": streamed.filter(~pl.col("done")).height,
    }


def _ratio(tokens: int, count: Any) -> float | None:
    return round(tokens / int(count), 4) if count and tokens else None


def _at_once() -> pl.Expr:
    return (pl.col("streamed_tokens") >= _FEWEST) & (pl.col("arrivals") == 1)


def supported(requests: pl.DataFrame) -> pl.DataFrame:
    """The requests without the latencies that their streams do not support.

    If half of the answers or more came at one moment each, something between the server and its client holds them back, and the
    moments say nothing about the server's tokens: TTFT, TPOT and all stamps but the last are null. Fewer may be chance, and dropping
    the slow ones would make the others' latencies too good.

    If the number of streamed tokens is unknown for more than one answer in twenty, no answer has a TPOT: an SLO takes a missing TPOT
    as met.
    """
    streamed = requests.filter((pl.col("outcome") == "ok") & pl.col("first_token_s").is_not_null())
    nothing = pl.lit(None, dtype=pl.Float64)
    if streamed.filter(pl.col("first_tokens").is_null()).height > _UNKNOWN * streamed.height:
        requests = requests.with_columns(tpot_s=nothing)
    long = streamed.filter(pl.col("streamed_tokens") >= _FEWEST)
    if long.is_empty() or long.filter(_at_once()).height < _HELD_BACK * long.height:
        return requests
    return requests.with_columns(
        **dict.fromkeys(("ttft_s", "tpot_s", "first_token_s", "first_output_s"), nothing),
        token_times_s=pl.col("token_times_s").list.tail(1),
    )


def gaps_between_tokens(figures: dict[str, Any]) -> bool:
    """Whether the gaps between chunks are those between tokens. Args: figures: of `stream_figures`."""
    each = figures["tokens_per_chunk"]
    return each is None or 1 / ONE_EACH <= each <= ONE_EACH

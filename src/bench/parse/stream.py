"""How the chunks of a run's answers relate to tokens, and which latencies that supports. See docs/reference/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from bench.runs.columns import columns_of
from bench.runs.request import SURE

# tokens of the shortest answer that can show buffering; convention: half and double do as well in benchmarks.stream_truth
_FEWEST = 4
# share of buffered answers, whatever their length, at which the moments of tokens are dropped; convention: likewise
_HELD_BACK = 0.5
# share of answers whose streamed tokens may be unknown, and of long ones that may be buffered; convention: likewise
_FEW = 0.05
# factor by which hidden tokens may be generated faster than streamed ones: beyond it there was no time for them; convention: likewise
_IN_TIME = 4.0
_LONG = 16  # tokens of an answer that no pause of a busy server or client brings at one moment; tuned: benchmarks.stream_truth
# most tokens a chunk, and a moment, at which gaps between chunks count as ITL, and the inverse of the fewest; tuned:
# benchmarks.stream_truth
ONE_EACH = 1.25
# factor by which clients wait longer between tokens than the engine by its own clock, from which on it runs ahead of them; convention:
# 1.00 to 1.02 where it does not, 1.8 to 2.0 on the one GPU where it did
_AHEAD = 1.2


def stream_figures(ok: pl.DataFrame, *, reasons: bool = True) -> dict[str, Any]:
    """Counts over answered requests that were streamed; nulls if none was.

    Args:
        ok: `completion_tokens`, `streamed_tokens`, `streamed_least`, `first_tokens`, `arrivals`, `token_times_s`, `ttft_s`, `e2e_s`,
            `done`, `end_s`, `last_token_s`, `accepted_tokens`. reasons: whether the server may keep reasoning to itself.

    Returns:
        The columns of the summary's section `stream`.
    """
    streamed = ok.filter(pl.col("first_token_s").is_not_null())
    if streamed.is_empty():
        return dict.fromkeys(columns_of("stream"))
    known = streamed.filter(_known(streamed, reasons=reasons))
    tokens = int(known["streamed_tokens"].sum() or 0)
    hidden = known.select((pl.col("completion_tokens") - pl.col("streamed_tokens")).sum()).item()
    return {
        "tokens_per_chunk": _ratio(tokens, known["token_times_s"].list.len().sum()),
        "tokens_per_arrival": _ratio(tokens, known["arrivals"].sum()),
        "hidden_tokens": int(hidden or 0),
        "unknown_streamed": len(streamed) - len(known),
        "held_back_answers": streamed.filter(_at_once()).height,
        "without_done": streamed.filter(~pl.col("done")).height,
    }


def _ratio(tokens: int, count: Any) -> float | None:
    return round(tokens / int(count), 4) if count and tokens else None


def _at_once(fewest: int = _FEWEST) -> pl.Expr:
    return (pl.col("completion_tokens") >= fewest) & (pl.col("arrivals") == 1)


def _held_back(streamed: pl.DataFrame) -> bool:
    """Whether something between the server and its client holds answers back: half of them, or more than a few long ones.

    A pause of a busy server or client may bring a short answer at one moment; so may chance with a single one.
    """
    long = streamed.filter(pl.col("completion_tokens") >= _FEWEST)
    whole, surely = (long.filter(_at_once(fewest)).height for fewest in (_FEWEST, _LONG))
    return not long.is_empty() and (whole >= _HELD_BACK * long.height or surely > max(1.0, _FEW * long.height))


def _known(streamed: pl.DataFrame, *, reasons: bool) -> pl.Series:
    """Of each streamed answer, whether TPOT follows from what is known of its tokens.

    Where chunks are fewer than tokens, either they carry several each or some tokens were generated unseen: reasoning ahead of a chat's
    first text, special tokens after the last one. Unseen ones take their time: where the stream is silent for a short time against the
    rest of it, there was none for them. Such answers show how many tokens this server's chunks carry, which holds for the others. And
    where the server counts hidden tokens apart, the silence must have been long enough for them.

    Where chunks are more than tokens, the server does not count what it streamed, such as reasoning, streamed something that is no
    token, or something cut tokens into pieces. Which chunks are one too many is unknown: TPOT follows where it is the same without
    the first ones as without the last ones.
    """
    chunks = pl.col("token_times_s").list.len().cast(pl.Int64)
    most = pl.col("streamed_tokens")
    # Older records do not have the fewest; the oldest took a chunk for a token.
    least = pl.coalesce(
        "streamed_least", pl.when(pl.col("arrivals") == 0).then(most).otherwise(pl.min_horizontal(chunks, most))
    )
    lasted, hidden = pl.col("e2e_s") - pl.col("ttft_s"), pl.col("completion_tokens") - most
    at_end = (pl.col("end_s") - pl.col("last_token_s")).clip(0.0).fill_null(0.0)
    silent = pl.col("ttft_s") + at_end if reasons else at_end
    each = most / least
    exact = each <= SURE
    later = pl.max_horizontal(most - pl.col("first_tokens"), 1)
    in_time = (hidden <= (SURE - 1) * most) | (hidden * lasted <= _IN_TIME * (pl.col("ttft_s") + at_end) * later)
    no_time = (hidden == 0) & (silent <= (SURE - 1) * lasted)
    # Steps that verified a draft made one token and those accepted: where nearly every step has a chunk, none was hidden.
    steps = pl.col("completion_tokens") - pl.col("accepted_tokens")
    drafted = ((hidden == 0) & (steps <= SURE * chunks)).fill_null(value=False)
    sure = (exact & in_time) | no_time | drafted
    more, stamps = (chunks > most) & (most > 1), pl.col("token_times_s").list
    ends = pl.min_horizontal(
        stamps.get(most - 1, null_on_oob=True) - stamps.first(), stamps.last() - stamps.get(chunks - most, null_on_oob=True)
    )
    whole = ~more | (lasted <= SURE * ends)
    like_those = (hidden == 0) & (each <= SURE * each.filter(sure).max())
    return streamed.select(known=((sure | like_those) & whole & pl.col("first_tokens").is_not_null()).fill_null(value=False))[
        "known"
    ]


def supported(requests: pl.DataFrame, *, reasons: bool = True) -> pl.DataFrame:
    """The requests without the latencies that their streams do not support.

    Where something between the server and its client holds answers back, their moments say nothing of the server's tokens: neither TTFT
    nor stamps are left. To drop the slow ones alone would make the others' latencies too good.

    An answer whose number of streamed tokens is unknown has no TPOT. If they are more than one in twenty, no answer has one: an SLO
    takes a missing TPOT as met.

    Args:
        reasons: as of `stream_figures`.
    """
    of_stream = (pl.col("outcome") == "ok") & pl.col("first_token_s").is_not_null()
    streamed = requests.filter(of_stream)
    nothing = pl.lit(None, dtype=pl.Float64)
    known = _known(streamed, reasons=reasons)
    if (~known).sum() > _FEW * streamed.height:
        requests = requests.with_columns(tpot_s=nothing)
    elif not known.all():
        unknown = streamed["index"].filter(~known)
        requests = requests.with_columns(tpot_s=pl.when(~pl.col("index").is_in(unknown.implode())).then("tpot_s"))
    if not _held_back(streamed):
        return requests
    return requests.with_columns(
        **dict.fromkeys(("ttft_s", "ttfo_s", "tpot_s", "first_token_s", "first_output_s"), nothing),
        token_times_s=pl.col("token_times_s").list.tail(1),
    )


def engine_is_ahead() -> pl.Expr:
    """Whether a run's engine makes tokens faster than clients get them: what lies between, such as the API server, is then the limit.

    Null where the server does not report the gaps between its tokens. vLLM takes them by the engine's own clock
    (`vllm:inter_token_latency_seconds`); a server that takes them where it sends them never shows it.
    """
    return pl.coalesce("itl_mean_s", "tpot_mean_s") > _AHEAD * pl.col("server_itl_mean_s")


def gaps_between_tokens(figures: dict[str, Any]) -> bool:
    """Whether the gaps between chunks are those between tokens. Args: figures: of `stream_figures`."""
    each, at_once = figures["tokens_per_chunk"], figures["tokens_per_arrival"]
    if each is None:
        return not figures["unknown_streamed"]
    return 1 / ONE_EACH <= each <= ONE_EACH and (at_once is None or at_once <= ONE_EACH)


_SAME = 0.01  # share by which client and engines may differ in the number of requests whose TTFT they average; convention
_LEAST_WAIT_S = 0.05  # shortest wait before the engines that is named (s); convention
# share of the clients' mean TTFT from which a wait is named; measured: docs/h200, above the 16 % that an honest API server adds to a
# burst of 400
_WAIT_SHARE = 0.25


def front_wait() -> pl.Expr:
    """How long requests wait before they reach the engines, in the mean (s), of a summary table's rows.

    The clients' mean TTFT less the engines' is the way's own time and the wait. The way is the least difference of the runs with the
    same deployment, workload and arrival, so the wait is too short where something waits in all of them. Null where that is one load
    alone, where engine and client did not average the same requests, where first tokens come together with later ones, and where the
    engine makes tokens faster than clients get them. Then the API server is the limit (`front_end` of `bench.findings.advice`).
    """
    same = (pl.col("server_ttft_n") - pl.col("ttft_n")).abs() <= _SAME * pl.col("ttft_n")
    alone = pl.max_horizontal("tokens_per_chunk", "tokens_per_arrival").fill_null(1.0) <= ONE_EACH
    longer = pl.when(same & alone & (pl.col("ttft_n") > 0)).then(pl.col("ttft_mean_s") - pl.col("server_ttft_mean_s"))
    curve = ("deployment", "workload", "arrival")
    loads = pl.when(longer.is_not_null()).then("level").drop_nulls().n_unique().over(curve)
    ahead = engine_is_ahead().fill_null(value=False)
    return pl.when((loads > 1) & ~ahead).then(longer - longer.min().over(curve))


def long_wait(run: Mapping[str, Any]) -> float | None:
    """The mean wait before the engines (s) where it is worth naming. Args: run: a row of the summary table."""
    wait, ttft = run.get("front_wait_s"), run.get("ttft_mean_s")
    return None if wait is None or ttft is None or wait <= max(_LEAST_WAIT_S, _WAIT_SHARE * ttft) else wait

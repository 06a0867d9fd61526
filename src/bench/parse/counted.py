"""Tokens that the server counted: in its answers, and by how many its own counter must have risen, if it is the one that answered, and
nobody else used it.
"""

from __future__ import annotations

import polars as pl

from bench.parse.server import lag_s
from bench.work import Work


def counted_tokens(answered: pl.DataFrame, work: Work) -> int | None:
    """Tokens of answered requests that `work` counts; None where the server did not count those of each one."""
    counts = answered[work.counts]
    return None if counts.null_count() else int(counts.sum())


def counted_bounds(requests: pl.DataFrame, telemetry: pl.DataFrame) -> dict[str, int | None]:
    """The least and the most that the counter of generated tokens may have risen by from the first scrape to the last.

    An answer was certainly counted if its request left after the first scrape and it ended before what the last one shows. Engines
    count a token as they make it, or all of an answer's before its end leaves the server. Requests that failed may have cost as many
    tokens as they asked for, or none. Prompt tokens are no such measure: some engines leave cached ones out, others count them again
    after a preemption.

    Args:
        requests: `outcome`, `sent_s`, `end_s`, `completion_tokens`, `output_asked`. telemetry: the samples of the engine's endpoint.

    Returns:
        `server_tokens_least`: null where no answer was certainly counted. `server_tokens_most`: null without scrapes, and where the
        values are so old that an earlier load's tokens may be among them.
    """
    if telemetry.is_empty():
        return {"server_tokens_least": None, "server_tokens_most": None}
    first, last, lag = telemetry["elapsed_s"].min(), telemetry["elapsed_s"].max(), lag_s(telemetry)
    sent = requests.filter(pl.col("sent_s").is_not_null())
    ok = pl.col("outcome") == "ok"
    certain = sent.filter(ok & (pl.col("sent_s") >= first) & (pl.col("end_s") <= pl.lit(last) - lag))
    least = int(certain["completion_tokens"].sum() or 0)
    each = sent.select(pl.when(ok).then(pl.coalesce("completion_tokens", "output_asked")).otherwise("output_asked")).to_series()
    most = None if each.null_count() or lag else int(each.sum() or 0)  # a natural answer that failed may have cost any number
    return {"server_tokens_least": least or None, "server_tokens_most": most}

"""Which requests met the SLOs: goodput, and the requests by which a run is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bench.records.columns import JUDGED_FIELDS
from bench.records.latencies import LATENCIES
from bench.study import Slo

__all__ = ["goodput", "judged_frame", "judged_requests", "meets"]


def meets(slos: Sequence[Slo]) -> pl.Expr:
    """Whether a request met every limit, each by itself: a percentile is about a share of requests, not about which.

    A failed request met none. A latency that a request does not have is not missed: an answer of one token has no TPOT.

    Args (columns):
        `outcome`, and of each SLO its latency, such as `ttft_s` (s).
    """
    met = pl.col("outcome") == "ok"
    for slo in slos:
        met &= pl.col(f"{slo.metric}_s").is_null() | (pl.col(f"{slo.metric}_s") <= slo.limit_s)
    return met


def judged_requests(run: Mapping[str, Any], requests: pl.DataFrame) -> pl.DataFrame:
    """The requests of a run by which its load is judged, in the order of sending.

    Those of its steady window; all of a burst, and of a run whose window is too short, as in `bench.analysis.windows`.

    Args:
        run: its summary, with `steady_from_s` and `steady_judged_until_s` (null without a window), and `steady_why`. requests: its
            table.
    """
    sent = requests.sort("sent_s", nulls_last=True)
    if run.get("steady_from_s") is None or run.get("steady_why") == "short":
        return sent
    return sent.filter(pl.col("sent_s").is_between(run["steady_from_s"], run["steady_judged_until_s"]))


def judged_frame(judged: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """The requests in a summary's column `judged`, under the names that their table gives them."""
    frame = pl.DataFrame(judged, schema=JUDGED_FIELDS)
    outcome = pl.when("ok").then(pl.lit("ok")).otherwise(pl.lit("failed"))
    return frame.select(outcome=outcome, **{f"{name}_s": name for name in LATENCIES})


def goodput(run: Mapping[str, Any], requests: pl.DataFrame, slos: Sequence[Slo]) -> dict[str, Any]:
    """Of one run: `goodput_requests_per_s`, those that met every limit; `slo_share`, their share of those judged (0–1); `judged`.

    Args:
        run: its summary. requests: `judged_requests`; those without a window, of the whole run.

    Returns:
        Both numbers are null without SLOs or requests, and where no answer has a latency that is limited. `judged` has of each
        request whether it was answered (`ok`) and its latencies (s), as `JUDGED_FIELDS`.
    """
    latencies = requests.select(
        pl.struct(
            (pl.col("outcome") == "ok").alias("ok"),
            *(pl.col(f"{metric}_s").cast(pl.Float64).alias(metric) for metric in LATENCIES),
        ).alias("judged")
    )["judged"].to_list()
    answered = requests.filter(pl.col("outcome") == "ok")
    unjudged = answered.height and any(answered[f"{slo.metric}_s"].is_null().all() for slo in slos)
    if requests.is_empty() or not slos or unjudged:
        return {"goodput_requests_per_s": None, "slo_share": None, "judged": latencies}
    share = requests.filter(meets(slos)).height / requests.height
    duration = run.get("duration_s")
    in_window = None if run.get("steady_why") == "short" else run.get("steady_offered_rate")
    offered = in_window or (requests.height / duration if duration else None)
    return {
        "goodput_requests_per_s": None if offered is None else share * offered,
        "slo_share": share,
        "judged": latencies,
    }

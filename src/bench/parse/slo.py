"""Which requests met the SLOs: goodput, and the requests by which a run is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bench.runs.columns import JUDGED_FIELDS
from bench.runs.latencies import LATENCIES, class_column, class_names
from bench.study.slo import Slo, applying


def meets(slos: Sequence[Slo]) -> pl.Expr:
    """Whether a request met every limit, each by itself: a percentile is about a share of requests, not about which.

    A failed request met none. A latency that a request does not have is not missed: an answer of one token has no TPOT.

    Args (columns):
        `outcome`, and of each SLO its latency, such as `ttft_s` (s); where one limits a class, `request_class`.
    """
    met = pl.col("outcome") == "ok"
    for slo in slos:
        within = pl.col(f"{slo.metric}_s").is_null() | (pl.col(f"{slo.metric}_s") <= slo.limit_s)
        met &= within if slo.request_class is None else within | pl.col("request_class").ne_missing(slo.request_class)
    return met


def judged_requests(run: Mapping[str, Any], requests: pl.DataFrame) -> pl.DataFrame:
    """The requests of a run by which its load is judged, in the order of sending.

    Those of its steady window; all of a burst, and of a run whose window is too short, as in `bench.parse.windows`.

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
    return frame.select("request_class", outcome=outcome, **{f"{name}_s": name for name in LATENCIES})


def goodput(run: Mapping[str, Any], requests: pl.DataFrame, slos: Sequence[Slo]) -> dict[str, Any]:
    """Of one run `goodput_requests_per_s` and `slo_share`, both of each class too, and `judged`, rows of `JUDGED_FIELDS`.

    Both numbers are null without SLOs or requests, and where no answer has a latency that is limited.

    Args:
        run: its summary. requests: `judged_requests`; those without a window, of the whole run. slos: those of all requests, and of
            classes, of which the run need not have any.
    """
    classes = class_names(run.get("classes"))
    slos = applying(slos, classes)
    latencies = requests.select(
        pl.struct(
            (pl.col("outcome") == "ok").alias("ok"),
            *(
                (pl.col(x) if (x := f"{name}_s") in requests.columns else pl.lit(None)).cast(pl.Float64).alias(name)
                for name in LATENCIES
            ),
            *(["request_class"] if classes else []),
        ).alias("judged")
    )["judged"].to_list()
    duration = run.get("duration_s")
    in_window = None if run.get("steady_why") == "short" else run.get("steady_offered_rate")
    offered = in_window or (requests.height / duration if duration else None)
    found: dict[str, Any] = {"judged": latencies}
    for name in (None, *classes):
        mine = requests if name is None else requests.filter(pl.col("request_class") == name)
        share = _within(mine, slos)
        part = 1.0 if name is None else mine.height / (requests.height or 1)
        good = None if share is None or offered is None else share * offered * part
        found |= {class_column(name, "goodput_requests_per_s"): good, class_column(name, "slo_share"): share}
    return found


def _within(requests: pl.DataFrame, slos: Sequence[Slo]) -> float | None:
    """Share of the requests that met every limit (0–1); None without any, and where no answer has a latency that is limited."""
    answered = requests.filter(pl.col("outcome") == "ok")
    limited = [
        answered if slo.request_class is None else answered.filter(pl.col("request_class") == slo.request_class) for slo in slos
    ]
    unjudged = any(each.height and each[f"{slo.metric}_s"].is_null().all() for each, slo in zip(limited, slos, strict=True))
    if requests.is_empty() or not slos or unjudged:
        return None
    return requests.filter(meets(slos)).height / requests.height

"""The load of a run: what was asked, and whether that is what the server got."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from bench.axes import AXES
from bench.parse.begun import is_natural, whole_requests
from bench.parse.in_flight import in_flight_figures
from bench.parse.recovery import recovery
from bench.parse.server import FEWEST_SCRAPES, gauges
from bench.runs.latencies import parts_of
from bench.runs.run import RunRecord
from bench.statistics.percentiles import percentile
from bench.workloads.endpoints import ENDPOINTS


def asked_figures(definition: Mapping[str, Any], requests: pl.DataFrame) -> dict[str, Any]:
    """What the run was to be, as plain columns: lengths as the mean of what was sent, whatever they were drawn from; without the
    requests that a closed loop begins with, which are on their way (`schedule`).

    `prompt_fixed` and `output_fixed` are the lengths that were asked for as one number, null otherwise (tokens); `turns` the requests
    of a conversation.

    Args:
        requests: `prompt_asked`, `output_asked` (tokens).
    """
    plain = {key: value for key, value in definition.items() if not isinstance(value, dict | list)}
    parts, classes = list(parts_of(definition)), definition.get("classes")
    # What a workload says of its classes, each of them may say otherwise.
    lengths = {key: None if classes else definition.get(f"{key}_tokens") for key in ("prompt", "output")}
    axis, level = definition["axis"], definition["level"]
    return {
        **plain,
        "family": definition.get("family", definition["workload"]),
        "stream": definition.get("stream", True),
        "endpoint": definition.get("endpoint", "completions"),
        "cache": _of_all(part.get("cache", "unique") for part in parts),
        "answers": "natural" if is_natural(definition) else "exact",
        "body": json.dumps(definition["body"], sort_keys=True) if definition.get("body") else None,
        "work": ENDPOINTS[definition.get("endpoint", "completions")].work.name,
        "prompts": _of_all((part.get("prompts") or {"source": "random"})["source"] for part in parts),
        "classes": json.dumps(classes) if classes else None,
        "turns": (definition.get("turns") or {"count": 1})["count"],
        **{f"{key}_fixed": x.get("tokens") if isinstance(x, dict) else x for key, x in lengths.items()},
        "prompt_tokens": requests["prompt_asked"].mean(),
        "prompt_tokens_p90": percentile(requests["prompt_asked"], 0.9),
        "output_tokens": whole_requests(definition, requests)["output_asked"].mean(),
        "num_requests": len(requests),
        "level": float(level),
        **{name: (int(level) if x.held else float(level)) if name == axis else None for name, x in AXES.items()},
    }


def _of_all(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def load_figures(
    record: RunRecord,
    requests: pl.DataFrame,
    telemetry: pl.DataFrame,
    counters: Mapping[str, Any],
    window: tuple[float, float],
) -> dict[str, Any]:
    """The load that came about.

    Args:
        requests, telemetry: the tidy tables. counters: the rises of `prefix_hits` and `prefix_queries`.
        window: when the load began and ended (s).

    Returns:
        `offered_rate`, `achieved_rate` (requests/s; gaps between first and last due, and sent), `in_flight_peak` (requests, at the
        client), `retried` (requests that were refused and sent again) and `retry_wait_max_s` (longest time that one was held back),
        those of `in_flight_figures`,
        `waiting_standing`, `kv_usage_queued` (of the requests that wait once the load stands, see `standing_queue`),
        `prefix_hit_rate` (share of prompt tokens that came from the cache, by the server's counters), `prefix_hit_rate_answers` (the
        same by its answers, None where one does not say it), `prefix_hit_rate_expected` (None where several engines have a cache
        each, or workers have roles) and `prefix_hit_rate_lru` (of a cache of the server's size; None where that is not known).
    """
    sent, ends = requests["sent_s"].drop_nulls().sort(), requests["end_s"].drop_nulls().sort()
    asked = requests["prompt_asked"].sum() or 0
    answered = requests.filter(pl.col("outcome") == "ok")["prompt_asked"].sum() or 0  # the replay leaves out what failed
    hits, queries = counters["prefix_hits"], counters["prefix_queries"]
    roles = any(worker.role for worker in record.workers)
    # Hits are those of the prefill workers, and what an answer says was cached is what they passed on.
    implied, lru = (None, None) if roles else (record.prefix.expected_tokens, record.prefix.lru_tokens)
    retries, counted = _retries(record, requests), in_flight_figures(requests, telemetry, window)
    if ENDPOINTS[record.definition.get("endpoint", "completions")].work.divided:
        counted = {name: value if name.startswith("client") else None for name, value in counted.items()}
    return {
        "offered_rate": _rate(requests["scheduled_s"].drop_nulls()),
        "achieved_rate": _rate(sent),
        "in_flight_peak": _peak(sent, ends),
        **retries,
        **standing_queue(sent, ends, telemetry),
        # A request that is held back is in flight to its user, but not at the server.
        **(dict.fromkeys(counted) if retries["retried"] else counted),
        "prefix_hit_rate": hits / queries if queries and hits is not None else None,
        **_recovery(record.definition.get("step"), requests),
        "prefix_hit_rate_answers": _cached_share(requests),
        "prefix_hit_rate_expected": None if implied is None else implied / asked if asked else 0.0,
        "prefix_hit_rate_lru": None if lru is None or not answered else lru / answered,
    }


def _cached_share(requests: pl.DataFrame) -> float | None:
    """A share of the prompt tokens (0–1); None where an answer does not report it."""
    ok = requests.filter(pl.col("outcome") == "ok").select("prompt_tokens", "cached_tokens")
    if ok.is_empty() or ok["cached_tokens"].null_count() or ok["prompt_tokens"].null_count():
        return None
    return int(ok["cached_tokens"].sum() or 0) / max(1, int(ok["prompt_tokens"].sum() or 0))


def _recovery(step: Mapping[str, float] | None, requests: pl.DataFrame) -> dict[str, Any]:
    """TTFT counts from the moment at which a request was due; nulls without a step."""
    if step is None:
        return {"recovered": None, "recovery_s": None}
    from_due = requests.with_columns(ttft_s=pl.col("first_token_s") - pl.col("scheduled_s"))
    found = recovery(from_due, step_start_s=step["start_s"], step_end_s=step["start_s"] + step["duration_s"])
    return {"recovered": found.recovered, "recovery_s": found.recovery_s}


def _retries(record: RunRecord, requests: pl.DataFrame) -> dict[str, float | None]:
    if not record.definition.get("honour_retry_after"):
        return {"retried": None, "retry_wait_max_s": None}
    waits = requests.filter(pl.col("attempts") > 1)["waited_s"]
    return {"retried": len(waits), "retry_wait_max_s": waits.max()}  # type: ignore[dict-item]


def _rate(moments: pl.Series) -> float | None:
    if len(moments) < 2:
        return None
    span = float(moments.max() - moments.min())  # type: ignore[operator, arg-type]
    return (len(moments) - 1) / span if span else None


def _peak(sent: pl.Series, ends: pl.Series) -> int:
    """Most requests in flight at once; one that ends at the moment another is sent makes room for it."""
    events = pl.concat(
        [pl.DataFrame({"at": sent, "change": 1}, schema_overrides={"change": pl.Int64}),
         pl.DataFrame({"at": ends, "change": -1}, schema_overrides={"change": pl.Int64})]
    ).sort("at", "change")  # fmt: skip
    return int(events["change"].cum_sum().max() or 0)  # type: ignore[arg-type]


def standing_queue(sent: pl.Series, ends: pl.Series, telemetry: pl.DataFrame) -> dict[str, float | None]:
    """Requests that still wait once the load stands, and the share of the KV cache in use while any does; null if unknown.

    Of a burst: at the last scrape before the first answer ends. It queues for its prefill at first; who still waits when an answer is
    complete waits for room. Of a load that goes on: the medians over the scrapes in the second half of what is sent, but not before
    the first end; half of the time, then, so many wait.

    Args:
        sent, ends: ascending, in seconds since the run's start. telemetry: the samples of the engine's endpoint.
    """
    nothing: dict[str, float | None] = {"waiting_standing": None, "kv_usage_queued": None}
    if sent.is_empty() or ends.is_empty():
        return nothing
    first, last = ends[0], sent[-1]
    burst = last <= first
    low, high = (last, first) if burst else (max(first, sent.median()), last)
    scrapes = (
        gauges(telemetry)
        .filter(pl.col("elapsed_s").is_between(low, high))
        .pivot("gauge", on_columns=["running", "waiting", "kv_usage"], index="scrape", values="value")
        .sort("scrape")
    )
    if scrapes["waiting"].null_count() == len(scrapes) or len(scrapes) < (1 if burst else FEWEST_SCRAPES):
        return nothing
    there = scrapes.tail(1) if burst else scrapes
    queued = there.filter(pl.col("waiting") > 0)
    usage = queued["kv_usage"].median()
    return {"waiting_standing": there["waiting"].median(), "kv_usage_queued": usage}  # type: ignore[dict-item]

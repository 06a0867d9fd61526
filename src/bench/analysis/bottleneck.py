"""What ends a curve's operating range: which of the server's resources, by what it showed at the load that missed.

How often the cause is right was judged on simulated servers: docs/explanation/capacity.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from bench.analysis.admission import APART, PREEMPTED, admission, has_slots, names, request_bytes, slots_of
from bench.analysis.evidence import Bottleneck, Evidence
from bench.analysis.server_load import ServerLoad, mean_of, server_load
from bench.axes import CONCURRENCY
from bench.study import Slo

__all__ = ["between_tokens", "bottleneck", "prefill_or_decode", "refusals"]

_EXPLAINED = {"ttft", "tpot", "e2e"}  # latencies that can be decomposed
_BROKEN = ("stream_error", "truncated", "disconnect", "http_500", "http_502")  # outcomes that no admission limit answers with
# highest load looked at ÷ the one that misses; tuned: benchmarks.capacity, seed 5: the exhausted resource shows more plainly there
_BEYOND = 1.4
# queued share of scrapes ÷ share beyond the percentile below which waiting cannot explain the miss; tuned: benchmarks.capacity, seed
# 5
_EXPLAINS = 0.5
# prefill interference ÷ decode-step time above which removing interference helps more than halving the step; tuned:
# benchmarks.capacity, seed 5
_OTHERS = 0.4
_LEAST_ADDED = 0.05  # minimum share of the step time attributed to load; tuned: benchmarks.capacity, seed 5
_PREFILL = 0.45  # prefill share above which faster prefill helps more than faster decoding; tuned: benchmarks.capacity, seed 5


def bottleneck(runs: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo]) -> Bottleneck:
    """Why a curve sustains no more than its operating point.

    The bottleneck is the resource whose increase would raise the sustainable load most, as far as the runs show:

    - Refusals, where requests fail.
    - Prefill or decode, where one request alone misses.
    - Where TPOT is missed: preemptions, if there are any; else interference or decode, whichever would let in more load: no prompts of
      others between tokens, or steps twice as fast.
    - Where TTFT or E2E is missed, or requests pile up: if requests wait for room (`max_num_seqs` of them run, or a prompt is longer
      than the free KV cache), whichever would raise the rate most (`gains`): that limit lifted, or prompts or steps twice as fast.
      Otherwise prefill or decode, whichever takes more of the engine's time.

    Without the server's queue and KV usage only refusals and one request alone have a cause. A miss of another latency alone has none.

    Args:
        runs: summary rows of one curve. point: its row of `operating_points`. slos: those that it was made for.
    """
    valid = runs.filter("valid")
    if point["kind"] in ("unknown", "unjudged") or valid.is_empty():
        return Bottleneck()
    unsettled = Bottleneck(unsettled=point["unsettled"], needs_s=_whole(point["unsettled_needs_s"]))
    if point["kind"] == "unsettled":
        return replace(unsettled, evidence="never_steady")
    if point["missed_at"] is None and point["unsettled"] == "short":
        return replace(unsettled, evidence="steady_meets", level=point["high_needs_at"])
    if point["missed_at"] is None:
        highest = valid.filter(pl.col("level") == pl.col("level").max())
        return Bottleneck(evidence="highest_level", level=point["highest"], runs=names(highest))
    missing = valid.filter(pl.col("level") == point["missed_at"])
    here = Bottleneck(runs=names(missing), level=point["missed_at"], unit=point["unit"])
    if point["basis"] == "burst":
        return _of_burst(missing, point, slos, replace(here, unit=None, burst=True))
    if found := refusals(missing, point, slos, here):
        return found
    if found := _alone(missing, point, slos, here):
        return found
    known = [mean_of(missing, column) is not None for column in ("steady_queued_share", "steady_kv_usage")]
    if silent := _silent(missing, *known):
        return replace(here, evidence=silent)
    watched = valid.filter(pl.col("steady_queued_share").is_not_null() & pl.col("telemetry_valid"))
    beyond = watched.filter(pl.col("level") <= _BEYOND * point["missed_at"]).sort("level")
    pushed = beyond.filter(pl.col("level") == pl.col("level").max())
    base = valid.filter(pl.col("level") == pl.col("level").min())
    alone, there = server_load(base, valid), server_load(missing, valid)
    missed = [slo for slo in slos if slo.column in _missed_by(point)]
    if missed and not any(slo.metric in _EXPLAINED for slo in missed):
        return replace(here, evidence="unknown_latency", metric=missed[0].metric)
    if any(slo.metric == "tpot" for slo in missed):
        return between_tokens(missing, there, alone, here)
    # Where too few requests wait to explain the percentile, what is full at higher loads is only the next limit.
    queued = mean_of(_over(beyond, point, missed), "steady_queued_share") or 0.0
    if queued <= _EXPLAINS * min((1 - slo.share for slo in missed), default=0.0):
        return prefill_or_decode(there, here)
    bound, held = admission(pushed, server_load(pushed, valid), alone)
    return bound or prefill_or_decode(there, here, held)


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)


def _missed_by(point: Mapping[str, Any]) -> set[str]:
    return {miss["by"] for miss in point["missed"] or ()}


def _over(beyond: pl.DataFrame, point: Mapping[str, Any], missed: Sequence[Slo]) -> pl.DataFrame:
    """The runs of the lowest level at which a missed SLO's percentile is over its limit: one below is missed by its uncertainty alone.

    Args:
        beyond: the runs to choose from; where no level is over the limit, those of the level that misses.
    """
    from_there = beyond.filter(pl.col("level") >= point["missed_at"])
    for level in from_there.partition_by("level", maintain_order=True):
        if any((mean_of(level, f"steady_{slo.column}") or 0.0) > slo.limit_s for slo in missed):
            return level
    return from_there.filter(pl.col("level") == point["missed_at"])


def refusals(missing: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], here: Bottleneck) -> Bottleneck | None:
    """How many requests fail; None where they do not end the range: fewer than may, and fewer than half of those that miss an SLO."""
    by = _missed_by(point)
    if "failed" not in by and not any(_mostly_failed(missing, slo) for slo in slos if slo.column in by):
        return None
    window = missing["steady_requests"].null_count() == 0
    failed, requests = (int(missing[f"steady_{name}" if window else name].sum()) for name in ("failed", "requests"))
    said = missing["failure_said"].drop_nulls() if "failure_said" in missing.columns else pl.Series([], dtype=pl.String)
    broken = sum(missing[name].sum() for kind in _BROKEN if (name := f"outcome_{kind}") in missing.columns)
    return replace(
        here,
        evidence="broken" if 2 * broken > missing["failed"].sum() else "refused",
        failed=failed,
        requests=requests,
        in_flight=mean_of(missing, "steady_in_flight"),
        said=said[0] if len(said) else None,
    )


def _mostly_failed(missing: pl.DataFrame, slo: Slo) -> bool:
    """Whether most of the requests that miss the SLO failed: one that fails exceeds every limit."""
    judged = missing.select(pl.col("judged").explode()).drop_nulls().unnest("judged")
    late = judged.filter(pl.col("ok") & (pl.col(slo.metric) > slo.limit_s)).height
    return judged.filter(~pl.col("ok")).height > late


def _of_burst(missing: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], here: Bottleneck) -> Bottleneck:
    """Why a burst of this size misses: whether it fits the server at all, and else what its requests wait for."""
    waiting = mean_of(missing, "waiting_standing")
    if found := refusals(missing, point, slos, here):
        return found
    if found := _alone(missing, point, slos, here):
        return found
    queue, usage = waiting is not None, not missing["saturated"].null_count()
    if not (queue and usage):
        return replace(here, evidence=_silent(missing, queue, usage))
    if missing["saturated"].any() and not has_slots(missing):
        return replace(here, evidence="full_cache", request_bytes=request_bytes(missing))
    slots, running = slots_of(missing), mean_of(missing, "running_peak")
    if waiting and slots is not None and (running or 0.0) >= slots:
        return replace(here, evidence="slots", slots=slots)
    late = any(slo.metric == "ttft" and (mean_of(missing, slo.column) or 0.0) > slo.limit_s for slo in slos)
    return replace(here, evidence="prompts" if late else "slow_answers")


def _alone(missing: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], here: Bottleneck) -> Bottleneck | None:
    """Why one request by itself misses; None where more than one was in flight, or none exceeds its limit. Without a TTFT, E2E does not
    show which part of it is too long.
    """
    if missing["level"][0] != 1 or missing["axis"][0] != CONCURRENCY:
        return None
    burst = point["basis"] == "burst"
    for slo in (each for each in slos if each.column in _missed_by(point) or burst):
        value = mean_of(missing, slo.column if burst else f"steady_{slo.column}")
        if slo.metric not in _EXPLAINED or value is None or value <= slo.limit_s:
            continue
        evidence: Evidence = "alone_prefill" if slo.metric == "ttft" else "alone_decode"
        if slo.metric == "e2e":
            first = mean_of(missing, "ttft_p50_s" if burst else "steady_ttft_p50_s")
            evidence = "alone" if first is None else "alone_prefill" if first > value / 2 else "alone_decode"
        return replace(here, evidence=evidence, metric=slo.metric, value_s=value, limit_s=slo.limit_s)
    return None


def _silent(runs: pl.DataFrame, queue: bool, usage: bool) -> Evidence | None:
    """Which of the server's metrics are missing to show why; None where none is.

    Args:
        queue, usage: whether the queue and the KV usage are known.
    """
    whole = bool(runs["telemetry_valid"].all())
    if queue and usage and whole:
        return None
    if runs["scrape_endpoint"].null_count() == len(runs):
        return "metrics_unread"
    if not whole:
        return "metrics_gaps"
    return "no_usage" if queue else "no_queue" if usage else "no_gauges"


def between_tokens(runs: pl.DataFrame, there: ServerLoad, alone: ServerLoad, here: Bottleneck) -> Bottleneck:
    """Why TPOT is missed: decode or interference, by which one's relief lets more load within the time between tokens."""
    if there.preempted is not None and there.preempted > PREEMPTED:
        return replace(here, evidence="preemptions", per_request=there.preempted, request_bytes=request_bytes(runs))
    if there.step_s is None or there.gap_s is None or there.prefill_share is None:
        return replace(here, evidence="unknown_step")
    others = min(max(0.0, there.gap_s - there.step_s), there.gap_s * there.prefill_share)
    evidence: Evidence = "others_prompts" if _others_weigh_more(there, alone, others) else "slow_steps"
    return replace(here, evidence=evidence, step_s=there.step_s, others_s=others)


def _others_weigh_more(there: ServerLoad, alone: ServerLoad, others: float) -> bool:
    """Whether more load fits within the time between tokens without others' prompts than with steps twice as fast.

    A step without prompts is a straight line over the load, through the lowest level; what others' prompts add is proportional to the
    load. With one load alone, what they add is compared with the step itself.

    Args:
        others: what they add to a gap (s).
    """
    step, gap = there.step_s or 0.0, there.gap_s or 0.0
    if alone.step_s is None or not alone.rps or not there.rps or there.rps < APART * alone.rps:
        return others > _OTHERS * step
    adds = min(step, max(_LEAST_ADDED * step, (step - alone.step_s) / (1 - alone.rps / there.rps)))
    fixed = step - adds
    return (gap - fixed) / adds > (gap - fixed / 2) / (adds / 2 + others)


def prefill_or_decode(there: ServerLoad, here: Bottleneck, held: Bottleneck | None = None) -> Bottleneck:
    """Prefill or decode, by which takes more of the engine's time. Args: held: what holds requests back, for little gain."""
    share = there.prefill_share
    evidence: Evidence = "unknown_steps" if share is None else "prefill_steps" if share >= _PREFILL else "decode_steps"
    return replace(
        held or here,
        evidence=evidence,
        runs=here.runs,
        level=here.level,
        unit=here.unit,
        prefill_share=share,
        held=held.evidence if held else None,
        held_level=held.level if held else None,
    )

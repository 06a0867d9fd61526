"""What ends a curve's operating range: which of the server's resources, by what it showed at the load that missed.

How often the cause is right was judged on simulated servers: docs/explanation/capacity.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from bench.analysis.evidence import (
    Alone,
    At,
    Bottleneck,
    Cause,
    Failures,
    FullCache,
    FullSteps,
    Gaps,
    Held,
    HeldByCache,
    HeldBySlots,
    HighestLevel,
    NeverSteady,
    Preemptions,
    Prompts,
    Silent,
    Slots,
    SlowAnswers,
    SteadyMeets,
    Steps,
    UnknownLatency,
    UnknownStep,
)
from bench.analysis.judging import Unsettled
from bench.analysis.server_load import ServerLoad, engines_of, mean_of, server_load
from bench.axes import CONCURRENCY
from bench.study import Slo

__all__ = ["bottleneck"]

_EXPLAINED = {"ttft", "tpot", "e2e"}  # latencies that can be decomposed
_BROKEN = ("stream_error", "truncated", "disconnect", "http_500", "http_502")  # outcomes that no admission limit answers with
_STANDS = 0.5  # share of scrapes with waiting requests that counts as a standing queue; tuned: benchmarks.capacity, seed 5
_ALIKE = 1.05  # ratio below which two gains count as equal; tuned: benchmarks.capacity, seed 5
# highest load looked at ÷ the one that misses; tuned: benchmarks.capacity, seed 5: the exhausted resource shows more plainly there
_BEYOND = 1.4
# least share of scrapes with waiting requests where admission is the limit: enough to miss a percentile; tuned: benchmarks.capacity,
# seed 5
_QUEUED = 0.1
_PREEMPTED = 0.02  # preemptions a request above which they are the cause; tuned: benchmarks.capacity, seed 5
# queued share of scrapes ÷ share beyond the percentile below which waiting cannot explain the miss; tuned: benchmarks.capacity, seed
# 5
_EXPLAINS = 0.5
# prefill interference ÷ decode-step time above which removing interference helps more than halving the step; tuned:
# benchmarks.capacity, seed 5
_OTHERS = 0.4
_LEAST_ADDED = 0.05  # minimum share of the step time attributed to load; tuned: benchmarks.capacity, seed 5
# least ratio of running requests, or rates, between two loads that make a line; tuned: benchmarks.capacity, seed 5
_APART = 1.2
_LITTLE = 0.3  # prefill share below which prefill cannot be what caps concurrency; tuned: benchmarks.capacity, seed 5
_PREFILL = 0.45  # prefill share above which faster prefill helps more than faster decoding; tuned: benchmarks.capacity, seed 5
_PINNED = 0.02  # relative range of running requests below which an unknown limit holds them; tuned: benchmarks.capacity, seed 5
_FITS = 1.5  # free KV tokens ÷ a prompt's below which no prompt is admitted; tuned: benchmarks.capacity, seed 5
# factor meant by "more KV memory"; measured: docs/explanation/decisions.md: twice as much ties with faster decoding on every KV-bound
# server
_MORE_KV = 4.0


def bottleneck(runs: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo]) -> Bottleneck:
    """Why a curve does not carry more than its operating point.

    The bottleneck is the resource whose increase would raise the sustainable load most, as far as the runs show:

    - Refusals, where requests fail.
    - Prefill or decode, where one request alone misses.
    - Where TPOT is missed: preemptions, if there are; else decode or interference, by which takes more of the time between tokens,
      two fifths of a step without prompts or what prompts of others add to it.
    - Where TTFT or E2E is missed, or requests pile up: if requests wait for room (`max_num_seqs` of them run, or what is free of the
      KV cache is less than a prompt), whichever raises the rate most of: that bound lifted, steps twice as fast, prompts
      twice as fast, on the straight line of service time over requests that run. Otherwise prefill or decode, whichever takes
      more of the engine's time.

    Nothing is concluded where the server does not report its queue and its KV usage, but for refusals and one request alone, nor where
    another latency alone is missed.

    Args:
        runs: summary rows of one curve. point: its row of `operating_points`. slos: those that it was made for.
    """
    valid = runs.filter("valid")
    if point["kind"] in ("unknown", "unjudged") or valid.is_empty():
        return Bottleneck("unknown")
    if point["kind"] == "unsettled":
        return Bottleneck("unknown", NeverSteady(_unsettled(point)))
    if point["missed_at"] is None and point["unsettled"] == "short":
        return Bottleneck("unknown", SteadyMeets(point["high_needs_at"], _unsettled(point)))
    if point["missed_at"] is None:
        highest = valid.filter(pl.col("level") == pl.col("level").max())
        return Bottleneck("none", HighestLevel(point["highest"]), _names(highest))
    missing = valid.filter(pl.col("level") == point["missed_at"])
    if point["basis"] == "burst":
        return _of_burst(missing, point, slos)
    at = At(point["missed_at"], point["unit"])
    if found := _refusals(missing, point, slos, at):
        return found
    if found := _alone(missing, point, slos, at):
        return found
    if found := _silent(missing, at):
        return found
    watched = valid.filter(pl.col("steady_queued_share").is_not_null() & pl.col("telemetry_valid"))
    beyond = watched.filter(pl.col("level") <= _BEYOND * point["missed_at"]).sort("level")
    pushed = beyond.filter(pl.col("level") == pl.col("level").max())
    base = valid.filter(pl.col("level") == pl.col("level").min())
    alone, there = server_load(base, valid), server_load(missing, valid)
    missed = [slo for slo in slos if slo.column in _missed_by(point)]
    if missed and not any(slo.metric in _EXPLAINED for slo in missed):
        return Bottleneck("unknown", UnknownLatency(at, missed[0].metric), _names(missing))
    if any(slo.metric == "tpot" for slo in missed):
        return _between_tokens(missing, there, alone, at)
    # What lacks room beyond a load at which too few wait for the percentile is the next limit.
    queued = mean_of(_over(beyond, point, missed), "steady_queued_share") or 0.0
    if queued <= _EXPLAINS * min((1 - slo.share for slo in missed), default=0.0):
        return _compute(missing, there, at)
    bound, held = _admission(pushed, server_load(pushed, valid), alone)
    return bound or _compute(missing, there, at, held)


def _unsettled(point: Mapping[str, Any]) -> Unsettled:
    needs_s = point["unsettled_needs_s"]
    return Unsettled(point["unsettled"], None if needs_s is None else int(needs_s))


def _missed_by(point: Mapping[str, Any]) -> set[str]:
    return {miss["by"] for miss in point["missed"] or ()}


def _over(beyond: pl.DataFrame, point: Mapping[str, Any], missed: Sequence[Slo]) -> pl.DataFrame:
    """The runs of the lowest level at which a missed SLO's percentile is over its limit: one below is missed by its uncertainty alone.

    Args:
        beyond: the runs from which to choose; of no level over its limit, all of the level that misses are.
    """
    from_there = beyond.filter(pl.col("level") >= point["missed_at"])
    for level in from_there.partition_by("level", maintain_order=True):
        if any((mean_of(level, f"steady_{slo.column}") or 0.0) > slo.limit_s for slo in missed):
            return level
    return from_there.filter(pl.col("level") == point["missed_at"])


def _refusals(missing: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], at: At) -> Bottleneck | None:
    """How many requests fail; None where too few do to end the range: less than may, and less than half of those that miss an SLO."""
    by = _missed_by(point)
    if "failed" not in by and not any(_mostly_failed(missing, slo) for slo in slos if slo.column in by):
        return None
    window = missing["steady_requests"].null_count() == 0
    failed, requests = (int(missing[f"steady_{name}" if window else name].sum()) for name in ("failed", "requests"))
    said = missing["failure_said"].drop_nulls() if "failure_said" in missing.columns else pl.Series([], dtype=pl.String)
    broken = sum(missing[name].sum() for kind in _BROKEN if (name := f"outcome_{kind}") in missing.columns)
    found = Failures(
        at,
        failed,
        requests,
        mean_of(missing, "steady_in_flight"),
        broken=2 * broken > missing["failed"].sum(),
        said=said[0] if len(said) else None,
    )
    return Bottleneck("refusals", found, _names(missing))


def _mostly_failed(missing: pl.DataFrame, slo: Slo) -> bool:
    """Whether most of the requests that miss the SLO failed: one that fails exceeds every limit."""
    judged = missing.select(pl.col("judged").explode()).drop_nulls().unnest("judged")
    late = judged.filter(pl.col("ok") & (pl.col(slo.metric) > slo.limit_s)).height
    return judged.filter(~pl.col("ok")).height > late


def _of_burst(missing: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo]) -> Bottleneck:
    """Why a burst of this size misses: whether it fits the server at all, and else what its requests wait for."""
    at, waiting, names = At(missing["level"][0], burst=True), mean_of(missing, "waiting_standing"), _names(missing)
    if found := _refusals(missing, point, slos, at):
        return found
    if found := _alone(missing, point, slos, at):
        return found
    if missing["saturated"].null_count() or waiting is None:
        known = {"queue": waiting is not None, "usage": not missing["saturated"].null_count()}
        return Bottleneck("unknown", Silent(at, _read(missing), **known, whole=bool(missing["telemetry_valid"].all())), names)
    if missing["saturated"].any() and not _has_slots(missing):
        return Bottleneck("kv", FullCache(at, _request_bytes(missing)), names)
    slots, running = _slots(missing), mean_of(missing, "running_peak")
    if waiting and slots is not None and (running or 0.0) >= slots:
        return Bottleneck("sequences", Slots(at, slots), names)
    if any(slo.metric == "ttft" and (mean_of(missing, slo.column) or 0.0) > slo.limit_s for slo in slos):
        return Bottleneck("prefill", Prompts(at), names)
    return Bottleneck("unknown", SlowAnswers(at), names)


def _alone(missing: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], at: At) -> Bottleneck | None:
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
        cause: Cause = "prefill" if slo.metric == "ttft" else "decode"
        if slo.metric == "e2e":
            first = mean_of(missing, "ttft_p50_s" if burst else "steady_ttft_p50_s")
            cause = "unknown" if first is None else "prefill" if first > value / 2 else "decode"
        return Bottleneck(cause, Alone(at, slo.metric, value, slo.limit_s), _names(missing))
    return None


def _silent(runs: pl.DataFrame, at: At) -> Bottleneck | None:
    """What of the server's metrics is missing to show why; None where nothing is."""
    queue, usage = (mean_of(runs, column) is not None for column in ("steady_queued_share", "steady_kv_usage"))
    whole = bool(runs["telemetry_valid"].all())
    if queue and usage and whole:
        return None
    return Bottleneck("unknown", Silent(at, _read(runs), queue=queue, usage=usage, whole=whole), _names(runs))


def _read(runs: pl.DataFrame) -> bool:
    """Whether the server's metrics were scraped at all."""
    return runs["scrape_endpoint"].null_count() < len(runs)


def _between_tokens(runs: pl.DataFrame, there: ServerLoad, alone: ServerLoad, at: At) -> Bottleneck:
    """Why TPOT is missed: decode or interference, by which one's relief lets more load within the time between tokens."""
    if there.preempted is not None and there.preempted > _PREEMPTED:
        return Bottleneck("kv", Preemptions(at, there.preempted, _request_bytes(runs)), _names(runs))
    if there.step_s is None or there.gap_s is None or there.prefill_share is None:
        return Bottleneck("unknown", UnknownStep(at), _names(runs))
    others = min(max(0.0, there.gap_s - there.step_s), there.gap_s * there.prefill_share)
    cause: Cause = "interference" if _others_weigh_more(there, alone, others) else "decode"
    return Bottleneck(cause, Gaps(at, there.step_s, others), _names(runs))


def _others_weigh_more(there: ServerLoad, alone: ServerLoad, others: float) -> bool:
    """Whether more load fits within the time between tokens without others' prompts than with steps twice as fast.

    A step without prompts is taken as a straight line over the load, through the lowest level; what others' prompts add is
    proportional to it. Of one load only, that time itself has to do.

    Args:
        others: what they add to a gap (s).
    """
    step, gap = there.step_s or 0.0, there.gap_s or 0.0
    if alone.step_s is None or not alone.rps or not there.rps or there.rps < _APART * alone.rps:
        return others > _OTHERS * step
    adds = min(step, max(_LEAST_ADDED * step, (step - alone.step_s) / (1 - alone.rps / there.rps)))
    fixed = step - adds
    return (gap - fixed) / adds > (gap - fixed / 2) / (adds / 2 + others)


def _admission(runs: pl.DataFrame, there: ServerLoad, alone: ServerLoad) -> tuple[Bottleneck | None, Held | None]:
    """The bound that holds requests back while they wait, if more room would raise the rate more than speed.

    Returns:
        None where there is none, or where speed would raise more; then what holds requests back, with what lifting it would bring.
    """
    if (there.queued_share or 0.0) < _QUEUED or not there.running:
        return None, None
    slots, left = _slots(runs), _no_room(runs, there)
    if _has_slots(runs):  # a slot reserves a batch position and its KV memory, so a full cache is not a separate limit
        there, left = replace(there, usage=None), None
    all_run = slots is not None and (there.running_high or 0.0) >= slots - 0.5
    gains = _gains(there, alone, slots)
    fast, room = max(gains["prefill"], gains["decode"]), max(gains["sequences"], gains["kv"])
    at, waiting = At(runs["level"][0]), math.ceil(mean_of(runs, "steady_waiting") or 0.0)
    if left is not None and not all_run:
        full = HeldByCache(at, waiting, *left, gains["kv"], room, _request_bytes(runs))
        return (None, full) if _ALIKE * gains["kv"] < fast else (Bottleneck("kv", full, _names(runs)), None)
    if all_run or (slots is None and _pinned(there)):
        bound = HeldBySlots(at, slots, there.running_high, waiting, gains["sequences"], room)
        return (None, bound) if _ALIKE * gains["sequences"] < fast else (Bottleneck("sequences", bound, _names(runs)), None)
    if slots is not None and (there.queued_share or 0.0) >= _STANDS:
        return Bottleneck("prefill", FullSteps(at, waiting), _names(runs)), None
    return None, None


def _slots(runs: pl.DataFrame) -> int | None:
    """Sequences that may run in all engines together; None where it is not known."""
    slots = runs["max_num_seqs"][0]
    return None if slots is None else int(slots) * engines_of(runs)


def _has_slots(runs: pl.DataFrame) -> bool:
    """Whether a request holds a slot of the KV cache, so that all slots in use is all that `max_num_seqs` lets run."""
    return bool(runs["kv_slots"].any())


def _no_room(runs: pl.DataFrame, there: ServerLoad) -> tuple[float | None, float | None] | None:
    """Of a KV cache that admits no more, the free tokens and those of a prompt, if they are too few; None where it has room."""
    tokens, prompt = mean_of(runs, "kv_tokens"), mean_of(runs, "prompt_tokens")
    # The usage is that of the fullest engine, which has its part of the tokens.
    free = None if tokens is None or there.usage_queued is None else (1 - there.usage_queued) * tokens / engines_of(runs)
    if free is not None and prompt is not None and free < _FITS * prompt:
        return free, prompt
    full = (there.preempted or 0.0) > _PREEMPTED or runs["saturated"].fill_null(False).any()
    return (None, None) if full else None


def _pinned(there: ServerLoad) -> bool:
    """Whether a bound that is not known holds the number of requests that run, as if by `max_num_seqs`."""
    running, high = there.running or 0.0, there.running_high or 0.0
    return (there.prefill_share or 0.0) < _LITTLE and high <= (1 + _PINNED) * running + 0.5


def _gains(there: ServerLoad, alone: ServerLoad, slots: int | None = None) -> dict[str, float]:
    """By which factor what is carried would rise: room by more sequences, or by more KV memory; prompts, or steps, twice as fast.

    Service time is taken as a straight line over the requests that run, through the lowest level and this one; requests/s are those
    that run ÷ service time (Little's law).
    """
    prefill = there.prefill_share or 0.0
    gains = {"prefill": 1 / (1 - prefill / 2), "decode": 1 / (1 - (1 - prefill) / 2)}
    # However many run, each prompt takes its time.
    most = {"sequences": 1 / max(prefill, 1e-3), "kv": _MORE_KV / (1 + (_MORE_KV - 1) * prefill)}
    n, n0, s, s0 = there.running, alone.running, there.service_s, alone.service_s
    if n is None or n0 is None or s is None or s0 is None or n < _APART * n0:
        return {**gains, **most}
    slope = max(1e-9, (s - s0) / (n - n0))
    fixed = max(0.0, s - slope * n)
    # One bound lifted, the other one is next: what the KV cache holds, and `max_num_seqs`.
    held = math.inf if not there.usage else max(1.0, 1 / there.usage)
    run = _MORE_KV if slots is None else max(1.0, min(_MORE_KV, slots / n))
    line = {"sequences": s / (fixed / held + slope * n), "kv": run * s / (fixed + run * slope * n)}
    return {**gains, **{cause: min(most[cause], gain) for cause, gain in line.items()}}


def _compute(runs: pl.DataFrame, there: ServerLoad, at: At, held: Held | None = None) -> Bottleneck:
    """Prefill or decode, by which takes more of the engine's time. Args: held: what holds requests back, for little gain."""
    share = there.prefill_share
    cause: Cause = "unknown" if share is None else "prefill" if share >= _PREFILL else "decode"
    return Bottleneck(cause, Steps(at, share, held), _names(runs))


def _names(runs: pl.DataFrame) -> tuple[str, ...]:
    return tuple(runs["run"].to_list())


def _request_bytes(runs: pl.DataFrame) -> float | None:
    """KV memory that holds one request more; None where the bytes of a token are not known."""
    each = mean_of(runs, "kv_bytes_per_token")
    tokens = (mean_of(runs, "prompt_tokens") or 0.0) + (mean_of(runs, "output_tokens") or 0.0)
    return None if each is None else each * tokens

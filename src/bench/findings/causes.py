"""What limits a curve: by what a load shows (its evidence) the cause, a sentence, and what would raise the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import polars as pl

from bench.axes import CONCURRENCY
from bench.errors import listed
from bench.findings.capacity.words import shown_over, unsettled_text
from bench.parse.server import pinned
from bench.predict.calibration import CurveRelief, Gain
from bench.runs.latencies import class_column
from bench.runs.sentences import filled, load_text, sure_text
from bench.statistics.textbook import TAIL, rarer_by_chance
from bench.study.slo import Slo

# highest load looked at ÷ the one that misses; tuned: benchmarks.capacity, seed 5: what is full shows more plainly there
_BEYOND = 1.4
# least share of scrapes with waiting requests where what is full holds them back; tuned: benchmarks.capacity, seed 5
_QUEUED = 0.1
_PREEMPTED = 0.02  # preemptions a request above which they are the cause; tuned: benchmarks.capacity, seed 5
_FITS = 1.5  # free KV tokens ÷ a prompt's below which no prompt is admitted; tuned: benchmarks.capacity, seed 5
# slope of ln requests/s over ln running requests above which more of them bring most; derived: where a step takes a + b × requests,
# four times as many run twice the requests/s, as steps in half the time do
_PAYS = 2 / 3
_OF_LATE = 0.5  # requests of a burst that wait ÷ those that are late, from which what they wait for is the cause; convention
_FEWER = 0.75  # running requests ÷ those where something is full, at loads that show that slope; convention

Cause = Literal["kv", "sequences", "prefill", "decode", "interference", "refusals", "none", "unknown"]
_FASTER = "a faster device, or more of them"


@dataclass(frozen=True)
class Resource:
    """What of a server may be short.

    Attributes:
        reason: why it sustains no more. short: the same in a title. relief: what a replay gives it. remedy: what would raise it.
        more: what else would, and how far, said behind `remedy` where it is the only one.
    """

    reason: str
    short: str
    relief: str
    remedy: str
    more: str


RESOURCES = {
    "kv": Resource(
        "the KV cache holds too few requests",
        "a full KV cache",
        "with four times the KV memory",
        "more KV memory",
        "[ (a request takes {request_bytes:size})], pooled or of a cheaper tier too, or half the KV bytes a token (KV type or model)",
    ),
    "sequences": Resource(
        "max_num_seqs[ ({slots})] lets too few sequences run",
        "max_num_seqs",
        "without a bound on sequences",
        "a higher max_num_seqs",
        ", as far as the KV cache holds",
    ),
    "prefill": Resource(
        "prompts take too long to compute",
        "prefill",
        "with prompts computed twice as fast",
        "more compute",
        f" ({_FASTER}), shorter prompts, or prefixes that the cache serves",
    ),
    "decode": Resource(
        "steps take too long",
        "step time",
        "with steps twice as fast",
        "more memory bandwidth",
        f" ({_FASTER}), smaller weights, or fewer requests in a step",
    ),
    "interference": Resource(
        "prefill of other requests interrupts decoding",
        "prefill between tokens",
        "with prompts computed elsewhere",
        "smaller chunks of prompts in a step",
        " (vLLM's max-num-batched-tokens, llama.cpp's ubatch-size), or prefill on machines of its own",
    ),
}


@dataclass(frozen=True)
class Rule:
    """What a kind of evidence shows. Attributes: remedy: empty where it is that of the cause's resource, or nothing follows."""

    cause: Cause
    why: str
    remedy: str = ""


_FAILED = "{failed:,} of {requests:,} requests[, with {in_flight:.3g} in flight on average][: {said:quoted}]"
_ALONE = (
    "one request[ of {request_class}] alone is too slow: its {metric:latency} is {value_s:time}; the limit is {limit_s:time}"
)
#: By code, in the order in which `bottleneck` looks for them; sentences take the numbers of a `Bottleneck`. `at` is said where not the
#: first load that misses shows it.
RULES = {
    "never_steady": Rule("unknown", "the limit is not known: {unsettled}"),
    "steady_meets": Rule("unknown", "no steady load misses; the upper end is not known[: {at}, {unsettled}]"),
    "highest_level": Rule("none", "", "measure higher loads to find the limit"),
    "refused": Rule(
        "refusals",
        f"[{{at}}, ]the server refuses or fails {_FAILED}",
        "a higher limit of the server or of the gateway in front of it, or send less; see their logs where answers broke off",
    ),
    "few_failures": Rule(
        "unknown",
        "[{at}, ]not known: {failed:,} of {requests:,} requests fail, too few to show whether failures grow with the load; without "
        "them it would not miss",
        "measure this load and lower ones for longer, to compare how many requests fail",
    ),
    "alone_prefill": Rule("prefill", _ALONE),
    "alone_decode": Rule("decode", _ALONE, f"more memory bandwidth ({_FASTER}), or smaller weights"),
    "alone": Rule("unknown", _ALONE, _FASTER),
    "relieved": Rule(
        "unknown",  # that which brings most
        "[{at}, ]{reason}[; the KV cache is full too: {per_request:.2g} preemptions a request]"
        "[; the KV cache is full too: {waiting:wait} on average]",
    ),
    "no_gauges": Rule(
        "unknown",
        "[{at}, ]not known: the server's metrics were not read, have gaps, or lack series that show causes",
    ),
    "full_cache": Rule(
        "kv",
        "[{at}, ]the KV cache is full[: {per_request:.2g} preemptions a request, whose work is repeated]"
        "[: {free_tokens:,.0f} tokens are free; a prompt takes {prompt_tokens:,.0f}][; {waiting:wait} on average]",
    ),
    "slots": Rule(
        "sequences", "[{at}, ]all {slots} sequences of max_num_seqs run, and requests wait[: {waiting:,} on average]"
    ),
    "slots_and_cache": Rule(
        "sequences",
        "[{at}, ]all {slots} sequences of max_num_seqs run, the KV cache is full, and requests wait[: {waiting:,} on average]",
        "a higher max_num_seqs together with more KV memory",
    ),
    "pinned": Rule("sequences", "[{at}, ]never more than {running:.0f} requests run, and {waiting:wait} on average"),
    "prompts": Rule(
        "prefill",
        "[{at}, ]requests wait for the prefill of others[; the KV cache is full too: {per_request:.2g} preemptions a request]",
    ),
    "slow_answers": Rule("unknown", "[{at}, ]not known: a burst does not show why answers take too long"),
    "nothing_full": Rule("unknown", "[{at}, ]not known: no request waits for a sequence or the KV cache, and {unknown}"),
    "queued": Rule(
        "unknown", "[{at}, ]not known: requests wait[: {waiting:,} on average], and what for is not shown; {unknown}"
    ),
}


#: Why what is full may not be the cause, by code.
DOUBTS = {
    "flat": Rule("unknown", "requests/s hardly rise with the requests that run, and {unknown}"),
    "untested": Rule(
        "unknown",
        "no lower load[, of at most {fewer} running requests,] shows whether requests/s rise with the requests that run, and {unknown}",
        "measure loads at which fewer requests run[: at most {fewer}]",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What ends a curve's operating range: a row of `causes.parquet` (docs/reference/analysis.md has each column's meaning and unit).

    Attributes:
        evidence: what shows it, a key of `RULES`; None where nothing was judged. runs: those that show it. gains: what more of each
            resource would bring, the most first; tied: how many of the first are causes alike. no_model: why no replays say more.
            doubt: why what is full may not be the cause, a key of `DOUBTS`.
            The rest: its numbers, or None.
    """

    evidence: str | None = None
    runs: tuple[str, ...] = ()
    level: float | None = None
    unit: str | None = None
    burst: bool = False
    unsettled: Literal["empty", "short", "absent"] | None = None
    needs_s: int | None = None
    failed: int | None = None
    requests: int | None = None
    in_flight: float | None = None
    said: str | None = None
    metric: str | None = None
    request_class: str | None = None
    value_s: float | None = None
    limit_s: float | None = None
    per_request: float | None = None
    slots: int | None = None
    running: float | None = None
    waiting: int | None = None
    free_tokens: float | None = None
    prompt_tokens: float | None = None
    request_bytes: float | None = None
    gains: tuple[Gain, ...] = ()
    tied: int = 0
    no_model: str | None = None
    doubt: Literal["flat", "untested"] | None = None

    @property
    def cause(self) -> Cause:
        """`kv` (the KV cache admits no more), `sequences` (max_num_seqs does not), `prefill` (prompts wait for arithmetic), `decode`
        (steps take too long), `interference` (others' prompts are computed between a request's tokens), `refusals` (the server refuses
        or fails), `none` (no measured load misses) or `unknown`.
        """
        if self.evidence == "relieved":
            return cast("Cause", self.gains[0].resource)
        return "unknown" if self.evidence is None or self.doubt else RULES[self.evidence].cause


def bottleneck(
    runs: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], relief: CurveRelief | None = None
) -> Bottleneck:
    """Why a curve sustains no more than its operating point: the resource whose increase would raise the sustainable load most.

    - Refusals, where requests fail; prefill or decode, where one request alone misses.
    - Where a calibrated model of the server is known, the resource that brings most in its replays (`relief`).
    - Otherwise what the server shows: preemptions, a KV cache that is full or sequences that all run while requests wait. It is the
      cause if requests/s have risen with the requests that run, as more of them would then bring more than speed.

    Args:
        runs: summary rows of one curve. point: its row of `operating_points`. slos: those that it was made for, among others.
        relief: of `bench.predict.relief`, or why there is none; None where nobody replayed.
    """
    slos = [slo for slo in slos if str(slo) in point["slos"]]
    valid = runs.filter("valid")
    if point["kind"] in ("unknown", "unjudged") or valid.is_empty():
        return Bottleneck()
    unsettled = Bottleneck(unsettled=point["unsettled"], needs_s=point["unsettled_needs_s"] and int(point["unsettled_needs_s"]))
    if point["kind"] == "unsettled":
        return replace(unsettled, evidence="never_steady")
    if point["missed_at"] is None and point["unsettled"] == "short" and point["unsettled_at"] > point["c_max"]:
        return replace(unsettled, evidence="steady_meets", level=point["unsettled_at"], unit=point["unit"])
    if point["missed_at"] is None:
        highest = valid.filter(pl.col("level") == pl.col("level").max())
        return Bottleneck(evidence="highest_level", level=point["highest"], unit=point["unit"], runs=_names(highest))
    missing = valid.filter(pl.col("level") == point["missed_at"])
    lower = valid.filter(pl.col("level") < point["missed_at"])
    burst = point["basis"] == "burst"
    here = Bottleneck(runs=_names(missing), level=point["missed_at"], unit=None if burst else point["unit"], burst=burst)
    if found := refusals(missing, lower, point, slos, here) or _alone(missing, point, slos, here):
        return found
    if burst:
        return _of_burst(missing, point, slos, here)
    if relief is not None and relief.relief is not None:
        here = replace(here, gains=relief.relief.gains, tied=relief.relief.tied)
        if here.tied:
            here = replace(here, evidence="relieved", slots=_slots_of(missing), request_bytes=_request_bytes(missing))
            # What shows that the KV cache is full as well, where it is not the cause.
            full = None if "kv" in alike(here) else _full(missing, here)
            return replace(full, evidence="relieved") if full and full.evidence == "full_cache" else here
    elif relief is not None:
        here = replace(here, no_model=relief.why_not)
    gauges = [_mean(missing, column) for column in ("steady_queued_share", "steady_kv_usage")]
    if None in gauges or not missing["telemetry_valid"].all():
        return replace(here, evidence="no_gauges")
    watched = valid.filter(pl.col("steady_queued_share").is_not_null() & pl.col("telemetry_valid"))
    beyond = watched.filter(pl.col("level") <= _BEYOND * point["missed_at"])
    pushed = beyond.filter(pl.col("level") == pl.col("level").max())
    if full := _full(pushed, here):
        return replace(full, doubt=_doubt(watched, full))
    queued = (_mean(pushed, "steady_queued_share") or 0.0) >= _QUEUED
    waiting = math.ceil(_mean(pushed, "steady_waiting") or 0.0) or None
    there = replace(here, runs=_names(pushed), level=float(pushed["level"][0]), waiting=waiting)
    return replace(there, evidence="queued") if queued else replace(here, evidence="nothing_full")


def _doubt(runs: pl.DataFrame, full: Bottleneck) -> Literal["flat", "untested"] | None:
    """Why what is full may not be the cause; None where requests/s rise with the requests that run. Args: runs: of all levels."""
    levels = (
        runs.filter(pl.col("level") <= full.level)
        .group_by("level")
        .agg(pl.col("steady_running", "steady_requests_per_s").mean())
    )
    known = levels.filter(pl.col("steady_running") > 0, pl.col("steady_requests_per_s") > 0).sort("level")
    if known.is_empty() or not (fewer := known.filter(pl.col("steady_running") <= _FEWER * known["steady_running"][-1])).height:
        return "untested"
    running, rate = (math.log(known[name][-1] / fewer[name][-1]) for name in ("steady_running", "steady_requests_per_s"))
    return None if rate >= _PAYS * running else "flat"


def _full(runs: pl.DataFrame, here: Bottleneck) -> Bottleneck | None:
    """What is full while requests wait; None where nothing is, or none waits. Args: runs: of one level."""
    preempted, requests = _mean(runs, "preemptions"), _mean(runs, "requests")
    per_request = preempted / requests if preempted and requests else 0.0
    running, high = _mean(runs, "steady_running") or 0.0, _mean(runs, "steady_running_high") or 0.0
    here = replace(here, runs=_names(runs), level=float(runs["level"][0]), running=high or None)
    if per_request > _PREEMPTED:
        return replace(here, evidence="full_cache", per_request=per_request, request_bytes=_request_bytes(runs))
    if (_mean(runs, "steady_queued_share") or 0.0) < _QUEUED or not running:
        return None
    here = replace(here, waiting=math.ceil(_mean(runs, "steady_waiting") or 0.0))
    slots = _slots_of(runs)
    # A slot reserves a place in the batch and its KV memory, so that a full cache is no limit of its own.
    left = None if _has_slots(runs) else _no_room(runs)
    if slots is not None and high >= slots - 0.5:
        return replace(here, evidence="slots" if left is None else "slots_and_cache", slots=slots)
    if left is not None:
        free, prompt = left
        bytes_each = _request_bytes(runs)
        return replace(here, evidence="full_cache", free_tokens=free, prompt_tokens=prompt, request_bytes=bytes_each)
    if slots is None and pinned(running, high):
        return replace(here, evidence="pinned")
    return None


def _no_room(runs: pl.DataFrame) -> tuple[float | None, float | None] | None:
    """Free tokens of a KV cache that admits no more, and the tokens of a prompt, each None where not known; None where it has room."""
    tokens, prompt, usage = _mean(runs, "kv_tokens"), _mean(runs, "prompt_tokens"), _mean(runs, "steady_kv_usage_queued")
    # The usage is that of the fullest engine, which has its part of the tokens.
    free = None if tokens is None or usage is None else (1 - usage) * tokens / _engines_of(runs)
    if free is not None and prompt is not None and free < _FITS * prompt:
        return free, prompt
    return (None, None) if runs["saturated"].fill_null(False).any() else None


def _slots_of(runs: pl.DataFrame) -> int | None:
    """Sequences that may run in all engines together."""
    slots = runs["max_num_seqs"][0]
    return None if slots is None else int(slots) * _engines_of(runs)


def _has_slots(runs: pl.DataFrame) -> bool:
    """Whether each request holds a slot of the KV cache: `max_num_seqs` is then the number of slots."""
    return bool(runs["kv_slots"].any())


def _engines_of(runs: pl.DataFrame) -> int:
    return int(runs["engines"][0] or 1)


def _request_bytes(runs: pl.DataFrame) -> float | None:
    """KV memory of one more request (bytes)."""
    each = _mean(runs, "kv_bytes_per_token")
    tokens = (_mean(runs, "prompt_tokens") or 0.0) + (_mean(runs, "output_tokens") or 0.0)
    return None if each is None else each * tokens


def _names(runs: pl.DataFrame) -> tuple[str, ...]:
    return tuple(runs["run"].to_list())


def _mean(runs: pl.DataFrame, column: str) -> float | None:
    return runs[column].mean()  # type: ignore[return-value]


def refusals(
    missing: pl.DataFrame, lower: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], here: Bottleneck
) -> Bottleneck | None:
    """How many requests fail, where failures end the range: more fail than may, or an SLO is missed mostly by requests that fail,
    significantly more than at lower levels. `few_failures` where that is not known of any SLO that is missed; None where they do not.
    """
    by = {miss["by"] for miss in point["missed"] or ()}
    shown = [_missed_by_failures(missing, lower, slo) for slo in slos if slo.column in by]
    refused = "failed" in by or True in shown
    doubtful = len(shown) == len(by) and set(shown) == {None}  # whatever else is missed has a cause to find
    if not (refused or doubtful):
        return None
    window = missing["steady_requests"].null_count() == 0
    failed, requests = (int(missing[f"steady_{name}" if window else name].sum()) for name in ("failed", "requests"))
    said = missing["failure_said"].drop_nulls() if "failure_said" in missing.columns else pl.Series([], dtype=pl.String)
    return replace(
        here,
        evidence="refused" if refused else "few_failures",
        failed=failed,
        requests=requests,
        in_flight=_mean(missing, "steady_in_flight"),
        said=said[0] if len(said) else None,
    )


def _missed_by_failures(missing: pl.DataFrame, lower: pl.DataFrame, slo: Slo) -> bool | None:
    """Whether most of the requests that miss the SLO failed, since a failed one misses it, and significantly more fail than at lower
    levels: requests that fail at any load do not limit the load. None where it is not known: none fails at lower levels, but that may
    be chance, and the SLO would be met if none failed here.
    """
    judged, before = _judged(missing, slo), _judged(lower, slo)
    failed, failed_before = (each.filter(~pl.col("ok")).height for each in (judged, before))
    late = judged.filter(pl.col("ok") & (pl.col(slo.metric) > slo.limit_s)).height
    if failed <= late:
        return False
    if before.is_empty() or rarer_by_chance(failed_before, before.height, failed, judged.height) <= TAIL:
        return True
    return False if failed_before or judged.height - late < slo.share * judged.height else None


def _judged(runs: pl.DataFrame, slo: Slo) -> pl.DataFrame:
    judged = runs.select(pl.col("judged").explode()).drop_nulls().unnest("judged")
    return judged if slo.request_class is None else judged.filter(pl.col("request_class") == slo.request_class)


def _of_burst(missing: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], here: Bottleneck) -> Bottleneck:
    """Why a burst of this size misses: whether it fits the server at all, and else what its requests wait for.

    What is full is the cause of a missed TTFT or E2E if about as many requests wait for it as are late, as it delays no others; of a
    missed TPOT alone, if it preempts them.
    """
    waiting, requests = _mean(missing, "waiting_standing"), _mean(missing, "requests") or 1.0
    if waiting is None or missing["saturated"].null_count():
        return replace(here, evidence="no_gauges")
    shares = {miss["by"]: miss["share"] or 0.0 for miss in point["missed"] or ()}
    by = {slo.metric for slo in slos if slo.column in shares}
    late = max((shares[slo.column] for slo in slos if slo.column in shares and slo.metric != "tpot"), default=0.0)
    per_request = (_mean(missing, "preemptions") or 0.0) / requests
    preempted = per_request > _PREEMPTED and "tpot" in by and "ttft" not in by
    held = late > 0 and _OF_LATE * late * requests <= waiting
    if (held or preempted) and missing["saturated"].any() and not _has_slots(missing):
        return replace(here, evidence="full_cache", request_bytes=_request_bytes(missing))
    slots, running = _slots_of(missing), _mean(missing, "running_peak")
    if held and slots is not None and (running or 0.0) >= slots:
        return replace(here, evidence="slots", slots=slots)
    full_too = per_request if per_request > _PREEMPTED else None
    return replace(here, evidence="prompts" if "ttft" in by else "slow_answers", per_request=full_too)


def _alone(missing: pl.DataFrame, point: Mapping[str, Any], slos: Sequence[Slo], here: Bottleneck) -> Bottleneck | None:
    """Why one request by itself misses; None where more than one was in flight, or none exceeds its limit. Without a TTFT, E2E does not
    show which part of it is too long.
    """
    if missing["level"][0] != 1 or missing["axis"][0] != CONCURRENCY:
        return None
    by = {miss["by"] for miss in point["missed"] or ()}
    for slo in (each for each in slos if each.column in by or here.burst):
        value = _mean(missing, slo.column if here.burst else f"steady_{slo.column}")
        if value is None or value <= slo.limit_s:
            continue
        evidence = "alone_prefill" if slo.metric == "ttft" else "alone_decode"
        if slo.metric == "e2e":
            first = _mean(missing, class_column(slo.request_class, "ttft_p50_s" if here.burst else "steady_ttft_p50_s"))
            evidence = "alone" if first is None else "alone_prefill" if first > value / 2 else "alone_decode"
        of = slo.request_class
        return replace(here, evidence=evidence, metric=slo.metric, request_class=of, value_s=value, limit_s=slo.limit_s)
    return None


def why(limit: Bottleneck, missed_at: float | None = None) -> str:
    """Why it sustains no more; empty where nothing was judged. Args: missed_at: the first load that misses; another one is named."""
    if limit.evidence is None:
        return ""
    text = RULES[limit.evidence].why
    if limit.doubt:
        text = f"{text.replace('[{at}, ]', '[{at}, ]not known: ')}; but {DOUBTS[limit.doubt].why}"
    return filled(text, _numbers(limit, missed_at))


def alike(limit: Bottleneck) -> list[str]:
    """The cause; of replays, those that they do not tell apart."""
    return [gain.resource for gain in limit.gains[: limit.tied]] if limit.evidence == "relieved" else [limit.cause]


def remedy(limit: Bottleneck) -> str:
    """What would raise it, and what replays say; empty where nothing follows. Of causes alike one remedy each."""
    if limit.evidence is None:
        return ""
    short, gains = [RESOURCES[cause] for cause in alike(limit) if cause in RESOURCES], limit.gains
    rule = DOUBTS[limit.doubt] if limit.doubt else RULES[limit.evidence]
    text = rule.remedy or "".join(each.remedy + each.more for each in short)
    if len(short) > 1:  # what else replays say would hide that these are as good as one another
        text, gains = listed([each.remedy for each in short], "or"), gains[: limit.tied]
    return "; ".join(filter(None, [filled(text, _numbers(limit)), f"replayed {_reliefs(gains)}" if gains else ""]))


def _numbers(limit: Bottleneck, missed_at: float | None = None) -> dict[str, Any]:
    why = unsettled_text(limit.unsettled, limit.needs_s) if limit.unsettled else None
    reasons = [filled(RESOURCES[gain.resource].reason, vars(limit)) for gain in limit.gains[: limit.tied]]
    reason = f"either {listed(reasons, 'or')}" if len(reasons) > 1 else "".join(reasons)
    at = None if limit.level == missed_at else _at(limit)
    fewer = None if limit.running is None else max(1, math.floor(_FEWER * limit.running))
    return {**vars(limit), "at": at, "unsettled": why, "reason": reason, "unknown": _unknown(limit), "fewer": fewer}


def _unknown(limit: Bottleneck) -> str:
    """Why no resource is known to be the cause."""
    if not limit.gains:
        return "the limit was not replayed" + (f" ({limit.no_model})" if limit.no_model else "")
    return f"in replays no single resource {'helps' if all(gain.none for gain in limit.gains) else 'clearly helps'}"


def _reliefs(gains: Sequence[Gain]) -> str:
    """What more of each resource brings, the most first."""
    texts = [_relief(gain, first=i == 0) for i, gain in enumerate(each for each in gains if not each.none)]
    if none := [RESOURCES[gain.resource].relief for gain in gains if gain.none]:
        texts.append(f"{listed(none, 'or')}, no more")
    return "; ".join(texts)


def _relief(gain: Gain, *, first: bool) -> str:
    """What more of a resource brings, such as `with steps twice as fast, 1.8 times the requests/s (1.7 to 2)`."""
    number, between = sure_text(gain.gain, gain.low, gain.high)
    least = between.partition(" ")[0]
    low = "1" if gain.low <= 1 else least if float(least) > 1 else shown_over(gain.low, 1.0, 2)
    ends = f"at least {low}" if gain.more else f"{low} to {between.rpartition(' ')[2]}"
    established = "" if gain.low > 1 else ", not established"
    return f"{RESOURCES[gain.resource].relief}, {number} times{' the requests/s' if first else ''} ({ends}){established}"


def _at(limit: Bottleneck) -> str | None:
    if limit.level is None:
        return None
    if limit.burst:
        return f"in a burst of {limit.level:g}"
    return f"at {limit.level:g}" if limit.unit is None else f"at {load_text(limit.level, limit.unit)}"

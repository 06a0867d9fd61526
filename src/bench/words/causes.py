"""Why a curve sustains no more, and what would raise it, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.analysis.evidence import Bottleneck, Evidence
from bench.analysis.judging import Unsettled
from bench.predict.relief_record import Gain
from bench.words.capacity import shown_over, unsettled_text
from bench.words.loads import load_text
from bench.words.templates import filled

_FAILED = "{failed:,} of {requests:,} requests[, with {in_flight:.3g} in flight on average][: {said:quoted}]."
WHY: dict[Evidence, str] = {
    "never_steady": "The limit is not known: {unsettled}.",
    "steady_meets": "No load that became steady misses. The upper end is not known. {at}, {unsettled}.",
    "highest_level": "{at}, the highest load measured, nothing is missed.",
    "metrics_unread": "{at}, the cause is not known: the server's metrics were not read.",
    "metrics_gaps": "{at}, the cause is not known: the server's metrics have gaps.",
    "no_gauges": "{at}, the cause is not known: the server reports neither its queue nor its KV usage.",
    "no_queue": "{at}, the cause is not known: the server does not report its queue.",
    "no_usage": "{at}, the cause is not known: the server does not report its KV usage.",
    "refused": f"{{at}}, the server refuses or fails {_FAILED}",
    "broken": f"{{at}}, the server breaks off or fails {_FAILED}",
    "few_failures": "{at}, {failed:,} of {requests:,} requests fail, and without these it would not miss. The cause is not known: "
    "too few fail to show whether failures grow with the load.",
    "full_cache": "{at}, the KV cache is full.",
    "slots": "{at}, all {slots} sequences of max_num_seqs run, and requests wait.",
    "prompts": "{at}, requests wait for the prefill of others.",
    "slow_answers": "{at}, answers take too long; a burst does not show why.",
    "preemptions": "{at}, the KV cache is full: {per_request:.2g} preemptions a request discard work, which is then repeated.",
    "held_by_cache": "{at}, the KV cache admits no more[: {free_tokens:,.0f} tokens are free, and a prompt takes "
    "{prompt_tokens:,.0f}]; {waiting:wait} on average.",
    "held_by_slots": "{at}, all {slots} sequences of max_num_seqs run, and {waiting:wait} on average.",
    "pinned": "{at}, never more than {running:.0f} requests run, and {waiting:wait} on average.",
    "relieved": "{at}, {reason}[; the KV cache is full too: {per_request:.2g} preemptions a request]"
    "[; the KV cache is full too: {waiting:wait} on average]. Replayed {reliefs}.",
    "nothing_full": "{at}, sequences and KV cache have room. {unknown}.",
}
_ALONE = (
    "One request[ of {request_class}] alone is too slow: its {metric:latency} is {value_s:time}; the limit is {limit_s:time}."
)
WHY |= {"alone": _ALONE, "alone_prefill": _ALONE, "alone_decode": _ALONE}
# Why a server sustains no more, by the resource that would bring most.
_REASONS = {
    "kv": "the KV cache holds too few requests",
    "sequences": "max_num_seqs[ ({slots})] lets too few sequences run",
    "prefill": "prompts take too long to compute",
    "decode": "steps take too long",
    "interference": "prompts of other requests are computed between a request's tokens",
}
_RELIEFS = {
    "kv": "with four times the KV memory",
    "sequences": "without a bound on sequences",
    "prefill": "with prompts computed twice as fast",
    "decode": "with steps twice as fast",
    "interference": "with prompts computed elsewhere",
}

_FASTER = "a faster device, or more of them"
_FASTER_PREFILL = f"More compute ({_FASTER}), shorter prompts, or prefixes that the cache serves."
_FASTER_DECODE = f"More memory bandwidth ({_FASTER}), smaller weights, or fewer requests in a step."
_MORE_KV = (
    "More KV memory[ (one request takes {request_bytes:size})]. A KV type of half the bytes, or a model with half the KV bytes a "
    "token, holds twice as many."
)
_MORE_SLOTS = "Raise max_num_seqs, as far as the KV cache holds."
REMEDIES: dict[Evidence, str] = {
    "highest_level": "Measure higher loads to find the limit.",
    "refused": "Raise the limit of the server or of the gateway in front of it, or send less.",
    "broken": "Look into the log of the server and of the gateway in front of it: it accepted requests, and their answers failed.",
    "few_failures": "Measure this load and lower ones for longer, to compare how many requests fail.",
    "alone": f"{_FASTER[0].upper()}{_FASTER[1:]}.",
    "alone_prefill": _FASTER_PREFILL,
    "alone_decode": f"More memory bandwidth ({_FASTER}), or smaller weights.",
    "full_cache": _MORE_KV,
    "preemptions": _MORE_KV,
    "held_by_cache": _MORE_KV,
    "slots": _MORE_SLOTS,
    "held_by_slots": _MORE_SLOTS,
    "pinned": _MORE_SLOTS,
    "prompts": _FASTER_PREFILL,
}
_RELIEVED = {
    "kv": _MORE_KV,
    "sequences": _MORE_SLOTS,
    "prefill": _FASTER_PREFILL,
    "decode": _FASTER_DECODE,
    "interference": "Compute smaller chunks of prompts in a step (vLLM's max-num-batched-tokens, llama.cpp's ubatch-size), or "
    "separate prefill from decode, each on machines of its own.",
}


def why(limit: Bottleneck) -> str:
    """Why it sustains no more, a sentence or two; empty where nothing was judged."""
    if limit.evidence is None:
        return ""
    return filled(WHY[limit.evidence], _numbers(limit))


def remedy(limit: Bottleneck) -> str:
    """What would raise it, a sentence or two; empty where nothing follows."""
    if limit.evidence == "relieved":
        return " ".join(filled(_RELIEVED[gain.resource], _numbers(limit)) for gain in limit.gains[: limit.tied])
    return "" if limit.evidence is None else filled(REMEDIES.get(limit.evidence, ""), _numbers(limit))


def _numbers(limit: Bottleneck) -> dict[str, Any]:
    why = unsettled_text(Unsettled(limit.unsettled, limit.needs_s)) if limit.unsettled else None
    reasons = [filled(_REASONS[gain.resource], vars(limit)) for gain in limit.gains[: limit.tied]]
    reason = f"either {' or '.join(reasons)}" if len(reasons) > 1 else "".join(reasons)
    texts = {"at": _at(limit), "unsettled": why, "reason": reason, "reliefs": _reliefs(limit.gains), "unknown": _unknown(limit)}
    return {**vars(limit), **texts}


def _unknown(limit: Bottleneck) -> str:
    """Why no resource is known to be the cause."""
    if not limit.gains:
        return "The cause is not known: the limit was not replayed" + (f" ({limit.no_model})" if limit.no_model else "")
    if all(gain.none for gain in limit.gains):
        return "In replays, no resource by itself would bring more"
    return f"The cause is not known: replayed {_reliefs(limit.gains)}"


def _reliefs(gains: Sequence[Gain]) -> str:
    """What more of each resource brings, the most first."""
    texts = [relief(gain, first=i == 0) for i, gain in enumerate(each for each in gains if not each.none)]
    if none := [_RELIEFS[gain.resource] for gain in gains if gain.none]:
        texts.append(f"{' or '.join(none)}, no more")
    return "; ".join(texts)


def relief(gain: Gain, *, first: bool = True) -> str:
    """What more of a resource brings, such as `with steps twice as fast, it carries 1.8 times the requests/s (1.7 to 2)`."""
    low = shown_over(gain.low, 1.0) if gain.low > 1 else "1"
    ends = f"at least {low}" if gain.more else f"{low} to {gain.high:.3g}"
    times = f"{gain.gain:.3g} times"
    established = "" if gain.low > 1 else ", not established"
    return f"{_RELIEFS[gain.resource]}, {f'it carries {times} the requests/s' if first else times} ({ends}){established}"


def _at(limit: Bottleneck) -> str | None:
    if limit.level is None:
        return None
    if limit.burst:
        return f"In a burst of {limit.level:g}"
    return f"At {limit.level:g}" if limit.unit is None else f"At {load_text(limit.level, limit.unit)}"

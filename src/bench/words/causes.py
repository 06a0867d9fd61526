"""Why a curve sustains no more, and what would raise it, in words."""

from __future__ import annotations

from typing import Any

from bench.analysis.evidence import Bottleneck, Evidence
from bench.analysis.judging import Unsettled
from bench.words.capacity import unsettled_text
from bench.words.loads import load_text
from bench.words.templates import filled

__all__ = ["REMEDIES", "WHY", "remedy", "why"]

_STEP = "a step takes {step_s:ms}, and prompts of other requests add {others_s:ms} to it on average"
_PROMPTS = "prompts take {prefill_share:share} of the time of the engine's steps"
_FAILED = "{failed:,} of {requests:,} requests[, with {in_flight:.3g} in flight on average][: {said:quoted}]."
WHY: dict[Evidence, str] = {
    "never_steady": "The limit is not known: {unsettled}.",
    "steady_meets": "No load that became steady misses. The upper end is not known: at {level:g}, {unsettled}.",
    "highest_level": "No measured load misses: {level:g} is the highest level.",
    "metrics_unread": "{at}, it misses. Why is not known: the server's metrics were not read.",
    "metrics_gaps": "{at}, it misses. Why is not known: the server's metrics have gaps.",
    "no_gauges": "{at}, it misses. Why is not known: the server reports neither its queue nor its KV usage.",
    "no_queue": "{at}, it misses. Why is not known: the server does not report its queue.",
    "no_usage": "{at}, it misses. Why is not known: the server does not report its KV usage.",
    "refused": f"{{at}}, the server refuses or fails {_FAILED}",
    "broken": f"{{at}}, the server breaks off or fails {_FAILED}",
    "full_cache": "{at}, the KV cache is full.",
    "slots": "{at}, all {slots} sequences of max_num_seqs run, and requests wait.",
    "prompts": "{at}, requests wait for the prefill of others.",
    "slow_answers": "{at}, answers take too long; a burst does not show why.",
    "preemptions": "{at}, the KV cache is full: {per_request:.2g} preemptions a request discard work, which is then repeated.",
    "unknown_latency": "{at}, {metric:latency} misses its limit. Why is not known: it is not broken down into parts.",
    "unknown_step": "{at}, TPOT misses its limit. Why is not known: the time of a step is missing.",
    "others_prompts": f"{{at}}, prompts of other requests are computed between a request's tokens: {_STEP}.",
    "slow_steps": f"{{at}}, decoding is too slow: {_STEP}.",
    "held_by_cache": "{at}, the KV cache admits no more[: {free_tokens:,.0f} tokens are free, and a prompt takes "
    "{prompt_tokens:,.0f}]; {waiting:wait} on average.",
    "held_by_slots": "{at}, all {slots} sequences of max_num_seqs run, and {waiting:wait} on average.",
    "pinned": "{at}, never more than {running:.0f} requests run, and {waiting:wait} on average.",
    "full_steps": "{at}, {waiting:wait} on average, although sequences and KV cache have room: prompts fill the tokens of each step.",
    "prefill_steps": f"{{at}}, requests wait for prefill: {_PROMPTS}.",
    "decode_steps": f"{{at}}, steps take too long: {_PROMPTS}, decoding the rest.",
    "unknown_steps": "{at}, it takes too long. Why is not known: the engine's steps cannot be separated.",
}
_ALONE = "One request alone is too slow: its {metric:latency} is {value_s:time}; the limit is {limit_s:time}."
WHY |= {"alone": _ALONE, "alone_prefill": _ALONE, "alone_decode": _ALONE}
_LITTLE = "{first}, but more room would raise the rate by a factor of {gain:.2g} only. "

_FASTER = "a faster device, or more of them"
_FASTER_PREFILL = f"More compute ({_FASTER}), shorter prompts, or prefixes that the cache serves."
_FASTER_DECODE = f"More memory bandwidth ({_FASTER}), smaller weights, or fewer requests in a step."
_MORE_KV = (
    "More KV memory[ (one request takes {request_bytes:size})]. A KV type of half the bytes, or a model with half the KV bytes a "
    "token, holds twice as many."
)
_MORE_SLOTS = "Raise max_num_seqs, as far as the KV cache holds."
_NEXT = "[ Beyond about {beyond:.2g} times this rate the engine's speed is the limit.]"
REMEDIES: dict[Evidence, str] = {
    "highest_level": "Measure higher levels to find the limit.",
    "refused": "Raise the limit of the server or of the gateway in front of it, or send less.",
    "broken": "Look into the log of the server and of the gateway in front of it: it accepted requests, and their answers failed.",
    "alone": f"{_FASTER[0].upper()}{_FASTER[1:]}.",
    "alone_prefill": _FASTER_PREFILL,
    "alone_decode": f"More memory bandwidth ({_FASTER}), or smaller weights.",
    "full_cache": _MORE_KV,
    "preemptions": _MORE_KV,
    "held_by_cache": _MORE_KV + _NEXT,
    "slots": _MORE_SLOTS,
    "held_by_slots": _MORE_SLOTS + _NEXT,
    "pinned": _MORE_SLOTS + _NEXT,
    "others_prompts": "Compute smaller chunks of prompts in a step (vLLM's max-num-batched-tokens, llama.cpp's ubatch-size), or "
    "separate prefill from decode, each on machines of its own.",
    "prompts": _FASTER_PREFILL,
    "full_steps": _FASTER_PREFILL,
    "prefill_steps": _FASTER_PREFILL,
    "slow_steps": _FASTER_DECODE,
    "decode_steps": _FASTER_DECODE,
}


def why(limit: Bottleneck) -> str:
    """Why it sustains no more, a sentence or two; empty where nothing was judged."""
    if limit.evidence is None:
        return ""
    text = filled(WHY[limit.evidence], _numbers(limit))
    if limit.held is None:
        return text
    first = filled(WHY[limit.held], {**_numbers(limit), "at": f"At {limit.held_level:g}"}).removesuffix(".")
    return filled(_LITTLE, {"first": first, "gain": limit.gain}) + text


def remedy(limit: Bottleneck) -> str:
    """What would raise it, a sentence or two; empty where nothing follows."""
    return "" if limit.evidence is None else filled(REMEDIES.get(limit.evidence, ""), _numbers(limit))


def _numbers(limit: Bottleneck) -> dict[str, Any]:
    """The numbers by name; with `at`, the load, and `beyond`, the factor of the rate from which the engine's speed is the limit."""
    why = unsettled_text(Unsettled(limit.unsettled, limit.needs_s)) if limit.unsettled else None
    soon = limit.room is not None and 1 < limit.room < 2
    return {**vars(limit), "at": _at(limit), "unsettled": why, "beyond": limit.room if soon else None}


def _at(limit: Bottleneck) -> str | None:
    if limit.level is None:
        return None
    if limit.burst:
        return f"In a burst of {limit.level:g}"
    return f"At {limit.level:g}" if limit.unit is None else f"At {load_text(limit.level, limit.unit)}"

"""Why a curve carries no more, and what would raise it, in words."""

from __future__ import annotations

from typing import assert_never

from bench.analysis.evidence import (
    Alone,
    At,
    Bottleneck,
    Evidence,
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
from bench.errors import shown, shown_share
from bench.records.latencies import LATENCIES
from bench.words.capacity import unsettled_at, unsettled_text
from bench.words.loads import load_text, time_text

__all__ = ["held_text", "remedy", "why"]

_FASTER_PREFILL = "More arithmetic (a faster device, or more of them), shorter prompts, or prefixes that the cache serves."
_FASTER_DEVICE = "A faster device, or more of them."
_FASTER_ALONE = "More memory bandwidth (a faster device, or more of them), or smaller weights."
_FASTER_DECODE = "More memory bandwidth (a faster device, or more of them), smaller weights, or fewer requests in a step."


def why(limit: Bottleneck) -> str:
    """Why it carries no more, a sentence or two; empty where nothing was judged."""
    return "" if limit.evidence is None else _why(limit, limit.evidence)


def _why(limit: Bottleneck, found: Evidence) -> str:  # noqa: PLR0912 - a sentence for each kind of evidence
    match found:
        case NeverSteady():
            return f"Nothing can be said of the limit: {unsettled_text(found.unsettled)}."
        case SteadyMeets():
            return f"No load that became steady misses. {unsettled_at(found.level, unsettled_text(found.unsettled))}"
        case HighestLevel():
            return f"No measured load misses: {found.level:g} is the highest level."
        case Silent():
            return f"{_at(found.at)} it misses; {_silent(found)}, so why is not known."
        case Alone():
            latency = LATENCIES[found.metric].title
            return (
                f"One request alone is too slow: its {latency} is {time_text(found.value_s)}, and "
                f"{time_text(found.limit_s)} are allowed."
            )
        case Failures():
            most = f", with {found.in_flight:.3g} in flight in the mean" if found.in_flight is not None else ""
            said = f": {shown(found.said, 160)}" if found.said else ""
            what = "breaks off or fails" if found.broken else "refuses or fails"
            return f"{_at(found.at)} the server {what} {found.failed:,} of {found.requests:,} requests{most}{said}."
        case FullCache():
            return f"{_at(found.at)} the KV cache is full."
        case Slots():
            return f"{_at(found.at)} all {found.slots} sequences of max_num_seqs run, and requests wait."
        case Prompts():
            return f"{_at(found.at)} prompts wait for one another's arithmetic."
        case SlowAnswers():
            return f"{_at(found.at)} answers take too long; a burst does not show why."
        case Preemptions():
            return (
                f"{_at(found.at)} the KV cache is full: {found.per_request:.2g} preemptions a request throw work away that is done "
                "again."
            )
        case UnknownLatency():
            return f"{_at(found.at)} {LATENCIES[found.metric].title} is missed; what it consists of, and so why, is not known."
        case UnknownStep():
            return f"{_at(found.at)} TPOT is missed; the time of a step is not known."
        case Gaps():
            what = (
                "prompts of other requests are computed between a request's tokens"
                if limit.cause == "interference"
                else "decoding is too slow"
            )
            return (
                f"{_at(found.at)} {what}: a step takes {1000 * found.step_s:.3g} ms, and prompts of other requests add "
                f"{1000 * found.others_s:.3g} ms to it in the mean."
            )
        case HeldByCache() | HeldBySlots():
            return f"{_held(found)}."
        case FullSteps():
            text = "although sequences and KV cache have room: prompts fill the tokens of each step"
            return f"{_at(found.at)}, {_wait(found.waiting)}, {text}."
        case Steps():
            return f"{held_text(found.held)}{_at(found.at)} {_steps(limit, found)}."
    assert_never(found)


def _silent(found: Silent) -> str:
    if not found.read:
        return "the server's metrics were not read"
    if not found.whole:
        return "the server's metrics have gaps"
    if not found.queue and not found.usage:
        return "the server reports neither its queue nor its KV usage"
    return f"the server does not report its {'KV usage' if found.queue else 'queue'}"


def _steps(limit: Bottleneck, found: Steps) -> str:
    if found.prefill_share is None:
        return "it takes too long; the engine's steps cannot be separated"
    prompts = f"prompts take {shown_share(found.prefill_share)} of the time of the engine's steps"
    if limit.cause == "prefill":
        return f"requests wait for the arithmetic of prompts: {prompts}"
    return f"steps take too long: {prompts}, decoding the rest"


def held_text(held: Held | None) -> str:
    """What holds requests back, and that lifting it would bring little; empty where nothing does."""
    if held is None:
        return ""
    more = "more room" if isinstance(held, HeldByCache) else "more"
    return f"{_held(held)}, but {more} would raise the rate by a factor of {held.gain:.2g} only. "


def _held(held: Held) -> str:
    wait = _wait(held.waiting)
    if isinstance(held, HeldByCache):
        short = held.free_tokens is not None and held.prompt_tokens is not None
        left = f": {held.free_tokens:,.0f} tokens are free where a prompt takes {held.prompt_tokens:,.0f}" if short else ""
        return f"{_at(held.at)} the KV cache admits no more{left}; {wait}"
    run = (
        f"all {held.slots} sequences of max_num_seqs run"
        if held.slots is not None
        else f"never more than {held.running:.0f} requests run"
    )
    return f"{_at(held.at)} {run}, and {wait}"


def _wait(waiting: int) -> str:
    return f"{waiting} request{'s wait' if waiting != 1 else ' waits'} in the mean"


def _at(at: At) -> str:
    if at.burst:
        return f"In a burst of {at.level:g}"
    return f"At {at.level:g}" if at.unit is None else f"At {load_text(at.level, at.unit)}"


def remedy(limit: Bottleneck) -> str:
    """What would raise it, a sentence or two; empty where nothing follows."""
    match limit.evidence:
        case HeldByCache() as held:
            return _more_kv(held.request_bytes) + _next(held.room)
        case FullCache() | Preemptions() as full:
            return _more_kv(full.request_bytes)
        case Failures(broken=True):
            return (
                "Look into the log of the server, and of what stands before it: requests were taken, and their answers failed."
            )
        case HeldBySlots() as held:
            return f"Raise max_num_seqs, as far as the KV cache holds.{_next(held.room)}"
        case Slots():
            return "Raise max_num_seqs, as far as the KV cache holds."
        case Alone():
            return {"prefill": _FASTER_PREFILL, "decode": _FASTER_ALONE}.get(limit.cause, _FASTER_DEVICE)
    match limit.cause:
        case "none":
            return "Measure higher levels to find the limit."
        case "refusals":
            return "Raise the limit of the server or of the gateway in front of it, or send less."
        case "interference":
            return (
                "Compute smaller chunks of prompts in a step (vLLM's max-num-batched-tokens, llama.cpp's ubatch-size), or separate "
                "prefill from decode, each on machines of its own."
            )
        case "prefill":
            return _FASTER_PREFILL
        case "decode":
            return _FASTER_DECODE
    return ""


def _more_kv(request_bytes: float | None) -> str:
    """What would make room."""
    one = f": {request_bytes / 2**20:.3g} MiB hold one request more" if request_bytes is not None else ""
    return f"More KV memory{one}. A KV type of half the bytes, or a model with half the KV bytes a token, holds twice as many."


def _next(room: float) -> str:
    """What bounds it soon after. Args: room: the factor by which more room would raise the rate."""
    return f" Beyond about {room:.2g} times this rate the engine's speed is the limit." if 1 < room < 2 else ""

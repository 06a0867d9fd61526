"""Recommendations in words, and whom each is for."""

from __future__ import annotations

import math
from typing import Any, cast

from bench.analysis.advice import Advice, Recommendation
from bench.words.capacity import misses_text
from bench.words.causes import relief
from bench.words.loads import load_text
from bench.words.templates import filled

#: For whom, and what.
TEXTS: dict[Recommendation, tuple[str, str]] = {
    "kv_bytes": (
        "Developers",
        "KV bytes per token, not parameters, decide how many requests fit: the KV cache of {other} is full at {other_requests:g} "
        "requests of {workload}, that of {deployment}, with {parameters:.2g} times the parameters, at {requests:g}. Both have "
        "{kv_bytes:size} of KV memory; a token takes {other_token_bytes:,} and {token_bytes:,} bytes of it.",
    ),
    "pools": (
        "System architects",
        "Give each type of workload a pool of its own: within its SLOs one {deployment} sustains, in requests/s, {carried}. A mixed "
        "pool is sized by the heaviest.",
    ),
    "front_end": (
        "System architects",
        "Not the engine of {deployment} limits {workload} but what lies between it and its clients, such as the API server: at "
        "{level} the engine makes a token of each request every {server_s:ms}, and clients get one every {client_s:ms}[; its GPUs "
        "are in use for {busy:share} of the time]. More processes of the API server (vLLM: `--api-server-count`) may let it give "
        "more than {tokens:,.0f} tokens/s.",
    ),
    "admission": (
        "Providers",
        "Admit at most {operate_at}[ (C_max is {c_max:g}, but sustains hardly more)] on an instance of {deployment} ({workload}), and "
        "add instances beyond: at {missed_at} it {misses}.",
    ),
    "headroom": (
        "Providers",
        "{range} requests of {workload} in flight leave 10 to 15 % of the KV cache of {deployment} free, for longer requests. It is "
        "full at {full:g} and was not at {below:g}.",
    ),
    "memory_bound": (
        "Hardware makers",
        "The KV cache ends what {deployment} sustains ({workload})[: {relief}]. Pooled memory, or a cheaper tier of it, would let it "
        "sustain more.",
    ),
    "interference": (
        "Hardware makers",
        "Prompts of other requests, computed between a request's tokens, end what {deployment} sustains ({workload}): {relief}. "
        "Prefill and decode on accelerators of their own would not disturb each other.",
    ),
    "eviction": (
        "Hardware makers",
        "Tiered KV memory would keep shared prefixes: in {workload} on {deployment} the prefix cache serves {low_rate:share} of the "
        "prompts' tokens at {low} and {high_rate:share} at {high}, where it is full.",
    ),
}

_LOADS = ("level", "operate_at", "missed_at", "low", "high")  # of the numbers those that are loads


def role(advice: Advice) -> str:
    """`Developers`, `System architects`, `Providers` or `Hardware makers`."""
    return TEXTS[advice.kind][0]


def sentence(advice: Advice) -> str:
    """A recommendation with its numbers."""
    numbers = cast("dict[str, Any]", dict(advice.numbers))
    if unit := numbers.get("unit"):
        numbers |= {name: load_text(numbers[name], unit) for name in _LOADS if name in numbers}
    match advice.kind:
        case "pools":
            carried = (f"{'at least ' * each.at_least}{each.rps:.3g} of {each.workload}" for each in advice.carried)
            numbers["carried"] = ", ".join(carried)
        case "admission":
            numbers["misses"] = misses_text(advice.missed)
        case "headroom":
            numbers["range"] = _range(numbers["fewest"], numbers["most"])
        case "memory_bound" | "interference":
            numbers["relief"] = relief(advice.gain) if advice.gain else None
    return filled(TEXTS[advice.kind][1], numbers)


def _range(low: float, high: float) -> str:
    """The whole requests between two bounds, such as `13 to 14`; where there is none, the next below."""
    least, most = math.ceil(low), math.floor(high)
    return f"{least} to {most}" if least < most else f"{most}"

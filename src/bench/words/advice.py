"""Recommendations in words, each with whom it is for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from bench.analysis.advice import Advice
from bench.words.answer import Answer
from bench.words.loads import load_text
from bench.words.templates import filled

TEXTS = {
    "kv_bytes": "For developers: KV bytes per token, not parameters, decide how many requests fit: the KV cache of {other} is full at "
    "{other_requests:g} requests of {workload}, that of {deployment}, with {parameters:.2g} times the parameters, at {requests:g}. "
    "Both have {kv_bytes:size} of KV memory; a token takes {other_token_bytes:,} and {token_bytes:,} bytes of it.",
    "pools": "For system architects: give each type of workload a pool of its own: within its SLOs one {deployment} sustains, in "
    "requests/s, {carried}. A mixed pool is sized by the heaviest.",
    "front_end": "For system architects: not the engine of {deployment} limits {workload} but what lies between it and its clients, "
    "such as the API server: at {level} the engine makes a token of each request every {server_s:ms}, and clients get one every "
    "{client_s:ms}[; its GPUs are in use for {busy:share} of the time]. More processes of the API server (vLLM: "
    "`--api-server-count`) may let it give more than {tokens:,.0f} tokens/s.",
    "eviction": "For hardware makers: tiered KV memory would keep shared prefixes: in {workload} on {deployment} the prefix cache "
    "serves {low_rate:share} of the prompts' tokens at {low} and {high_rate:share} at {high}, where it is full.",
}

_LOADS = ("level", "low", "high")  # of the numbers those that are loads


def answer(found: Sequence[Advice]) -> Answer:
    """What the runs advise beyond what would raise each limit."""
    return Answer("advice", "What else follows from these runs?", tuple(map(sentence, found)))


def sentence(advice: Advice) -> str:
    """A recommendation with its numbers."""
    numbers = cast("dict[str, Any]", dict(advice.numbers))
    if unit := numbers.get("unit"):
        numbers |= {name: load_text(numbers[name], unit) for name in _LOADS if name in numbers}
    if advice.carried:
        numbers["carried"] = ", ".join(f"{rps:.3g} of {workload}" for workload, rps in advice.carried.items())
    return filled(TEXTS[advice.kind], numbers)

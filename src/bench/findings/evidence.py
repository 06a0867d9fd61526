"""What a cause rests on: a code for what a load shows, and its numbers; by code the cause, a sentence, and what would raise the limit.

Sentences take the numbers of a `Bottleneck` (`bench.findings.causes` fills them in).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from bench.predict.relief_record import Gain

Cause = Literal["kv", "sequences", "prefill", "decode", "interference", "refusals", "none", "unknown"]
_FASTER = "a faster device, or more of them"


@dataclass(frozen=True)
class Resource:
    """What of a server may be short.

    Attributes:
        reason: why it sustains no more. short: the same in a title. relief: what a replay gives it. remedy: what would raise it.
    """

    reason: str
    short: str
    relief: str
    remedy: str


RESOURCES = {
    "kv": Resource(
        "the KV cache holds too few requests",
        "a full KV cache",
        "with four times the KV memory",
        "more KV memory[ (a request takes {request_bytes:size})], pooled or of a cheaper tier too, or half the KV bytes a "
        "token (KV type "
        "or model)",
    ),
    "sequences": Resource(
        "max_num_seqs[ ({slots})] lets too few sequences run",
        "max_num_seqs",
        "without a bound on sequences",
        "a higher max_num_seqs, as far as the KV cache holds",
    ),
    "prefill": Resource(
        "prompts take too long to compute",
        "prefill",
        "with prompts computed twice as fast",
        f"more compute ({_FASTER}), shorter prompts, or prefixes that the cache serves",
    ),
    "decode": Resource(
        "steps take too long",
        "the time of steps",
        "with steps twice as fast",
        f"more memory bandwidth ({_FASTER}), smaller weights, or fewer requests in a step",
    ),
    "interference": Resource(
        "prompts of other requests are computed between a request's tokens",
        "prefill between tokens",
        "with prompts computed elsewhere",
        "smaller chunks of prompts in a step (vLLM's max-num-batched-tokens, llama.cpp's ubatch-size), or prefill on machines "
        "of its own",
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
#: By code, in the order in which `bench.findings.causes` looks for them. `at` is said where not the first load that misses shows it.
RULES = {
    "never_steady": Rule("unknown", "the limit is not known: {unsettled}"),
    "steady_meets": Rule("unknown", "no load that became steady misses; the upper end is not known[: {at}, {unsettled}]"),
    "highest_level": Rule("none", "", "measure higher loads to find the limit"),
    "refused": Rule(
        "refusals",
        f"[{{at}}, ]the server refuses or fails {_FAILED}",
        "a higher limit of the server or of the gateway in front of it, or send less",
    ),
    "broken": Rule(
        "refusals",
        f"[{{at}}, ]the server breaks off or fails {_FAILED}",
        "see the log of the server and of the gateway in front of it: it accepted requests, and their answers failed",
    ),
    "few_failures": Rule(
        "unknown",
        "[{at}, ]{failed:,} of {requests:,} requests fail, and without these it would not miss; the cause is not known: too "
        "few fail to "
        "show whether failures grow with the load",
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
    "metrics_unread": Rule("unknown", "[{at}, ]not known: the server's metrics were not read"),
    "metrics_gaps": Rule("unknown", "[{at}, ]not known: the server's metrics have gaps"),
    "no_gauges": Rule("unknown", "[{at}, ]not known: the server does not report both its queue and its KV usage"),
    "full_cache": Rule(
        "kv",
        "[{at}, ]the KV cache is full[: {per_request:.2g} preemptions a request discard work, which is then repeated]"
        "[: {free_tokens:,.0f} tokens are free, and a prompt takes {prompt_tokens:,.0f}][; {waiting:wait} on average]",
    ),
    "slots": Rule(
        "sequences", "[{at}, ]all {slots} sequences of max_num_seqs run, and requests wait[: {waiting:,} on average]"
    ),
    "pinned": Rule("sequences", "[{at}, ]never more than {running:.0f} requests run, and {waiting:wait} on average"),
    "prompts": Rule("prefill", "[{at}, ]requests wait for the prefill of others"),
    "slow_answers": Rule("unknown", "[{at}, ]not known: a burst does not show why answers take too long"),
    "nothing_full": Rule("unknown", "[{at}, ]not known: sequences and KV cache have room, and {unknown}"),
}


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What ends a curve's operating range: a row of `causes.parquet` (docs/reference/analysis.md has each column's meaning and unit).

    Attributes:
        evidence: what shows it, a key of `RULES`; None where nothing was judged. runs: those that show it. gains: what more of each
            resource would bring, the most first; tied: how many of the first are causes alike. no_model: why no replays say more.
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

    @property
    def cause(self) -> Cause:
        """`kv` (the KV cache admits no more), `sequences` (max_num_seqs does not), `prefill` (prompts wait for arithmetic), `decode`
        (steps take too long), `interference` (others' prompts are computed between a request's tokens), `refusals` (the server refuses
        or fails), `none` (no measured load misses) or `unknown`.
        """
        if self.evidence == "relieved":
            return cast("Cause", self.gains[0].resource)
        return "unknown" if self.evidence is None else RULES[self.evidence].cause

"""What a cause rests on: a code for what a load shows, and its numbers. `bench.words.causes` has a sentence for each code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CAUSES", "Bottleneck", "Cause", "Evidence"]

Cause = Literal["kv", "sequences", "prefill", "decode", "interference", "refusals", "none", "unknown"]
Evidence = Literal[
    "never_steady",
    "steady_meets",
    "highest_level",
    "metrics_unread",
    "metrics_gaps",
    "no_gauges",
    "no_queue",
    "no_usage",
    "refused",
    "broken",
    "alone_prefill",
    "alone_decode",
    "alone",
    "full_cache",
    "slots",
    "prompts",
    "slow_answers",
    "preemptions",
    "unknown_latency",
    "unknown_step",
    "others_prompts",
    "slow_steps",
    "held_by_cache",
    "held_by_slots",
    "pinned",
    "full_steps",
    "prefill_steps",
    "decode_steps",
    "unknown_steps",
]
#: The cause that each kind of evidence shows; of all others it is not known.
CAUSES: dict[Evidence, Cause] = {
    "highest_level": "none",
    "refused": "refusals",
    "broken": "refusals",
    "alone_prefill": "prefill",
    "alone_decode": "decode",
    "full_cache": "kv",
    "slots": "sequences",
    "prompts": "prefill",
    "preemptions": "kv",
    "others_prompts": "interference",
    "slow_steps": "decode",
    "held_by_cache": "kv",
    "held_by_slots": "sequences",
    "pinned": "sequences",
    "full_steps": "prefill",
    "prefill_steps": "prefill",
    "decode_steps": "decode",
}


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What ends a curve's operating range: a row of `causes.parquet` (docs/reference/analysis.md has each column's meaning and unit).

    Attributes:
        evidence: what shows it; None where nothing was judged. runs: those that show it. The rest: its numbers, or None.
    """

    evidence: Evidence | None = None
    runs: tuple[str, ...] = ()
    level: float | None = None
    unit: str | None = None
    burst: bool = False
    unsettled: Literal["empty", "short"] | None = None
    needs_s: int | None = None
    failed: int | None = None
    requests: int | None = None
    in_flight: float | None = None
    said: str | None = None
    metric: str | None = None
    value_s: float | None = None
    limit_s: float | None = None
    per_request: float | None = None
    step_s: float | None = None
    others_s: float | None = None
    prefill_share: float | None = None
    slots: int | None = None
    running: float | None = None
    waiting: int | None = None
    free_tokens: float | None = None
    prompt_tokens: float | None = None
    gain: float | None = None
    room: float | None = None
    request_bytes: float | None = None
    held: Evidence | None = None
    held_level: float | None = None

    @property
    def cause(self) -> Cause:
        """`kv` (the KV cache admits no more), `sequences` (max_num_seqs does not), `prefill` (prompts wait for arithmetic), `decode`
        (steps take too long), `interference` (others' prompts are computed between a request's tokens), `refusals` (the server refuses
        or fails), `none` (no measured load misses) or `unknown`.
        """
        return "unknown" if self.evidence is None else CAUSES.get(self.evidence, "unknown")

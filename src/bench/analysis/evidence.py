"""What a cause rests on: a code for what a load shows, and its numbers. `bench.words.causes` has a sentence for each code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from bench.predict.relief_record import Gain

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
    "few_failures",
    "alone_prefill",
    "alone_decode",
    "alone",
    "full_cache",
    "slots",
    "prompts",
    "slow_answers",
    "preemptions",
    "held_by_cache",
    "held_by_slots",
    "pinned",
    "relieved",
    "nothing_full",
]
#: The cause that each kind of evidence shows; of `relieved` it is what brings most, and of all others it is not known.
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
    "held_by_cache": "kv",
    "held_by_slots": "sequences",
    "pinned": "sequences",
}


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What ends a curve's operating range: a row of `causes.parquet` (docs/reference/analysis.md has each column's meaning and unit).

    Attributes:
        evidence: what shows it; None where nothing was judged. runs: those that show it. gains: what more of each resource would bring,
            the most first; tied: how many of the first are causes alike. no_model: why no replays say more. The rest: its numbers, or
            None.
    """

    evidence: Evidence | None = None
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
        return "unknown" if self.evidence is None else CAUSES.get(self.evidence, "unknown")

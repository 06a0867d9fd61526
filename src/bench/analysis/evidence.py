"""What a cause rests on: a small record for each thing that a load can show. `bench.words.causes` has them in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from bench.analysis.judging import Unsettled

__all__ = [
    "Alone",
    "At",
    "Bottleneck",
    "Cause",
    "Evidence",
    "Failures",
    "FullCache",
    "FullSteps",
    "Gaps",
    "Held",
    "HeldByCache",
    "HeldBySlots",
    "HighestLevel",
    "NeverSteady",
    "Preemptions",
    "Prompts",
    "Silent",
    "Slots",
    "SlowAnswers",
    "SteadyMeets",
    "Steps",
    "UnknownLatency",
    "UnknownStep",
]

Cause = Literal["kv", "sequences", "prefill", "decode", "interference", "refusals", "none", "unknown"]


@dataclass(frozen=True)
class At:
    """The load at which something shows: a level, in `unit` where that has to be said; or a burst of so many requests."""

    level: float
    unit: str | None = None
    burst: bool = False


@dataclass(frozen=True)
class NeverSteady:
    """No run that could be judged."""

    unsettled: Unsettled


@dataclass(frozen=True)
class SteadyMeets:
    """Every level that became steady meets the SLOs; the one at `level`, above them, did not become so."""

    level: float
    unsettled: Unsettled


@dataclass(frozen=True)
class HighestLevel:
    """Every level meets the SLOs, up to `level`."""

    level: float


@dataclass(frozen=True)
class Silent:
    """The server does not report what would show why: its `queue`, its KV `usage`, or both. Or its metrics were not `read`, or have
    gaps (`whole` is false).
    """

    at: At
    read: bool = True
    queue: bool = True
    usage: bool = True
    whole: bool = True


@dataclass(frozen=True)
class Alone:
    """One request by itself misses: its `metric` (a name in `LATENCIES`) takes `value_s`, and `limit_s` is allowed."""

    at: At
    metric: str
    value_s: float
    limit_s: float


@dataclass(frozen=True)
class Failures:
    """Requests that failed, of all; `in_flight` in the mean, None where it is not known. `broken`: whether most of them began and broke
    off, or failed in the server, so that no limit refused them; `said`: what was said most often.
    """

    at: At
    failed: int
    requests: int
    in_flight: float | None
    broken: bool = False
    said: str | None = None


@dataclass(frozen=True)
class FullCache:
    """A burst that fills the KV cache; `request_bytes` of it would hold one request more, None where that is not known."""

    at: At
    request_bytes: float | None


@dataclass(frozen=True)
class Slots:
    """A burst of which `slots` requests, all that may, run, and others wait."""

    at: At
    slots: int


@dataclass(frozen=True)
class Prompts:
    """A burst whose prompts wait for one another."""

    at: At


@dataclass(frozen=True)
class SlowAnswers:
    """A burst that misses, whose first tokens come in time."""

    at: At


@dataclass(frozen=True)
class Preemptions:
    """Preemptions a request; `request_bytes` as in `FullCache`."""

    at: At
    per_request: float
    request_bytes: float | None


@dataclass(frozen=True)
class UnknownStep:
    """TPOT is missed, and the time of a step is not known."""

    at: At


@dataclass(frozen=True)
class UnknownLatency:
    """Only SLOs on latencies without a decomposition are missed; `metric` is the first, a name in `LATENCIES`."""

    at: At
    metric: str


@dataclass(frozen=True)
class Gaps:
    """What the time between tokens consists of (s): a step without prompts, and what others' prompts add to it in the mean."""

    at: At
    step_s: float
    others_s: float


@dataclass(frozen=True)
class HeldByCache:
    """Requests that wait for KV memory.

    Attributes:
        waiting: in the mean, rounded up. free_tokens, prompt_tokens: what is left, and what a prompt takes, where that is too little.
        gain: the factor by which more memory would raise the rate. room: that by which this or more sequences would.
        request_bytes: as in `FullCache`.
    """

    at: At
    waiting: int
    free_tokens: float | None
    prompt_tokens: float | None
    gain: float
    room: float
    request_bytes: float | None


@dataclass(frozen=True)
class HeldBySlots:
    """Requests that wait for others to end.

    Attributes:
        slots: that may run, and do; None where it is not known, and never more than `running` did. waiting: in the mean, rounded up.
        gain: the factor by which more of them would raise the rate. room: that by which this or more KV memory would.
    """

    at: At
    slots: int | None
    running: float | None
    waiting: int
    gain: float
    room: float


Held: TypeAlias = HeldByCache | HeldBySlots


@dataclass(frozen=True)
class FullSteps:
    """Requests wait, `waiting` of them in the mean (rounded up), although sequences and KV cache have room."""

    at: At
    waiting: int


@dataclass(frozen=True)
class Steps:
    """The share of the steps' time that prompts take (0–1), None where not known; and what holds requests back, for little gain."""

    at: At
    prefill_share: float | None
    held: Held | None = None


Evidence: TypeAlias = (
    NeverSteady
    | SteadyMeets
    | HighestLevel
    | Silent
    | Alone
    | Failures
    | FullCache
    | Slots
    | Prompts
    | SlowAnswers
    | Preemptions
    | UnknownLatency
    | UnknownStep
    | Gaps
    | HeldByCache
    | HeldBySlots
    | FullSteps
    | Steps
)


@dataclass(frozen=True)
class Bottleneck:
    """What ends a curve's operating range.

    Attributes:
        cause: `kv` (the KV cache admits no more), `sequences` (max_num_seqs does not), `prefill` (prompts wait for arithmetic),
            `decode` (steps take too long), `interference` (others' prompts are computed between a request's tokens), `refusals` (the
            server refuses or fails), `none` (no measured load misses) or `unknown`.
        evidence: what shows it; None where nothing was judged. runs: those that carry it.
    """

    cause: Cause
    evidence: Evidence | None = None
    runs: tuple[str, ...] = ()

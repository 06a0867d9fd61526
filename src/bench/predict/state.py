"""A server while it is replayed: what its scheduler obeys, its requests, and what they hold."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from bench.predict.spent import Spent
from bench.workloads.schedule import PlannedRequest


@dataclass(frozen=True)
class Limits:
    """What a scheduler obeys.

    Attributes:
        tokens: of a step, decodes first. sequences: at once. blocks: of the KV cache, None where a slot holds all that a request may
            need; block_size: tokens of one. cached: whether prompt tokens that an earlier request had are not computed again.
        pass_tokens: that go through the layers together at most, on slots side by side (llama.cpp); None where a step does as a whole.
        ahead: whether a step is scheduled when the one before it begins (vLLM's asynchronous scheduling): it has no request that came
            since, and what ends with the one before it still has its place and its blocks.
        settled: whether `ahead` is: a flag says it, or runs were asked. Else runs may show the opposite.

    Source: vLLM V1's scheduler: running requests first, then those that wait, in their order; a prompt is admitted when blocks for
    all of it are free, and computed in chunks where the step's budget is short of it; where a running request finds no block, the one
    that was admitted last gives up its own and waits in front. One block of the pool is never given out. Ahead: `AsyncScheduler` and
    `EngineCore.step_with_batch_queue` of vLLM 0.32.
    """

    tokens: int
    sequences: int
    blocks: int | None
    block_size: int = 1
    cached: bool = False
    pass_tokens: int | None = None
    ahead: bool = False
    settled: bool = field(default=False, compare=False)


@dataclass
class Request:
    """A request on its way through the server. Times are seconds of the replay; NaN until they come."""

    plan: PlannedRequest
    sent: float
    came: float = 0.0  # to the queue
    left: int = 0  # prompt tokens to be computed
    start: int = 0  # of them, where the next chunk begins
    done: int = 0  # output tokens
    base: int = 0  # tokens held − steps so far, while it decodes
    ends: int = 0  # step with its last token
    blocks: int = 0  # that it has, where they are counted
    held: list[int] = field(default_factory=list)  # those that it has, where a prefix cache tells them apart
    admitted: float = math.nan
    first: float = math.nan
    last: float = math.nan  # its last token before it was preempted
    end: float = math.nan
    preemptions: int = 0
    spent: Spent = field(init=False)
    order: int = 0  # in which it was admitted, for the last time

    def __post_init__(self) -> None:
        self.spent = Spent(self.sent)


@dataclass
class State:
    """A server while it is replayed.

    Attributes:
        steps: so far. context: tokens that the decodes hold. admissions: so far. ends: of decodes, as (step, order of
            admission, index), also of requests that have been preempted since. phases: decodes by the step,
            modulo the block size, in which they need a block. leaving: requests that are answered, and whose places the next step's
            schedule, made ahead, does not have yet. prompts_s: that prompts have added to the steps.
    """

    now: float = 0.0
    steps: int = 0
    context: int = 0
    admissions: int = 0
    waiting: deque[Request] = field(default_factory=deque)
    running: dict[int, Request] = field(default_factory=dict)  # in order of admission
    prefilling: list[Request] = field(default_factory=list)
    decodes: int = 0
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    phases: list[int] = field(default_factory=list)
    leaving: list[Request] = field(default_factory=list)
    prompts_s: float = 0.0

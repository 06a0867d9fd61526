"""A server whose steps take a known time: the scheduler of continuous batching, step by step where prompts are computed, in jumps where
nothing changes but the length of what is decoded.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.predict.limits import Limits
from bench.predict.passes import cells, context_read, passes_of
from bench.predict.step_time import Floats, StepTime
from bench.workloads.pool import pool_of
from bench.workloads.schedule import PlannedRequest

Chunks = Sequence[tuple["Request", int]]  # of prompts, with the tokens that are computed of each


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
    order: int = 0  # in which it was admitted, for the last time


@dataclass(slots=True)
class _Steps:
    """Steps under way, all alike but for the length of what is decoded.

    Attributes:
        began: when (s). number: of them. first: what the first takes (s). further: by how much longer each one is than that before
            (s). stray: ln by which a single one strays from that. chunks: of prompts, in a single one.
    """

    began: float
    number: int
    first: float
    further: float = 0.0
    stray: float = 0.0
    chunks: Chunks = ()

    @property
    def _stretched(self) -> float:
        return math.exp(self.stray / math.sqrt(self.number)) if self.stray else 1.0

    def until(self, number: int) -> float:
        """When so many of them have ended (s)."""
        return self.began + self._stretched * (number * self.first + self.further * number * (number - 1) / 2)

    def cut(self, moment: float) -> None:
        """Keep as many of them as have begun by a moment."""
        self.number = 1 + bisect_left(range(1, self.number), moment, key=self.until)


class TokenGaps:
    """What the steps of a replay took, and how many requests each gave a token that is not their first: the gaps between tokens."""

    def __init__(self) -> None:
        self._steps: array[float] = array("d")  # requests; steps, the first, how much longer a further one (s)
        self._apart: array[float] = array("d")

    def add(self, requests: int, steps: _Steps) -> None:
        """Note steps that are alike. Args: requests: that each gives a token."""
        self._steps.extend((requests, steps.number, steps.first, steps.further))

    def add_gap(self, seconds: float) -> None:
        """Note the gap of a request that was preempted."""
        self._apart.append(seconds)

    def percentile(self, share: float, strays: Floats | None = None, seed: int = 1) -> float | None:
        """The gap that a share (0–1) of them do not exceed (s), by nearest rank; None where there is none.

        Args:
            strays: ln of a step's time ÷ the usual one, of which each step gets one at random.
        """
        rows, apart = np.array(self._steps).reshape(-1, 4), np.array(self._apart)
        number = rows[:, 1].astype(int)
        of = np.repeat(np.arange(len(number)), number)
        seconds = rows[of, 2] + rows[of, 3] * (np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number))
        if strays is not None:
            seconds *= np.exp(np.random.default_rng(seed).choice(strays, len(of)))
        seconds, count = np.concatenate([seconds, apart]), np.concatenate([rows[of, 0], np.ones(len(apart))])
        if not len(seconds):
            return None
        order = np.argsort(seconds)
        upto = np.cumsum(count[order])
        return float(seconds[order][np.searchsorted(upto, math.ceil(share * upto[-1]))])


@dataclass
class Seen:
    """What a server has seen: requests at once, tokens of one request, and of a step, at most; prompt tokens that its prefix cache
    served; the requests that can never fit, by their indices; and the gaps between its tokens.
    """

    running: int = 0
    context: int = 0
    tokens: int = 0
    cached: int = 0
    refused: list[int] = field(default_factory=list)
    gaps: TokenGaps = field(default_factory=TokenGaps)

    @classmethod
    def by_all(cls, servers: Sequence[Seen]) -> Seen:
        """What several servers have seen, but for the gaps."""
        running, context, tokens = (max(getattr(each, name) for each in servers) for name in ("running", "context", "tokens"))
        refused = [index for each in servers for index in each.refused]
        return cls(running, context, tokens, sum(each.cached for each in servers), refused)


class ReplayedServer:
    """A server that is replayed.

    `offer` a request, `begin` the next steps, and `finish` them when their time has come.
    """

    def __init__(
        self, limits: Limits, step: StepTime, *, now: float = 0.0, wake_s: float = 0.0, noise: float = 0.0, seed: int = 1
    ) -> None:
        """Args: now: its clock (s). wake_s: of a step that finds it idle, more. noise: standard deviation of ln time of one."""
        self._limits, self._step_time, self._wake_s, self._noise = limits, step, wake_s, noise
        self._random, self._strays = np.random.default_rng(seed), list[float]()
        self.now = now  # its clock: the end of the last step (s)
        self._waiting = deque[Request]()
        self._running = dict[int, Request]()  # in order of admission
        self._prefilling = list[Request]()
        self._leaving = list[Request]()  # answered, but their places the next step's schedule, made ahead, does not have yet
        self._steps = self._admissions = self._decodes = 0
        self._context = 0  # tokens that the decodes hold
        # Of decodes, as (step, order of admission, index), also of requests that have been preempted since.
        self._last_steps = list[tuple[int, int, int]]()
        self._phases = [0] * limits.block_size  # decodes by the step, modulo the block size, in which they need a block
        self._pool = pool_of(limits.blocks, limits.block_size, limits.sequences, cached=limits.cached)
        self._begun: _Steps | None = None
        self._idle = True
        self._scheduled = now  # when the next step was, where that is ahead
        self._ended: list[Request] = []
        self.seen = Seen()

    @property
    def busy(self) -> bool:
        """Whether it has a request."""
        return bool(self._running or self._waiting)

    @property
    def ends(self) -> float | None:
        """When the steps under way end (s); None where none are."""
        return self._begun.until(self._begun.number) if self._begun else None

    @property
    def in_flight(self) -> int:
        """Requests that it has, running or waiting."""
        return len(self._running) + len(self._waiting)

    def prime(self, tokens: int) -> None:
        """Compute what all prompts begin with before they come."""
        self._pool.prime(tokens)

    def wait_until(self, moment: float) -> None:
        """Let time pass in which there is nothing to do."""
        if moment > self.now:
            self.now, self._idle = moment, True
            self._settle(moment)

    def offer(self, plan: PlannedRequest, sent: float, came: float) -> bool:
        """Take a request; False where it can never fit, and is refused. Steps under way are cut short if it could be admitted.

        Args:
            sent: by the client (s). came: here.
        """
        request, limits = Request(plan, sent, came), self._limits
        if limits.blocks is not None and -(-(plan.prompt_tokens + plan.output_tokens) // limits.block_size) > limits.blocks - 1:
            self.seen.refused.append(plan.index)
            return False
        first = not self._waiting
        self._waiting.append(request)
        if self._begun is None:
            self.wait_until(came)
        elif not self._begun.chunks and first and len(self._running) < limits.sequences:
            self._begun.cut(came)
        return True

    def begin(self) -> None:
        """Begin a step with prompts in it, or as many steps without as nothing else changes."""
        idle, self._idle = self._idle, False
        while not (chunks := self._schedule()) and not self._decodes and (self._leaving or self._scheduled < self.now):
            self._settle(self.now)  # a step of nothing takes no time
        if chunks:
            self.seen.tokens = max(self.seen.tokens, self._decodes + sum(tokens for _, tokens in chunks))
            seconds = self._seconds(chunks) + (self._wake_s if idle else 0.0)
            self._begun = _Steps(self.now, 1, seconds, stray=self._stray(), chunks=chunks)
        else:
            self._begun = self._jump()

    def _schedule(self) -> list[tuple[Request, int]]:
        limits = self._limits
        full = False
        if limits.blocks is not None:
            full = self._make_room()
            self._take_blocks(self._steps, 1)
        budget, places = limits.tokens - self._decodes, limits.sequences - len(self._leaving)
        chunks: list[tuple[Request, int]] = []
        for request in self._prefilling:
            if budget <= 0:
                break
            chunks.append((request, min(request.left, budget)))
            budget -= chunks[-1][1]
        while self._waiting and budget > 0 and len(self._running) < places and not full:
            request = self._waiting[0]
            if self._late(request) or not self._pool.admit(request, request.plan.prompt_tokens + request.done):
                break
            self._waiting.popleft()
            self._admissions += 1
            request.order = self._admissions
            if math.isnan(request.admitted):
                self.seen.cached += request.start
                request.admitted = self.now
            self._running[request.plan.index] = request
            self._prefilling.append(request)
            chunks.append((request, min(request.left, budget)))
            budget -= chunks[-1][1]
        self.seen.running = max(self.seen.running, len(self._running))
        return chunks

    def _late(self, request: Request) -> bool:
        return self._limits.ahead and request.came > self._scheduled

    def _settle(self, scheduled: float) -> None:
        """Begin the schedule of another step, in which those that have left have no place. Args: scheduled: when (s)."""
        self._scheduled = scheduled
        for request in self._leaving:
            self._release(request)
        self._leaving.clear()

    def finish(self) -> list[Request]:
        """End the steps under way; returns the requests that ended with them."""
        begun, self._begun = self._begun, None
        if begun is None:
            raise AssertionError("no step is under way")
        self._ended = []
        if self._limits.blocks is not None:
            self._take_blocks(self._steps + 1, begun.number - 1)
        self.now = begun.until(begun.number)
        self._steps += begun.number
        if self._limits.ahead:
            self._settle(begun.until(begun.number - 1))
        if self._decodes:
            self.seen.gaps.add(self._decodes, begun)
        self._context += begun.number * self._decodes
        self._end_those_that_are_done()
        if begun.chunks:
            self._computed(begun.chunks)
        return self._ended

    def _computed(self, chunks: Chunks) -> None:
        finished = [request for request, tokens in chunks if tokens == request.left]
        for request, tokens in chunks:
            request.left -= tokens
            request.start += tokens
        self._prefilling = [request for request in self._prefilling if request.left]
        for request in finished:
            request.done += 1
            if math.isnan(request.first):
                request.first = self.now
            else:
                self.seen.gaps.add_gap(self.now - request.last)
            self.seen.context = max(self.seen.context, request.plan.prompt_tokens + request.plan.output_tokens)
            self._decode(request)

    def _decode(self, request: Request) -> None:
        """Let a request whose prompt is computed go on; its first token (or the one after a preemption) is there."""
        left = request.plan.output_tokens - request.done
        if left <= 0:
            self._end(request)
            return
        request.ends = self._steps + left
        request.base = request.start - self._steps
        self._decodes += 1
        self._context += request.start
        self._phases[-request.base % self._limits.block_size] += 1
        heapq.heappush(self._last_steps, (request.ends, request.order, request.plan.index))

    def _jump(self) -> _Steps:
        """Steps until a request ends, a block is missing, or another request may be admitted."""
        first = self._next_to_end()
        if first is None:  # nothing runs and nothing can be admitted: impossible, as what never fits is refused
            raise AssertionError("a replay stands still")
        steps, slope = max(1, first.ends - self._steps), self._step_time.bare * self._step_time.context_s * self._decodes
        if self._limits.blocks is not None:
            steps = min(steps, self._until_a_block_is_missing())
        if self._limits.pass_tokens is not None:  # a step of slots reads whole cells
            steps, slope = min(steps, *(cells(held + 1) - held for held in self._held())), 0.0
        if self._leaving or (self._waiting and self._late(self._waiting[0])):
            steps = 1  # the step after this one may have what this one has not
        self.seen.tokens = max(self.seen.tokens, self._decodes)
        return _Steps(self.now, steps, self._seconds(()), slope, self._stray())

    def _stray(self) -> float:
        if self._noise and not self._strays:  # drawn many at a time
            self._strays = (self._noise * self._random.standard_normal(4096)).tolist()
        return self._strays.pop() if self._noise else 0.0

    def _seconds(self, chunks: Chunks) -> float:
        """Time of one step (s)."""
        step = self._step_time
        if step.bare == step.prompts:
            return step.bare * self._whole(chunks)
        bare = self._whole(())
        return step.bare * bare + step.prompts * (self._whole(chunks) - bare)

    def _whole(self, chunks: Chunks) -> float:
        limits = self._limits
        prefill, firsts, attended = 0, 0, 0.0
        for request, tokens in chunks:
            prefill += tokens
            firsts += tokens == request.left
            attended += tokens * (request.start + tokens / 2)
        slots = limits.pass_tokens is not None
        return self._step_time.seconds(
            decodes=self._decodes,
            firsts=firsts,
            prefill=prefill,
            context=context_read(limits, self._held()) if slots else self._context,
            attended=attended,
            passes=passes_of(limits, self._decodes, len(chunks), prefill) if slots else None,
        )

    def _held(self) -> list[int]:
        """Tokens that each decode holds."""
        return [request.base + self._steps for request in self._running.values() if not request.left]

    def _next_to_end(self) -> Request | None:
        """Of the requests that decode, the one that ends first."""
        while self._last_steps:
            _, order, index = self._last_steps[0]
            request = self._running.get(index)
            if request is not None and request.order == order:
                return request
            heapq.heappop(self._last_steps)
        return None

    def _end_those_that_are_done(self) -> None:
        while (request := self._next_to_end()) and request.ends <= self._steps:
            heapq.heappop(self._last_steps)
            self._leave_decodes(request)
            request.done = request.plan.output_tokens
            self._end(request)

    def _leave_decodes(self, request: Request) -> None:
        self._decodes -= 1
        self._context -= request.base + self._steps
        self._phases[-request.base % self._limits.block_size] -= 1

    def _end(self, request: Request) -> None:
        del self._running[request.plan.index]
        if self._limits.ahead:
            self._leaving.append(request)
        else:
            self._release(request)
        request.end = self.now
        self._ended.append(request)

    def _release(self, request: Request) -> None:
        self._pool.release(request, request.plan.prompt_tokens + request.plan.output_tokens - 1)

    # Blocks

    def _make_room(self) -> bool:
        """Preempt the requests admitted last, where decodes need more blocks in the next step than are free; whether it did."""
        full = False
        while self._phases[self._steps % self._limits.block_size] > self._pool.free:
            full = True
            index, request = next(reversed(self._running.items()))
            if self._leaving and (last := max(self._leaving, key=lambda each: each.order)).order > request.order:
                self._leaving.remove(last)
                last.preemptions += 1
                self._release(last)
                continue
            del self._running[index]
            computed = request.start
            if request in self._prefilling:
                self._prefilling.remove(request)
            else:
                self._leave_decodes(request)
                request.done = request.plan.output_tokens - (request.ends - self._steps)
                request.last = self.now
                computed = request.base + self._steps
            self._pool.release(request, computed)
            request.preemptions += 1
            self._waiting.appendleft(request)
        return full

    def _until_a_block_is_missing(self) -> int:
        """Steps for which blocks are free; takes those of the first one."""
        size, free = self._limits.block_size, int(self._pool.free)
        cycles = free // self._decodes
        left, steps = free - cycles * self._decodes, 1 + cycles * size
        for ahead in range(size):
            left -= self._phases[(self._steps + steps + ahead) % size]
            if left < 0:
                return steps + ahead
        return steps + size

    def _take_blocks(self, first: int, steps: int) -> None:
        """Give the decodes the blocks of so many steps. Args: first: number of the first one."""
        size = self._limits.block_size
        if steps < size and not any(self._phases[(first + ahead) % size] for ahead in range(steps)):
            return
        whole, rest = divmod(steps, size)
        for request in self._running.values():
            if request.left:
                continue
            phase = -request.base % size
            ahead = (phase - first) % size
            if taken := whole + (1 if ahead < rest else 0):
                self._pool.take(request, taken)

"""A server whose steps take a known time: the scheduler of continuous batching, step by step where prompts are computed, in jumps where
nothing changes but the length of what is decoded.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.predict.begun import Begun, seconds_of
from bench.predict.gaps import StepLog
from bench.predict.noise import Drawn, Noise
from bench.predict.state import Limits, Request, State
from bench.predict.step_cost import cost_of
from bench.predict.step_time import StepTime
from bench.workloads.pool import pool_of
from bench.workloads.schedule import PlannedRequest


@dataclass
class Seen:
    """What a server has seen: requests at once, tokens of one request, and of a step, at most; prompt tokens that its prefix cache
    served; the fewest free blocks; seconds that requests have waited, added up; those that can never fit, by their indices; and its
    steps.
    """

    running: int = 0
    context: int = 0
    tokens: int = 0
    cached: int = 0
    free: float = 0
    waited_s: float = 0.0
    refused: list[int] = field(default_factory=list)
    log: StepLog = field(default_factory=StepLog)

    @classmethod
    def by_all(cls, servers: Sequence[Seen]) -> Seen:
        """What several servers have seen, but for their steps."""
        running, context, tokens = (max(getattr(each, name) for each in servers) for name in ("running", "context", "tokens"))
        cached, waited_s = sum(each.cached for each in servers), sum(each.waited_s for each in servers)
        refused = [index for each in servers for index in each.refused]
        return cls(running, context, tokens, cached, min(each.free for each in servers), waited_s, refused)


class ReplayedServer:
    """A server that is replayed.

    `offer` a request, `begin` the next steps, and `finish` them when their time has come.
    """

    def __init__(
        self,
        limits: Limits,
        step: StepTime,
        noise: Noise | None = None,
        seed: int = 1,
        *,
        now: float = 0.0,
        wake_s: float = 0.0,
    ) -> None:
        """Args: now: its clock (s). wake_s: what a step takes longer that finds it idle."""
        self._limits, self._noise, self._wake_s = limits, noise or Noise(), wake_s
        self._normal = Drawn(np.random.default_rng(seed))
        self._state = State(now=now, phases=[0] * limits.block_size)
        self._pool = pool_of(limits.blocks, limits.block_size, limits.sequences, cached=limits.cached)
        self._cost = cost_of(limits, step)
        self._begun: Begun | None = None
        self._idle = True
        self._scheduled = now  # when the next step was, where that is ahead
        self._ended: list[Request] = []
        self.seen = Seen(free=self._pool.free)

    @property
    def now(self) -> float:
        """Its clock: the end of the last step (s)."""
        return self._state.now

    @property
    def busy(self) -> bool:
        """Whether it has a request."""
        return bool(self._state.running or self._state.waiting)

    @property
    def ends(self) -> float | None:
        """When the steps under way end (s); None where none are."""
        return self._begun.ends if self._begun else None

    @property
    def in_flight(self) -> int:
        """Requests that it has, running or waiting."""
        return len(self._state.running) + len(self._state.waiting)

    def prime(self, tokens: int) -> None:
        """Compute what all prompts begin with before they come."""
        self._pool.prime(tokens)

    def wait_until(self, moment: float) -> None:
        """Let time pass in which there is nothing to do."""
        if moment > self._state.now:
            self._state.now, self._idle = moment, True
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
        first = not self._state.waiting
        self._state.waiting.append(request)
        if self._begun is None:
            self.wait_until(came)
        elif not self._begun.chunks and (limits.pass_tokens or (first and len(self._state.running) < limits.sequences)):
            self._begun = self._begun.cut(came)
        return True

    def begin(self, until: float = math.inf) -> float:
        """Begin a step with prompts in it, or as many steps without as nothing else changes; returns when they end (s).

        Args:
            until: moment at which the next request comes, as far as it is known.
        """
        state, idle, self._idle = self._state, self._idle, False
        while not (chunks := self._schedule()) and not state.decodes and (state.leaving or self._scheduled < state.now):
            self._settle(state.now)  # a step of nothing takes no time
        self._begun = self._prompts(chunks, self._wake_s if idle else 0.0) if chunks else self._jump()
        if math.isfinite(until) and not chunks:
            self._begun = self._begun.cut(until)
        return self._begun.ends

    def _schedule(self) -> list[tuple[Request, int]]:
        state, limits = self._state, self._limits
        full = False
        if limits.blocks is not None:
            full = self._make_room()
            self._take_blocks(state.steps, 1)
        budget, places = limits.tokens - state.decodes, limits.sequences - len(state.leaving)
        chunks: list[tuple[Request, int]] = []
        for request in state.prefilling:
            if budget <= 0:
                break
            chunks.append((request, min(request.left, budget)))
            budget -= chunks[-1][1]
        while state.waiting and budget > 0 and len(state.running) < places and not full:
            request = state.waiting[0]
            if self._late(request) or not self._pool.admit(request, request.plan.prompt_tokens + request.done):
                break
            state.waiting.popleft()
            state.admissions += 1
            request.order = state.admissions
            if math.isnan(request.admitted):
                self.seen.cached += request.start
                request.admitted = state.now
                request.spent.enter("own_prompt", state.now, state.prompts_s)
            self._cost.take(request)
            state.running[request.plan.index] = request
            state.prefilling.append(request)
            chunks.append((request, min(request.left, budget)))
            budget -= chunks[-1][1]
        self.seen.running = max(self.seen.running, len(state.running))
        self.seen.free = min(self.seen.free, self._pool.free)
        return chunks

    def _late(self, request: Request) -> bool:
        return self._limits.ahead and request.came > self._scheduled

    def _settle(self, scheduled: float) -> None:
        """Begin the schedule of another step, in which those that have left have no place. Args: scheduled: when (s)."""
        self._scheduled = scheduled
        for request in self._state.leaving:
            self._release(request)
        self._state.leaving.clear()

    def finish(self) -> list[Request]:
        """End the steps under way; returns the requests that ended with them."""
        begun, self._begun = self._begun, None
        if begun is None:
            raise AssertionError("no step is under way")
        state, self._ended = self._state, []
        if self._limits.blocks is not None:
            self._take_blocks(state.steps + 1, begun.steps - 1)
        took = begun.took
        self.seen.waited_s += len(state.waiting) * took
        state.now = begun.began + took
        state.steps += begun.steps
        if self._limits.ahead:
            self._settle(begun.last)
        if state.decodes:
            self.seen.log.add(state.decodes, begun)
        if begun.chunks:
            self._share_out(begun, took)
        state.context += begun.steps * state.decodes
        self._end_those_that_are_done()
        if begun.chunks:
            self._computed(begun.chunks)
        self._cost.free(self._ended)
        return self._ended

    def _prompts(self, chunks: list[tuple[Request, int]], wake_s: float) -> Begun:
        state = self._state
        self.seen.tokens = max(self.seen.tokens, state.decodes + sum(tokens for _, tokens in chunks))
        seconds = wake_s + self._cost.seconds(state, chunks)
        bare = self._cost.seconds(state) if state.decodes else 0.0
        return Begun(state.now, 1, seconds, *self._noise_of(seconds), bare, chunks=tuple(chunks))

    def _computed(self, chunks: tuple[tuple[Request, int], ...]) -> None:
        state = self._state
        finished = [request for request, tokens in chunks if tokens == request.left]
        for request, tokens in chunks:
            request.left -= tokens
            request.start += tokens
        state.prefilling = [request for request in state.prefilling if request.left]
        for request in finished:
            request.done += 1
            if math.isnan(request.first):
                request.first = state.now
            else:
                self.seen.log.add_gap(state.now - request.last)
            request.spent.enter("decode", state.now, state.prompts_s)
            self.seen.context = max(self.seen.context, request.plan.prompt_tokens + request.plan.output_tokens)
            self._decode(request)

    def _share_out(self, begun: Begun, took: float) -> None:
        """Share out what prompts added to a step, to each by its tokens. Args: took: with noise (s)."""
        state = self._state
        added = took * max(0.0, 1 - begun.base / begun.seconds) if begun.seconds else 0.0
        state.prompts_s += added
        prefill = sum(tokens for _, tokens in begun.chunks)
        for request, tokens in begun.chunks:
            request.spent.computes(added * tokens / prefill)

    def _decode(self, request: Request) -> None:
        """Let a request whose prompt is computed go on; its first token (or the one after a preemption) is there."""
        state, left = self._state, request.plan.output_tokens - request.done
        if left <= 0:
            self._end(request)
            return
        request.ends = state.steps + left
        request.base = request.start - state.steps
        state.decodes += 1
        state.context += request.start
        state.phases[-request.base % self._limits.block_size] += 1
        heapq.heappush(state.ends, (request.ends, request.order, request.plan.index))

    def _jump(self) -> Begun:
        state = self._state
        if not state.decodes:  # nothing runs and nothing can be admitted: impossible, as what never fits is refused
            raise AssertionError("a replay stands still")
        steps = self._until_an_end()
        if self._limits.blocks is not None:
            steps = min(steps, self._until_a_block_is_missing())
        steps = self._cost.alike(state, steps)
        if state.leaving or (state.waiting and self._late(state.waiting[0])):
            steps = 1  # the step after this one may have what this one has not
        base, slope = self._cost.seconds(state), self._cost.slope(state)
        self.seen.tokens = max(self.seen.tokens, state.decodes)
        seconds = seconds_of(steps, base, slope)
        return Begun(state.now, steps, seconds, *self._noise_of(seconds), base, slope)

    def _until_an_end(self) -> int:
        state = self._state
        while True:
            ends, order, index = state.ends[0]
            request = state.running.get(index)
            if request is not None and request.order == order:
                return max(1, ends - state.steps)
            heapq.heappop(state.ends)

    def _end_those_that_are_done(self) -> None:
        state = self._state
        while state.ends and state.ends[0][0] <= state.steps:
            _, order, index = heapq.heappop(state.ends)
            request = state.running.get(index)
            if request is None or request.order != order:
                continue
            self._leave_decodes(request)
            request.done = request.plan.output_tokens
            self._end(request)

    def _leave_decodes(self, request: Request) -> None:
        state = self._state
        state.decodes -= 1
        state.context -= request.base + state.steps
        state.phases[-request.base % self._limits.block_size] -= 1

    def _end(self, request: Request) -> None:
        state = self._state
        del state.running[request.plan.index]
        if self._limits.ahead:
            state.leaving.append(request)
        else:
            self._release(request)
        request.end = state.now
        request.spent.enter("decode", state.now, state.prompts_s)
        self._ended.append(request)

    def _release(self, request: Request) -> None:
        self._pool.release(request, request.plan.prompt_tokens + request.plan.output_tokens - 1)

    def _noise_of(self, seconds: float) -> tuple[float, float, float, float]:
        """Of steps that take so long: `run`, `deviation`, `stall_s` and `stall_at` of `Begun`."""
        noise, stall_s, stall_at = self._noise, 0.0, 0.0
        deviation = noise.step * self._normal.normal() if noise.step else 0.0
        if noise.stalls_per_s and self._normal.uniform() < -math.expm1(-noise.stalls_per_s * seconds * noise.run):
            stall_s, stall_at = -noise.stall_s * math.log(1 - self._normal.uniform()), self._normal.uniform()
        return noise.run, deviation, stall_s, stall_at

    # Blocks

    def _make_room(self) -> bool:
        """Preempt the requests admitted last, where decodes need more blocks in the next step than are free; whether it did."""
        state, full = self._state, False
        while state.phases[state.steps % self._limits.block_size] > self._pool.free:
            full = True
            index, request = next(reversed(state.running.items()))
            if state.leaving and (last := max(state.leaving, key=lambda each: each.order)).order > request.order:
                state.leaving.remove(last)
                last.preemptions += 1
                self._release(last)
                continue
            del state.running[index]
            computed = request.start
            if request in state.prefilling:
                state.prefilling.remove(request)
            else:
                self._leave_decodes(request)
                request.done = request.plan.output_tokens - (request.ends - state.steps)
                request.last = state.now
                computed = request.base + state.steps
            self._pool.release(request, computed)
            request.preemptions += 1
            request.spent.enter("preempted", state.now, state.prompts_s)
            state.waiting.appendleft(request)
        return full

    def _until_a_block_is_missing(self) -> int:
        """Steps for which blocks are free; takes those of the first one."""
        state, size, free = self._state, self._limits.block_size, int(self._pool.free)
        cycles = free // state.decodes
        left, steps = free - cycles * state.decodes, 1 + cycles * size
        for ahead in range(size):
            left -= state.phases[(state.steps + steps + ahead) % size]
            if left < 0:
                return steps + ahead
        return steps + size

    def _take_blocks(self, first: int, steps: int) -> None:
        """Give the decodes the blocks of so many steps. Args: first: number of the first one."""
        state, size = self._state, self._limits.block_size
        if steps < size and not any(state.phases[(first + ahead) % size] for ahead in range(steps)):
            return
        whole, rest = divmod(steps, size)
        for request in state.running.values():
            if request.left:
                continue
            phase = -request.base % size
            ahead = (phase - first) % size
            if taken := whole + (1 if ahead < rest else 0):
                self._pool.take(request, taken)
        self.seen.free = min(self.seen.free, self._pool.free)

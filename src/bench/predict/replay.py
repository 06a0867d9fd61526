"""Requests on a server whose steps take a known time.

The scheduler of continuous batching: step by step where prompts are computed, in jumps where nothing changes but the length of what is
decoded.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.load.schedule import PlannedRequest
from bench.predict.noise import Drawn, Noise
from bench.predict.spent import PHASES
from bench.predict.state import Limits, Request, State
from bench.predict.step_time import StepTime

__all__ = ["REPLAY_SCHEMA", "Replay", "replay"]

REPLAY_SCHEMA = {
    "index": pl.Int64,
    "prompt_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "sent_s": pl.Float64,
    "admitted_s": pl.Float64,
    "first_token_s": pl.Float64,
    "end_s": pl.Float64,
    "preemptions": pl.Int64,
    **{f"{phase}_s": pl.Float64 for phase in PHASES},
}
_FAR = 1 << 60


@dataclass(frozen=True)
class Replay:
    """What came of it.

    Attributes:
        requests: one row a request that was answered, `REPLAY_SCHEMA`, with where its time went. refused: indices of those that can
            never fit.
        most_running, most_context: requests at once, and tokens of one request. most_tokens: of a step. cached_tokens: of prompts,
            served by a prefix cache. kv_peak: highest share of the blocks in use. waiting_mean: requests that wait, over time.
    """

    requests: pl.DataFrame
    refused: tuple[int, ...]
    most_running: int
    most_context: int
    most_tokens: int
    cached_tokens: int
    kv_peak: float | None
    waiting_mean: float


def replay(
    requests: Sequence[PlannedRequest],
    limits: Limits,
    step: StepTime,
    *,
    held: int | None = None,
    overhead_s: float = 0.0,
    turnaround_s: float = 0.0,
    noise: Noise | None = None,
    seed: int = 1,
) -> Replay:
    """Replay planned requests on a server.

    Args:
        held: requests (conversations) that a closed loop keeps in flight; None where they come when they are due. overhead_s: from the
            client to the queue. turnaround_s: of the client, between an answer and the next request of a closed loop.
        noise: None for none.
    """
    return _Replaying(requests, limits, step, held, overhead_s, turnaround_s, noise or Noise(), seed).run()


class _Replaying:
    def __init__(
        self,
        requests: Sequence[PlannedRequest],
        limits: Limits,
        step: StepTime,
        held: int | None,
        overhead_s: float,
        turnaround_s: float,
        noise: Noise,
        seed: int,
    ) -> None:
        self._limits, self._step, self._noise = limits, step, noise
        self._overhead_s, self._turnaround_s = overhead_s, turnaround_s
        self._normal = Drawn(np.random.default_rng(seed))
        self._state = State(limits, free=(limits.blocks or 1) - 1, phases=[0] * limits.block_size)
        self._followers = {request.after: request for request in requests if request.after is not None}
        roots = [request for request in requests if request.after is None]
        self._coming: list[tuple[float, int, PlannedRequest]] = []
        self._next: deque[PlannedRequest] = deque()
        if held is None:
            self._coming = [(request.due_s or 0.0, request.index, request) for request in roots]
            heapq.heapify(self._coming)
        else:
            for request in roots[:held]:
                heapq.heappush(self._coming, (0.0, request.index, request))
            self._next = deque(roots[held:])
        self._answered: list[Request] = []
        self._refused: list[int] = []
        self._most_running = self._most_context = self._most_tokens = 0
        self._kv_least = self._state.free
        self._waited = 0.0
        self._cached = 0

    def run(self) -> Replay:
        state = self._state
        while True:
            while self._coming and self._coming[0][0] + self._overhead_s <= state.now:
                self._arrive()
            if not state.running and not state.waiting:
                if not self._coming:
                    break
                state.now = max(state.now, self._coming[0][0] + self._overhead_s)
                continue
            self._advance()
        blocks = (self._limits.blocks or 1) - 1
        return Replay(
            pl.DataFrame(
                [
                    (
                        r.plan.index,
                        r.plan.prompt_tokens,
                        r.plan.output_tokens,
                        r.sent,
                        r.admitted,
                        r.first,
                        r.end,
                        r.preemptions,
                        *r.spent.seconds.values(),
                    )
                    for r in self._answered
                ],
                schema=REPLAY_SCHEMA,
                orient="row",
            ),
            tuple(self._refused),
            self._most_running,
            self._most_context,
            self._most_tokens,
            self._cached,
            1 - self._kv_least / blocks if blocks else None,
            self._waited / state.now if state.now else 0.0,
        )

    def _arrive(self) -> None:
        at, _, plan = heapq.heappop(self._coming)
        request = Request(plan, at, left=self._to_compute(plan))
        request.start = plan.prompt_tokens - request.left
        whole = plan.prompt_tokens + plan.output_tokens
        if self._limits.blocks is not None and self._blocks(whole) > self._limits.blocks - 1:
            self._refused.append(plan.index)
            self._follow(plan, at)
            return
        self._cached += request.start
        self._state.waiting.append(request)

    def _to_compute(self, plan: PlannedRequest) -> int:
        if not self._limits.cached:
            return plan.prompt_tokens
        size = self._limits.block_size
        return plan.prompt_tokens - min(plan.reusable_tokens, plan.prompt_tokens - 1) // size * size

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._limits.block_size)

    def _follow(self, plan: PlannedRequest, at: float) -> None:
        """What an answer lets go."""
        if follower := self._followers.get(plan.index):
            heapq.heappush(self._coming, (at + follower.think_s, follower.index, follower))
        elif self._next:
            heapq.heappush(self._coming, (at + self._turnaround_s, self._next[0].index, self._next.popleft()))

    # A step

    def _advance(self) -> None:
        """One step with prompts in it, or as many steps without as nothing else changes."""
        state, limits = self._state, self._limits
        if limits.blocks is not None:
            self._make_room()
        budget = limits.tokens - state.decodes
        kept = state.phases[state.steps % limits.block_size]  # for the decodes of this step
        chunks: list[tuple[Request, int]] = []
        for request in state.prefilling:
            if budget <= 0:
                break
            chunks.append((request, min(request.left, budget)))
            budget -= chunks[-1][1]
        while state.waiting and budget > 0 and len(state.running) < limits.sequences:
            request = state.waiting[0]
            if limits.blocks is not None:
                need = self._blocks(request.start + request.left)
                if need > state.free - kept:
                    break
                state.free -= need
                request.blocks = need
            state.waiting.popleft()
            if math.isnan(request.admitted):
                request.admitted = state.now
                request.spent.enter("own_prompt", state.now, state.prompts_s)
            state.running[request.plan.index] = request
            state.prefilling.append(request)
            chunks.append((request, min(request.left, budget)))
            budget -= chunks[-1][1]
        self._most_running = max(self._most_running, len(state.running))
        self._kv_least = min(self._kv_least, state.free)
        if chunks:
            self._compute(chunks)
        else:
            self._jump()

    def _compute(self, chunks: list[tuple[Request, int]]) -> None:
        state = self._state
        prefill = sum(tokens for _, tokens in chunks)
        attended = sum(tokens * (request.start + tokens / 2) for request, tokens in chunks)
        finished = [request for request, tokens in chunks if tokens == request.left]
        self._most_tokens = max(self._most_tokens, state.decodes + prefill)
        seconds = self._step.seconds(
            decodes=state.decodes, firsts=len(finished), prefill=prefill, context=state.context, attended=attended
        )
        self._take_blocks(1)
        self._share_out(chunks, seconds, self._elapse(seconds, 1))
        state.context += state.decodes
        self._end_those_that_are_done()
        for request, tokens in chunks:
            request.left -= tokens
            request.start += tokens
        state.prefilling = [request for request in state.prefilling if request.left]
        for request in finished:
            request.done += 1
            if math.isnan(request.first):
                request.first = state.now
            request.spent.enter("decode", state.now, state.prompts_s)
            self._most_context = max(self._most_context, request.plan.prompt_tokens + request.plan.output_tokens)
            self._decode(request)

    def _share_out(self, chunks: list[tuple[Request, int]], seconds: float, took: float) -> None:
        """What prompts added to a step, to each by its tokens. Args: seconds: of the step without noise. took: with it."""
        state = self._state
        bare = 0.0
        if state.decodes:
            bare = self._step.seconds(decodes=state.decodes, firsts=0, prefill=0, context=state.context, attended=0.0)
        added = took * max(0.0, 1 - bare / seconds) if seconds else 0.0
        state.prompts_s += added
        prefill = sum(tokens for _, tokens in chunks)
        for request, tokens in chunks:
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
        heapq.heappush(state.ends, (request.ends, request.plan.index, request.epoch))

    def _jump(self) -> None:
        state = self._state
        if not state.decodes:  # nothing can be admitted, and nothing runs: cannot happen, as what never fits is refused
            raise AssertionError("a replay stands still")
        steps = self._until_an_end()
        if self._limits.blocks is not None:
            steps = min(steps, self._until_a_block_is_missing())
        base = self._step.seconds(decodes=state.decodes, firsts=0, prefill=0, context=state.context, attended=0.0)
        slope = self._step.context_s * state.decodes
        if self._coming:
            until = (self._coming[0][0] + self._overhead_s - state.now) / self._noise.run
            steps = min(steps, _steps_until(until, base, slope))
        self._most_tokens = max(self._most_tokens, state.decodes)
        self._take_blocks(steps)
        self._elapse(steps * base + slope * steps * (steps - 1) / 2, steps)
        state.context += steps * state.decodes
        self._end_those_that_are_done()

    def _until_an_end(self) -> int:
        state = self._state
        while True:
            ends, index, epoch = state.ends[0]
            request = state.running.get(index)
            if request is not None and request.epoch == epoch:
                return max(1, ends - state.steps)
            heapq.heappop(state.ends)

    def _end_those_that_are_done(self) -> None:
        state = self._state
        while state.ends and state.ends[0][0] <= state.steps:
            _, index, epoch = heapq.heappop(state.ends)
            request = state.running.get(index)
            if request is None or request.epoch != epoch:
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
        state.free += request.blocks
        request.end = state.now
        request.spent.enter("decode", state.now, state.prompts_s)
        self._answered.append(request)
        self._follow(request.plan, state.now)

    def _elapse(self, seconds: float, steps: int) -> float:
        """Let so many steps pass, with their noise; the seconds that they took."""
        state, noise = self._state, self._noise
        seconds *= noise.run
        if noise.step:
            seconds *= math.exp(noise.step / math.sqrt(steps) * self._normal.normal())
        if noise.stalls_per_s and self._normal.uniform() < -math.expm1(-noise.stalls_per_s * seconds):
            seconds -= noise.stall_s * math.log(1 - self._normal.uniform())
        self._waited += len(state.waiting) * seconds
        state.now += seconds
        state.steps += steps
        return seconds

    # Blocks

    def _make_room(self) -> None:
        """Where decodes need more blocks in the next step than are free, those that were admitted last give theirs up."""
        state = self._state
        while state.phases[state.steps % self._limits.block_size] > state.free:
            index, request = next(reversed(state.running.items()))
            del state.running[index]
            if request in state.prefilling:
                state.prefilling.remove(request)
            else:
                self._leave_decodes(request)
                request.done = request.plan.output_tokens - (request.ends - state.steps)
            state.free += request.blocks
            request.blocks = 0
            request.epoch += 1
            request.preemptions += 1
            request.spent.enter("preempted", state.now, state.prompts_s)
            request.left, request.start = request.plan.prompt_tokens + request.done, 0
            state.waiting.appendleft(request)

    def _until_a_block_is_missing(self) -> int:
        """Steps whose blocks are free."""
        state, size = self._state, self._limits.block_size
        cycles = state.free // state.decodes
        left, steps = state.free - cycles * state.decodes, cycles * size
        for ahead in range(size):
            left -= state.phases[(state.steps + steps + ahead) % size]
            if left < 0:
                return max(1, steps + ahead)
        return steps + size

    def _take_blocks(self, steps: int) -> None:
        """Give the decodes the blocks of so many steps."""
        state, size = self._state, self._limits.block_size
        if self._limits.blocks is None:
            return
        whole, rest = divmod(steps, size)
        for request in state.running.values():
            if request.left:
                continue
            phase = -request.base % size
            ahead = (phase - state.steps) % size
            taken = whole + (1 if ahead < rest else 0)
            request.blocks += taken
            state.free -= taken
        self._kv_least = min(self._kv_least, state.free)


def _steps_until(seconds: float, base: float, slope: float) -> int:
    """The fewest steps that last so long, the first of `base` seconds and each further one `slope` longer."""
    if seconds <= 0:
        return 1
    if slope <= 0:
        return max(1, math.ceil(seconds / base)) if base > 0 else _FAR
    half = base - slope / 2
    return max(1, math.ceil((-half + math.sqrt(half * half + 2 * slope * seconds)) / slope))

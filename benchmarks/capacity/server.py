"""A continuous-batching engine, simulated step by step. It knows nothing of the code that judges it.

The scheduler is vLLM's in outline: running requests first, a token each; then one prompt in chunks of what is left of the step's
token budget; then waiting requests in their order, each only when blocks for its whole prompt are free. A running request that needs a
block when none is free preempts the latest one, whose tokens are computed again. One block is kept back.

Requests that decode get a token every step, so nothing is done for each of them: the steps at which one ends or needs a block
are known when it begins, and a step costs what happens in it.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["OK", "Load", "Server", "Trace", "simulate"]

OK, REFUSED, BROKEN, CUT = 0, 429, 500, 200  # a status of HTTP; CUT: the stream breaks off
_DRAWS = 8192


@dataclass(frozen=True)
class Server:
    """One server's parameters.

    Attributes:
        a_ms, b_ms, c_ms, d_ms: of a step's time: constant, a decoding request, 1,000 tokens of their contexts, a prompt token.
        noise: standard deviation of the logarithm of a step's time. stall_share, stall_ms: share of steps that stall, and how long.
        budget: tokens of a step. slots: most requests that run. blocks: KV blocks, one of which is kept back. block_size: tokens.
        wire_ms: one way between client and server.
        most_in_flight, most_waiting: what the front end accepts; None for any number.
        failure_share: requests that fail at random, half of them at once, half in mid-answer.
        prefill_aside: prompts are computed elsewhere and cost a step nothing, to learn what they cost others.
    """

    a_ms: float
    b_ms: float
    c_ms: float
    d_ms: float
    noise: float = 0.0
    stall_share: float = 0.0
    stall_ms: float = 0.0
    budget: int = 8192
    slots: int = 256
    blocks: int = 100_000
    block_size: int = 16
    wire_ms: float = 0.0
    most_in_flight: int | None = None
    most_waiting: int | None = None
    failure_share: float = 0.0
    prefill_aside: bool = False


@dataclass(frozen=True)
class Load:
    """Requests of `prompts` and `outputs` tokens, sent at `moments` (s, rising), or, without those, `in_flight` at a time.

    With `turns`, so many requests that stand together are a conversation: a further one follows `think_s` after the one before ended.
    """

    prompts: Sequence[int]
    outputs: Sequence[int]
    moments: Sequence[float] | None = None
    in_flight: int = 0
    turns: int = 1
    think_s: float = 0.0


@dataclass
class Trace:
    """What happened; one value a request (s at the client; NaN where it never came), and one a step.

    Attributes:
        status: OK, or what the request failed with. tokens: how many came.
        segments: (first, last) step of each unbroken row of a request's tokens, where steps were watched.
        steps: ends of the steps (s, at the server). gauges: by name, as of each step's end, where they were watched; waiting are those
            that the step had no room for, as vLLM counts them.
    """

    sent: np.ndarray
    first: np.ndarray
    last: np.ndarray
    end: np.ndarray
    status: np.ndarray
    tokens: np.ndarray
    preemptions: int
    segments: list[list[tuple[int, int]]] = field(default_factory=list)
    steps: np.ndarray = field(default_factory=lambda: np.empty(0))
    gauges: dict[str, np.ndarray] = field(default_factory=dict)

    def made(self, request: int) -> np.ndarray:
        """When the tokens of a request were made, where steps were watched (s, at the server)."""
        steps = [np.arange(first, last + 1) for first, last in self.segments[request]]
        return self.steps[np.concatenate(steps) - 1] if steps else np.empty(0)


GAUGES = ("running", "waiting", "used", "preemptions", "prompt_tokens", "generation_tokens")


class _Noise:
    """Factors of the steps' times, and stalls, drawn ahead."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._random = np.random.default_rng([seed, 1])
        self.factors: list[float] = []
        self.stalls: list[float] = []

    def refill(self) -> None:
        server, random = self._server, self._random
        self.factors = np.exp(server.noise * random.standard_normal(_DRAWS) - server.noise**2 / 2).tolist()
        stalled = random.random(_DRAWS) < server.stall_share
        self.stalls = (stalled * server.stall_ms * random.exponential(1.0, _DRAWS)).tolist()


def _failures(server: Server, load: Load, seed: int) -> tuple[list[int], list[int]]:
    """The status that each request is to fail with (OK for most), and after how many tokens."""
    random, count = np.random.default_rng([seed, 2]), len(load.prompts)
    fails, at_once, share = random.random(count) < server.failure_share, random.random(count) < 0.5, random.random(count)
    status = np.where(fails, np.where(at_once, BROKEN, CUT), OK)
    outputs = np.asarray(load.outputs)
    tokens = np.where(status == CUT, np.maximum(1, np.ceil(share * (outputs - 1))), outputs)
    return status.tolist(), tokens.astype(int).tolist()


def simulate(server: Server, load: Load, *, seed: int, speed: float = 1.0, watch: bool = False) -> Trace:  # noqa: PLR0912, PLR0915
    """Serve a load.

    Args:
        seed: of the steps' noise and of failures. speed: by which everything is faster than the server's parameters.
        watch: whether steps and gauges are kept.

    Raises:
        ValueError: a request does not fit into the KV cache or a step by itself.
    """
    # One long function: it is the inner loop, and names in it are local.
    count, size, wire = len(load.prompts), server.block_size, server.wire_ms / 1000
    prompts, (fate, outputs) = list(load.prompts), _failures(server, load, seed)
    free = server.blocks - 1
    if max(p + o for p, o in zip(prompts, load.outputs, strict=True)) > free * size or server.slots > server.budget:
        raise ValueError("a request is beyond the KV cache, or the slots are beyond the step's budget")
    a, b, c = (x / 1000 / speed for x in (server.a_ms, server.b_ms, server.c_ms / 1000))
    d = 0.0 if server.prefill_aside else server.d_ms / 1000 / speed
    most, longest = server.most_in_flight or math.inf, math.inf if server.most_waiting is None else server.most_waiting
    noise, draw = _Noise(server, seed), _DRAWS
    nan = float("nan")
    sent, first, last, end = ([nan] * count for _ in range(4))
    status, produced = [OK] * count, [0] * count  # produced: tokens before the present residence
    joined, age, held, context = ([0] * count for _ in range(4))  # age: how often it was preempted
    segments: list[list[tuple[int, int]]] = [[] for _ in range(count)] if watch else []
    ends, log = [], []
    pending: list[tuple[float, int]]
    if load.moments is None:
        following = min(load.in_flight * load.turns, count)
        pending = [(wire, i) for i in range(0, following, load.turns)]
        for _, i in pending:
            sent[i] = 0.0
    else:
        following = count
        for i in range(0, count, load.turns):
            sent[i] = float(load.moments[i])
        pending = [(sent[i] + wire, i) for i in range(0, count, load.turns)]
        if load.turns == 1:
            pending.reverse()  # taken from its end: no heap where the order is known
    closed = load.moments is None
    heaped = closed or load.turns > 1
    waiting: deque[int] = deque()
    running: dict[int, None] = {}  # in order of admission
    finishing: dict[int, list[tuple[int, int]]] = defaultdict(list)
    growing: dict[int, list[tuple[int, int]]] = defaultdict(list)
    prefilling, rest = -1, 0
    decoding = contexts = step = preemptions = computed = generated = 0
    now = 0.0

    def follow(i: int, moment: float) -> None:
        """Send the conversation's next request, or after its last one the closed loop's next."""
        nonlocal following
        if (i + 1) % load.turns and i + 1 < count:
            after, moment = i + 1, moment + load.think_s
        elif closed and following < count:
            after, following = following, following + load.turns
        else:
            return
        sent[after] = moment
        heapq.heappush(pending, (moment + wire, after))

    def arrive(until: float) -> None:
        while pending and (pending[0] if heaped else pending[-1])[0] <= until:
            at, i = heapq.heappop(pending) if heaped else pending.pop()
            refused = len(running) + len(waiting) >= most or len(waiting) >= longest
            if refused or fate[i] == BROKEN:
                status[i] = REFUSED if refused else BROKEN
                end[i] = at + wire + 0.001
                follow(i, end[i])
            else:
                waiting.append(i)

    def finish(i: int) -> None:
        nonlocal free
        free += held[i]
        held[i] = 0
        del running[i]
        last[i] = end[i] = now + wire
        status[i] = fate[i]
        follow(i, end[i])

    while True:
        arrive(now)
        if not running and not waiting:
            if not pending:
                break
            now = (pending[0] if heaped else pending[-1])[0]
            continue
        step += 1
        preempted = False
        # 1. Blocks for what runs.
        if step in growing:
            for i, its_age in growing.pop(step):
                if age[i] != its_age or not held[i]:
                    continue
                while not free:
                    victim = next(reversed(running))
                    del running[victim]
                    if victim == prefilling:
                        prefilling = -1
                    else:
                        if watch:
                            segments[victim].append((joined[victim], step - 1))
                        decoding -= 1
                        contexts -= context[victim] + step - 1 - joined[victim]
                        produced[victim] += step - joined[victim]
                    free += held[victim]
                    held[victim] = 0
                    age[victim] += 1
                    preemptions += 1
                    preempted = True
                    waiting.appendleft(victim)
                    if victim == i:
                        break
                else:
                    free -= 1
                    held[i] += 1
                    growing[step + size].append((i, its_age))
        # 2. Prompts.
        budget, done = server.budget - decoding, []
        whole = budget
        if prefilling >= 0:
            chunk = min(rest, budget)
            rest -= chunk
            budget -= chunk
            if not rest:
                done.append(prefilling)
                prefilling = -1
        if not preempted:
            while waiting and budget and prefilling < 0 and len(running) < server.slots:
                i = waiting[0]
                need = prompts[i] + produced[i]
                blocks = -(-need // size)
                if blocks > free:
                    break
                waiting.popleft()
                running[i] = None
                free -= blocks
                held[i] = blocks
                context[i] = need
                if need <= budget:
                    budget -= need
                    done.append(i)
                else:
                    prefilling, rest = i, need - budget
                    budget = 0
        # 3. Time.
        if draw == _DRAWS:
            noise.refill()
            draw = 0
        prefilled, queue = whole - budget, len(waiting)  # who arrives during the step is no longer in its gauge
        now += (a + b * decoding + c * contexts + d * prefilled) * noise.factors[draw] + noise.stalls[draw] / 1000
        draw += 1
        arrive(now)
        # 4. Tokens.
        computed += prefilled
        generated += decoding + len(done)
        contexts += decoding
        for i, its_age in finishing.pop(step, ()):
            if age[i] == its_age:
                decoding -= 1
                contexts -= context[i] + step - joined[i]
                if watch:
                    segments[i].append((joined[i], step))
                finish(i)
        for i in done:
            if first[i] != first[i]:  # NaN
                first[i] = now + wire
            joined[i] = step
            left = outputs[i] - produced[i] - 1
            if not left:
                if watch:
                    segments[i].append((step, step))
                finish(i)
                continue
            decoding += 1
            contexts += context[i]
            finishing[step + left].append((i, age[i]))
            grows = step + 1 + -context[i] % size
            growing[grows].append((i, age[i]))
        if watch:
            ends.append(now)
            used = server.blocks - 1 - free
            log.append((len(running), queue, used, preemptions, computed, generated))
    gauges = dict(zip(GAUGES, np.array(log, dtype=np.int64).reshape(-1, len(GAUGES)).T, strict=True)) if watch else {}
    return Trace(
        *(np.array(x) for x in (sent, first, last, end)),
        status=np.array(status),
        tokens=np.array(outputs),
        preemptions=preemptions,
        segments=segments,
        steps=np.array(ends),
        gauges=gauges,
    )

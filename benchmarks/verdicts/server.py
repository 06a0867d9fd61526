"""An engine with continuous batching in simulated time, and what a client and a scraper saw of it."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

import numpy as np

__all__ = ["OVERHEAD_S", "Engine", "Load", "Request", "serve"]

OVERHEAD_S = 0.001  # from the engine to the client's socket
_REFUSED_S = 0.004  # what a 503 takes


@dataclass(frozen=True)
class Engine:
    """What a step of the engine takes.

    Attributes:
        step_s: a step's time with one sequence; per_sequence: by how much of it each further one adds. prefill_s: a prompt token's
            time; a step takes `budget` of them at most. slots: sequences in a step. gate: requests that something before the engine
            lets in at once. admitted: requests in the engine beyond which it answers 503. others: requests of somebody else, always
            running.
    """

    step_s: float
    per_sequence: float = 0.02
    prefill_s: float = 0.0001
    budget: int = 2048
    slots: int = 64
    gate: int | None = None
    admitted: int | None = None
    others: int = 0


@dataclass(frozen=True)
class Load:
    """What is sent: moments at which requests are due (s), or for a closed loop how many are in flight and how many in all."""

    due: list[float]
    loop: int | None = None
    count: int = 0


@dataclass
class Request:
    """One request: times in s since the run's start."""

    scheduled: float
    sent: float
    prompt: int
    output: int
    left: int = 0
    entered: float = 0.0  # when the engine got it
    made: list[float] = field(default_factory=list)  # when the engine made each token
    tokens: list[float] = field(default_factory=list)  # when the client got it
    end: float | None = None
    status: int = 200


@dataclass
class _State:
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    gated: deque[Request] = field(default_factory=deque)


def serve(
    engine: Engine, load: Load, lengths: tuple[int, int], delay: np.ndarray, generator: np.random.Generator
) -> tuple[list[Request], list[tuple[float, int, int]]]:
    """Serve `load`; the requests, and the gauges as the engine reported them: moment, running, waiting, of each step's end.

    Args:
        lengths: tokens of prompts and outputs, each varied by a tenth. delay: by how much each request leaves late (s).
    """
    state, done, gauges, now = _State(), [], [(-1.0, engine.others, 0)], 0.0
    coming: list[tuple[float, int, float]] = [(due + delay[i], i, due) for i, due in enumerate(load.due)]
    heapq.heapify(coming)
    sent = len(coming)
    total = load.count or sent

    def follow(at: float) -> None:
        nonlocal sent
        if load.loop and sent < total:
            heapq.heappush(coming, (at + delay[sent] + 0.0002, sent, at))
            sent += 1

    while coming or state.waiting or state.running or state.gated:
        if not (state.waiting or state.running or state.gated):
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            at, _, due = heapq.heappop(coming)
            output = max(2, round(lengths[1] * generator.uniform(0.9, 1.1)))
            prompt = max(1, round(lengths[0] * generator.uniform(0.9, 1.1)))
            request = Request(due, at, prompt, output, left=prompt)
            done.append(request)
            if engine.admitted is not None and len(state.waiting) + len(state.running) >= engine.admitted:
                request.status, request.end = 503, at + _REFUSED_S
                follow(request.end)
            else:
                state.gated.append(request)
        inside = len(state.waiting) + len(state.running)
        while state.gated and (engine.gate is None or inside < engine.gate):
            request = state.gated.popleft()
            request.entered = request.sent if engine.gate is None else max(request.sent, now)
            state.waiting.append(request)
            inside += 1
        now = _step(engine, state, now, follow)
        gauges.append((now, len(state.running) + engine.others, len(state.waiting)))
    return done, gauges


def _step(engine: Engine, state: _State, now: float, follow: object) -> float:
    """One step: prefill as much as fits, a token for each sequence that is through with it; the moment of its end."""
    budget = engine.budget
    while state.waiting and len(state.running) + engine.others < engine.slots:
        state.running.append(state.waiting.popleft())
    prefilled = 0
    for request in state.running:
        part = min(request.left, budget)
        request.left -= part
        budget -= part
        prefilled += part
    sequences = len(state.running) + engine.others
    now += engine.step_s * (1 + engine.per_sequence * max(0, sequences - 1)) + engine.prefill_s * prefilled
    for request in state.running:
        if not request.left:
            request.made.append(now)
            request.tokens.append(now + OVERHEAD_S)
            if len(request.tokens) == request.output:
                request.end = request.tokens[-1]
                follow(request.end)  # type: ignore[operator]
    state.running = [request for request in state.running if request.end is None]
    return now

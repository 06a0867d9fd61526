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
    tokens: list[float] = field(default_factory=list)  # when the client got it
    end: float | None = None
    status: int = 200


def serve(
    engine: Engine, load: Load, lengths: tuple[int, int], delay: np.ndarray, generator: np.random.Generator
) -> tuple[list[Request], list[tuple[float, int, int]]]:
    """Serve `load`; the requests, and the gauges as the engine reported them: moment, running, waiting, of each step's end.

    Args:
        lengths: tokens of prompts and outputs, each varied by a tenth. delay: by how much each request leaves late (s).
    """
    waiting, gated, running = (
        deque[Request](),
        deque[Request](),
        list[Request](),
    )  # gated: held by what stands before the engine
    done, gauges, now = [], [(-1.0, engine.others, 0)], 0.0
    coming: list[tuple[float, int, float]] = [(due + delay[i], i, due) for i, due in enumerate(load.due)]
    heapq.heapify(coming)
    sent = len(coming)
    total = load.count or sent

    def follow(at: float) -> None:
        nonlocal sent
        if load.loop and sent < total:
            heapq.heappush(coming, (at + delay[sent] + 0.0002, sent, at))
            sent += 1

    while coming or waiting or running or gated:
        if not (waiting or running or gated):
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            at, _, due = heapq.heappop(coming)
            output = max(2, round(lengths[1] * generator.uniform(0.9, 1.1)))
            prompt = max(1, round(lengths[0] * generator.uniform(0.9, 1.1)))
            request = Request(due, at, prompt, output, left=prompt)
            done.append(request)
            if engine.admitted is not None and len(waiting) + len(running) >= engine.admitted:
                request.status, request.end = 503, at + _REFUSED_S
                follow(request.end)
            else:
                gated.append(request)
        while gated and (engine.gate is None or len(waiting) + len(running) < engine.gate):
            waiting.append(gated.popleft())
        # A step: as much of the prompts as fits, and a token for each sequence that is through with its own.
        while waiting and len(running) + engine.others < engine.slots:
            running.append(waiting.popleft())
        budget = engine.budget
        for request in running:
            part = min(request.left, budget)
            request.left -= part
            budget -= part
        sequences = len(running) + engine.others
        now += engine.step_s * (1 + engine.per_sequence * max(0, sequences - 1)) + engine.prefill_s * (engine.budget - budget)
        for request in running:
            if not request.left:
                request.tokens.append(now + OVERHEAD_S)
                if len(request.tokens) == request.output:
                    request.end = request.tokens[-1]
                    follow(request.end)
        running = [request for request in running if request.end is None]
        gauges.append((now, len(running) + engine.others, len(waiting)))
    return done, gauges

"""What a server's prefix cache had room to serve: a run's requests come to a pool as they came to the server, and leave as they left.

A cache without end serves all that prompts have in common (`expected_cached_tokens`). A server's own evicts what was used longest ago
where others need the room, and how much that takes away follows from the order of the requests, and from the time that each held its
blocks. Both were measured; so nothing is assumed of the time that anything takes.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from bench.runs.deployment import DeploymentFacts
from bench.runs.launch import Launch
from bench.runs.request import RequestRecord
from bench.workloads.pool import Pool, pool_of
from bench.workloads.schedule import PlannedRequest

# relative difference of KV tokens that counts as none: blocks that an engine rounds, or keeps for itself; convention
ROUNDING = 0.02


@dataclass(frozen=True)
class Room:
    """Room of a server's prefix cache.

    Attributes:
        blocks: of its KV cache; None where each sequence has a slot. block_size: tokens of a block; 1 of a slot, which shares tokens.
        sequences: that run at once; None where that is not known.
    """

    blocks: int | None
    block_size: int
    sequences: int | None


def room_of(facts: DeploymentFacts, launch: Launch, engines: int) -> Room | None:
    """Room of a server's prefix cache, if its rules are known: llama.cpp's slots, or one vLLM whose layers all keep the same tokens."""
    if launch.servers > 1:
        return None
    sequences, blocks, size = launch.settings.max_num_seqs, facts.kv_blocks, facts.block_size
    if launch.settings.slots:
        return Room(None, 1, sequences) if sequences else None
    if launch.kind != "vllm" or engines != 1 or not blocks or not size:
        return None
    same = facts.kv_tokens is None or abs(facts.kv_tokens / (blocks * size) - 1) <= ROUNDING
    return Room(blocks, size, sequences) if same else None


@dataclass
class _Visit:
    """A request at the server.

    Attributes:
        plan, record: what it was to be, and what became of it. left, start, blocks, held, preemptions: as of
            `bench.workloads.pool.Holder`. holds: tokens whose keys and values it has room for.
        served: tokens of its prompt that it found there, the first time; None before it was admitted.
    """

    plan: PlannedRequest
    record: RequestRecord
    left: int = 0
    start: int = 0
    blocks: int = 0
    held: list[int] = field(default_factory=list)
    holds: int = 0
    preemptions: int = 0
    served: int | None = None

    @property
    def last(self) -> int:
        """Tokens whose keys and values it has in the end: the last token of an answer is never computed."""
        answered = self.record.completion_tokens
        return self.plan.prompt_tokens + (self.plan.output_tokens if answered is None else answered) - 1


def served_tokens(planned: Iterable[PlannedRequest], records: Iterable[RequestRecord], room: Room) -> int | None:
    """Prompt tokens that a prefix cache of this size serves; None where the requests do not fit, one after the other.

    A request is admitted when it was sent, in the order of sending, as soon as there is room for its prompt, and holds its blocks until
    its answer was complete; the answer grows evenly between its first token and its last. Where it finds no room for that, the request
    that was admitted last gives up its own and waits in front, as in vLLM; what it finds when it comes back is not counted again.

    Args:
        records: of the requests that were sent. One that failed is left out.
    """
    plans = {plan.index: plan for plan in planned}
    visits = [_Visit(plans[r.index], r) for r in records if r.outcome == "ok" and r.sent_s is not None and r.end_s is not None]
    pool = pool_of(room.blocks, room.block_size, room.sequences or len(visits) or 1, cached=True)
    pool.prime(max((visit.plan.shared_tokens for visit in visits), default=0))
    return _Stay(pool, room, visits).tokens()


# Kinds of events. At one moment who leaves makes room for who comes.
_LEAVES, _GROWS, _COMES = range(3)


class _Stay:
    def __init__(self, pool: Pool, room: Room, visits: Sequence[_Visit]) -> None:
        self._pool, self._room, self._visits = pool, room, visits
        self._order = count()
        self._waiting: deque[_Visit] = deque()
        self._running: list[_Visit] = []
        # Moment, kind, order, request, and how often it had been preempted.
        self._events: list[tuple[float, int, int, _Visit, int]] = []

    def tokens(self) -> int | None:
        """Prompt tokens that the cache serves; None where a request never finds room."""
        for visit in self._visits:
            self._at(visit.record.sent_s or 0.0, _COMES, visit)
        while self._events:
            at, kind, _, visit, preemptions = heapq.heappop(self._events)
            if kind == _COMES:
                self._waiting.append(visit)
            elif preemptions != visit.preemptions:
                continue
            elif kind == _GROWS:
                self._grow(visit)
            else:
                self._running.remove(visit)
                self._pool.release(visit, visit.last)
            self._admit(at)
        return None if self._waiting else sum(visit.served or 0 for visit in self._visits)

    def _admit(self, now: float) -> None:
        most = self._room.sequences or math.inf
        while self._waiting and len(self._running) < most:
            visit = self._waiting[0]
            if not self._pool.admit(visit, visit.holds or visit.plan.prompt_tokens):
                break
            self._waiting.popleft()
            if visit.served is None:
                visit.served, visit.holds = visit.start, visit.plan.prompt_tokens
            self._running.append(visit)
            self._expect(visit, now)

    def _expect(self, visit: _Visit, now: float) -> None:
        """Enter the events at which an admitted request needs a block more, and at which it leaves."""
        last = visit.last
        end = max(now, visit.record.end_s or now)
        begin = min(end, max(now, visit.record.first_token_s or now))
        if self._room.blocks is not None:
            size = self._room.block_size
            for holds in range(len(visit.held) * size, last, size):
                self._at(begin + (holds - visit.holds) / (last - visit.holds) * (end - begin), _GROWS, visit)
        self._at(end, _LEAVES, visit)

    def _grow(self, visit: _Visit) -> None:
        while not self._pool.free:
            victim = self._running.pop()
            self._pool.release(victim, victim.holds)
            victim.preemptions += 1
            self._waiting.appendleft(victim)
            if victim is visit:
                return
        self._pool.take(visit, 1)
        visit.holds = (len(visit.held) - 1) * self._room.block_size + 1

    def _at(self, moment: float, kind: int, visit: _Visit) -> None:
        heapq.heappush(self._events, (moment, kind, next(self._order), visit, visit.preemptions))

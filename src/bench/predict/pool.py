"""Where a server keeps the keys and values of its requests: blocks or slots, with or without a prefix cache."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol

from bench.predict.state import Limits, Request

__all__ = ["Pool", "pool_of"]

_Key = tuple[int, int]  # of what a block holds: a stream of tokens, and the block's place in it
_SHARED = -1  # the stream that all prompts begin with; conversations have their numbers, outputs those below this one


class Pool(Protocol):
    """What a server has room in. Attributes: free: blocks that no running request holds; infinite where slots are what is short."""

    @property
    def free(self) -> float: ...

    def prime(self, tokens: int) -> None:
        """Compute what all prompts begin with, as a request before the others."""

    def admit(self, request: Request, tokens: int) -> bool:
        """Give a request room for its first `tokens`, or refuse where too little is free. Sets its `start`, the tokens that a prefix
        cache serves, and its `left`.
        """

    def take(self, request: Request, blocks: int) -> None:
        """Give a request so many blocks more."""

    def release(self, request: Request, computed: int | None = None) -> None:
        """Take back what a request has. Args: computed: tokens of one that will come back; None of one that has ended."""


def pool_of(limits: Limits) -> Pool:
    """The room of a server with such limits."""
    if not limits.cached:
        return _Counted(limits)
    return _KeptSlots(limits.block_size) if limits.blocks is None else _CachedBlocks(limits.blocks, limits.block_size)


class _Counted:
    """Blocks, or slots, without a prefix cache."""

    def __init__(self, limits: Limits) -> None:
        self.free: float = math.inf if limits.blocks is None else limits.blocks - 1
        self._size = limits.block_size

    def prime(self, tokens: int) -> None:
        pass

    def admit(self, request: Request, tokens: int) -> bool:
        need = -(-tokens // self._size)
        if need > self.free:
            return False
        self.take(request, need)
        request.start, request.left = 0, tokens
        return True

    def take(self, request: Request, blocks: int) -> None:
        request.blocks += blocks
        self.free -= blocks

    def release(self, request: Request, computed: int | None = None) -> None:  # noqa: ARG002 - nothing is reused
        self.free += request.blocks
        request.blocks = 0


class _KeptSlots:
    """Slots with a prefix cache that keeps all that it has seen.

    Source: llama.cpp's server takes the slot whose prompt is most alike, and keeps the prompts of slots that are taken over in memory.
    """

    free = math.inf

    def __init__(self, size: int) -> None:
        self._size = size
        self._had: dict[int, int] = {}  # prompt tokens of each conversation
        self._shared = 0

    def prime(self, tokens: int) -> None:
        self._shared = tokens

    def admit(self, request: Request, tokens: int) -> bool:
        plan = request.plan
        had = max(self._had.get(plan.conversation, 0), min(plan.shared_tokens, self._shared))
        request.start = min(plan.reusable_tokens, had, tokens - 1) // self._size * self._size
        request.left = tokens - request.start
        self._had[plan.conversation] = plan.prompt_tokens
        self._shared = max(self._shared, plan.shared_tokens)
        return True

    def take(self, request: Request, blocks: int) -> None:
        pass

    def release(self, request: Request, computed: int | None = None) -> None:
        pass


class _CachedBlocks:
    """Blocks whose contents are reused by requests that begin alike, until they are evicted.

    Source: vLLM V1's `BlockPool` and `KVCacheManager`: full blocks of a prompt are found from their allocation on; a prompt reuses the
    longest run of them without its last token; blocks that several requests hold count once; freed ones wait in a queue, the tail of a
    request first, and are evicted from its front.
    """

    def __init__(self, blocks: int, size: int) -> None:
        self._size = size
        self._holders = [0] * blocks
        self._queue = OrderedDict.fromkeys(range(1, blocks))  # free ones; block 0 is never given out
        self._block_of: dict[_Key, int] = {}
        self._key_of: dict[int, _Key] = {}

    @property
    def free(self) -> float:
        return len(self._queue)

    def prime(self, tokens: int) -> None:
        blocks = [self._evicted() for _ in range(tokens // self._size)]
        for place, block in enumerate(blocks):
            self._keep(block, (_SHARED, place))
        self._queue.update(dict.fromkeys(reversed(blocks)))

    def admit(self, request: Request, tokens: int) -> bool:
        hits: list[int] = []
        for key in self._keys(request, (tokens - 1) // self._size):  # the last token is computed, so that there is an answer
            block = self._block_of.get(key)
            if block is None:
                break
            hits.append(block)
        new = -(-tokens // self._size) - len(hits)
        if new + sum(not self._holders[block] for block in hits) > len(self._queue):
            return False
        for block in hits:
            if not self._holders[block]:
                del self._queue[block]
            self._holders[block] += 1
        request.held = [*hits]
        self.take(request, new)
        for place, key in enumerate(self._keys(request, tokens // self._size)):
            if place >= len(hits):
                self._keep(request.held[place], key)
        request.start = len(hits) * self._size
        request.left = tokens - request.start
        return True

    def take(self, request: Request, blocks: int) -> None:
        for _ in range(blocks):
            block = self._evicted()
            self._holders[block] = 1
            request.held.append(block)

    def release(self, request: Request, computed: int | None = None) -> None:
        held, request.held = request.held, []
        if computed is not None:  # its own output is found when it comes back; what was not computed is not
            whole = computed // self._size
            for place, key in enumerate(self._keys(request, whole)):
                self._keep(held[place], key)
            for block in held[whole:]:
                if self._holders[block] == 1:
                    self._forget(block)
        for block in reversed(held):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._queue[block] = None

    def _keys(self, request: Request, count: int) -> Iterator[_Key]:
        """What its first full blocks hold: what all prompts share, what its conversation does, and its own output."""
        plan, size = request.plan, self._size
        shared, prompt = plan.shared_tokens // size, plan.prompt_tokens // size
        for place in range(count):
            stream = _SHARED if place < shared else plan.conversation if place < prompt else _SHARED - 1 - plan.index
            yield stream, place

    def _keep(self, block: int, key: _Key) -> None:
        """Note what a block holds, so that it is found; of two with the same, the first."""
        if key not in self._block_of:
            self._forget(block)
            self._block_of[key], self._key_of[block] = block, key

    def _forget(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]

    def _evicted(self) -> int:
        block, _ = self._queue.popitem(last=False)
        self._forget(block)
        return block

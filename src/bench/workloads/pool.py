"""Where a server keeps the keys and values of its requests: blocks or slots, with or without a prefix cache."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import Protocol

from bench.workloads.schedule import PlannedRequest

_Key = tuple[int, int]  # of what a block holds: a stream of tokens, and the block's place in it
_ALIKE = 0.1  # share of a prompt that a slot must hold to be reused; source: llama.cpp's default for `--slot-prompt-similarity`
# number of the stream that all prompts begin with: conversations and blocks have theirs from 0 on, outputs below this one; convention
_SHARED = -1


class Holder(Protocol):
    """A request that has room, or waits for it.

    Attributes:
        plan: what it was to be. left: prompt tokens to be computed; start: of them, where the next chunk begins. blocks: that it has,
            where they are counted; held: those that it has, where a prefix cache tells them apart. preemptions: how often it lost them.
    """

    plan: PlannedRequest
    left: int
    start: int
    blocks: int
    held: list[int]
    preemptions: int


class Pool:
    """The room of a server: blocks, or slots, without a prefix cache.

    Attributes:
        free: blocks that no running request holds; infinite where slots are what is short.
    """

    free: float

    def __init__(self, blocks: int | None, size: int) -> None:
        self.free = math.inf if blocks is None else blocks - 1
        self._size = size

    def prime(self, tokens: int) -> None:
        """Compute what all prompts begin with, as a request before the others."""

    def admit(self, request: Holder, tokens: int) -> bool:
        """Give a request room for its first `tokens`, or refuse where too little is free. Sets its `start`, the tokens that a prefix
        cache serves, and its `left`.
        """
        need = -(-tokens // self._size)
        if need > self.free:
            return False
        self.take(request, need)
        request.start, request.left = 0, tokens
        return True

    def take(self, request: Holder, blocks: int) -> None:
        """Give a request more blocks."""
        request.blocks += blocks
        self.free -= blocks

    def release(self, request: Holder, computed: int) -> None:  # noqa: ARG002 - nothing is reused
        """Take back what a request has. Args: computed: tokens whose keys and values are there."""
        self.free += request.blocks
        request.blocks = 0


def pool_of(blocks: int | None, block_size: int, sequences: int, *, cached: bool) -> Pool:
    """The room of a server.

    Args:
        blocks: of its KV cache; None where each of `sequences` slots holds all that a request may need. block_size: tokens of a block.
        cached: whether prompt tokens that an earlier request had are not computed again.
    """
    if not cached:
        return Pool(blocks, block_size)
    return _CachedSlots(sequences) if blocks is None else _CachedBlocks(blocks, block_size)


def alike(one: PlannedRequest, other: PlannedRequest) -> int:
    """Tokens with which the prompts of two requests begin."""
    most = min(one.prompt_tokens, other.prompt_tokens)
    if one.blocks:
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.blocks, other.blocks, strict=False)))
        return min(most, same * one.block_tokens)
    return most if one.conversation == other.conversation else min(one.shared_tokens, other.shared_tokens)


class _CachedSlots(Pool):
    """Slots, each of which keeps the prompt that it had last.

    Source: llama.cpp's server: a request gets the free slot whose prompt begins most like its own, if that is more than a tenth of it,
    else the one that has been free for longest; what both have in common is not computed.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(None, 1)
        self._free = OrderedDict.fromkeys(range(slots))  # the longest free first
        self._had: list[PlannedRequest | None] = [None] * slots

    def prime(self, tokens: int) -> None:
        self._had[0] = PlannedRequest(-1, _SHARED, tokens, 1, shared_tokens=tokens)
        self._free.move_to_end(0)

    def admit(self, request: Holder, tokens: int) -> bool:
        plan = request.plan
        slot = max(self._free, key=lambda each: self._common(each, plan))
        if self._common(slot, plan) <= _ALIKE * plan.prompt_tokens:
            slot = next(iter(self._free))
        request.start = min(self._common(slot, plan), tokens - 1)
        request.left = tokens - request.start
        del self._free[slot]
        self._had[slot], request.held = plan, [slot]
        return True

    def take(self, request: Holder, blocks: int) -> None:
        pass

    def release(self, request: Holder, computed: int) -> None:  # noqa: ARG002 - nobody's prompt begins with an answer
        (slot,) = request.held
        self._free[slot] = None

    def _common(self, slot: int, plan: PlannedRequest) -> int:
        had = self._had[slot]
        return 0 if had is None else alike(had, plan)


class _CachedBlocks(Pool):
    """Blocks whose contents are reused by requests that begin alike, until they are evicted.

    Source: vLLM V1's `BlockPool` and `KVCacheManager`: full blocks of a prompt are found from their allocation on; a prompt reuses the
    longest run of them without its last token; blocks that several requests hold count once. Freed full blocks wait at the end of a
    queue, the tail of a request first, and are evicted from its front; those that are not full go to the front.
    """

    def __init__(self, blocks: int, size: int) -> None:
        self._size = size
        self._holders = [0] * blocks
        self._queue = OrderedDict.fromkeys(range(1, blocks))  # free ones; block 0 is never given out
        self._blocks_of: dict[_Key, dict[int, None]] = {}
        self._key_of: dict[int, _Key] = {}

    @property
    def free(self) -> float:  # type: ignore[override]
        return len(self._queue)

    def prime(self, tokens: int) -> None:
        blocks = [self._evicted() for _ in range(min(tokens // self._size, len(self._queue)))]
        for place, block in enumerate(blocks):
            self._keep(block, (_SHARED, place))
        self._queue.update(dict.fromkeys(reversed(blocks)))

    def admit(self, request: Holder, tokens: int) -> bool:
        needed, plan = -(-tokens // self._size), request.plan
        known = tokens if request.preemptions or plan.blocks else plan.reusable_tokens
        if needed - known // self._size > len(self._queue):  # whatever it finds
            return False
        hits = self._found(request, (tokens - 1) // self._size)  # the last token is computed, so that there is an answer
        if needed - len(hits) + sum(not self._holders[block] for block in hits) > len(self._queue):
            return False
        for block in hits:
            if not self._holders[block]:
                del self._queue[block]
            self._holders[block] += 1
        request.held = [*hits]
        self.take(request, needed - len(hits))
        self._keep_all(request, tokens)
        request.start = len(hits) * self._size
        request.left = tokens - request.start
        return True

    def take(self, request: Holder, blocks: int) -> None:
        for _ in range(blocks):
            block = self._evicted()
            self._holders[block] = 1
            request.held.append(block)

    def release(self, request: Holder, computed: int) -> None:
        self._keep_all(request, computed)  # its output too: it may come back
        held, request.held = request.held, []
        for block in held[computed // self._size :]:
            if self._holders[block] == 1:
                self._forget(block)
        for block in held:
            self._holders[block] -= 1
        freed = [block for block in reversed(held) if not self._holders[block]]
        for block in freed:
            self._queue[block] = None
        for block in reversed(freed):
            if block not in self._key_of:
                self._queue.move_to_end(block, last=False)

    def _found(self, request: Holder, most: int) -> list[int]:
        """The blocks that hold its first tokens, without a gap."""
        blocks: list[int] = []
        for key in self._keys(request, most):
            if key not in self._blocks_of:
                break
            blocks.append(next(iter(self._blocks_of[key])))
        return blocks

    def _keys(self, request: Holder, count: int) -> Iterator[_Key]:
        """Keys of its first full blocks: what all prompts share, its conversation's or its chain's tokens, and its own output."""
        plan, size = request.plan, self._size
        shared, prompt = plan.shared_tokens // size, plan.prompt_tokens // size
        for place in range(count):
            if place >= prompt:
                stream = _SHARED - 1 - plan.index
            elif plan.blocks:  # the number of the block with its last token says all that comes before
                stream = plan.blocks[(place * size + size - 1) // plan.block_tokens]
            else:
                stream = _SHARED if place < shared else plan.conversation
            yield stream, place

    def _keep_all(self, request: Holder, tokens: int) -> None:
        """Enter the blocks that are full with that many tokens, so that they are found."""
        for block, key in zip(request.held, self._keys(request, tokens // self._size), strict=False):
            self._keep(block, key)

    def _keep(self, block: int, key: _Key) -> None:
        if block not in self._key_of:
            self._key_of[block] = key
            self._blocks_of.setdefault(key, {})[block] = None

    def _forget(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._blocks_of[key][block]
            if not self._blocks_of[key]:
                del self._blocks_of[key]

    def _evicted(self) -> int:
        block, _ = self._queue.popitem(last=False)
        self._forget(block)
        return block

"""What goes through the layers together: a step as a whole, or on llama.cpp's slots the passes that it falls into.

Source: llama.cpp's `llama_kv_cache::init_batch` and `llama_batch_allocr::split_equal`. Where each slot has a KV cache of its own, a
step falls into passes of at most `--ubatch-size` tokens, in each of which the slots are consecutive and have as many tokens each.

Which slots are busy depends on who was served before. The passes are those of slots taken at random, in the mean; those of a measured
run only until one step ends all requests of a full server: from then on its slots are known.

By `llama_kv_cache::get_n_kv`, all decodes of a pass read as many cells as its longest slot has, in steps of 256.

Two simplifications: prompts have passes of their own, whereas the engine computes a token of each together with the decodes beside
it; and the prompts of a step count as equally long.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import lru_cache

from bench.predict.limits import Limits

_CELLS = 256  # cells of a slot's KV cache that are read at a time; source: llama.cpp's `llama_kv_cache::get_n_kv`
#: How many requests each have slots side by side.
Groups = Sequence[int]
#: (tokens that go through the layers together, how many such passes, in the mean)
Passes = tuple[tuple[float, float], ...]


def cells(tokens: int) -> int:
    """Cells of a slot's KV cache that are read where it holds so many tokens."""
    return -(-tokens // _CELLS) * _CELLS


@lru_cache(maxsize=4096)
def runs(busy: int, slots: int, most: int | None = None) -> Passes:
    """Runs of neighbouring busy slots: (slots of a run, how many there are in the mean), where any `busy` of `slots` are.

    Source: the gaps between the idle slots are a random composition of `busy` into `slots` - `busy` + 1 parts.

    Args:
        most: slots of a run, beyond which it is divided.
    """
    gaps = slots - busy + 1
    if busy == 0 or gaps <= 1:
        found = {busy: 1.0} if busy else {}
    else:
        every = math.comb(busy + gaps - 1, gaps - 1)
        found = {size: gaps * math.comb(busy - size + gaps - 2, gaps - 2) / every for size in range(1, busy + 1)}
    divided: dict[int, float] = {}
    for size, number in found.items():
        for begun in range(0, size, most or size):
            part = min(most or size, size - begun)
            divided[part] = divided.get(part, 0.0) + number
    return tuple((float(size), number) for size, number in sorted(divided.items()))


class Neighbours:
    """Which slots requests have, as far as that is known.

    A request gets the slot that has been free for longest; those that one step frees are freed in their order.
    """

    def __init__(self, limits: Limits) -> None:
        self._slots, self._most = limits.sequences, limits.pass_tokens or limits.sequences
        self._free: deque[int] | None = None  # the longest free first; None while unknown
        self._of: dict[int, int] = {}  # by request; -1 while unknown

    def take(self, request: int) -> None:
        """Give a request a slot."""
        if not self._free:  # stamps may show more requests than there are slots
            self._free, self._of = None, dict.fromkeys(self._of, -1)
        self._of[request] = self._free.popleft() if self._free else -1

    def free(self, requests: Iterable[int]) -> None:
        """Free the slots of requests that one step ended."""
        slots = sorted(self._of.pop(request) for request in requests)
        if len(slots) == self._slots and not self._of:
            self._free = deque(range(self._slots))
        elif self._free is not None:
            self._free.extend(slots)

    def beside(self, requests: Iterable[int]) -> Groups | None:
        """How many of the requests have slots side by side each time, as far as they fit into a pass; None while that is unknown."""
        if self._free is None:
            return None
        found: list[int] = []
        last = -math.inf
        for slot in sorted(self._of[request] for request in requests):
            if slot == last + 1 and found[-1] < self._most:
                found[-1] += 1
            else:
                found.append(1)
            last = slot
        return found


def passes_of(limits: Limits, decodes: int, prompts: int, prefill: int, beside: tuple[Groups, Groups] | None = None) -> Passes:
    """The passes that a step of slots falls into; a single one of no tokens where nothing is computed.

    Args:
        prompts: of which `prefill` tokens are computed. beside: as of `Neighbours`, of the decodes and of the prompts.
    """
    slots, most = limits.sequences, limits.pass_tokens
    if beside is None:
        found, sizes = list(runs(decodes, slots, most)), list(runs(prompts, slots, most))
    else:
        found, sizes = ([(float(size), 1.0) for size in each] for each in beside)
    if prefill and most is not None:
        number = sum(count * math.ceil(prefill / prompts / (most // int(size))) for size, count in sizes)
        found.append((prefill / number, number))
    return tuple(found) or ((0.0, 1.0),)


def context_read(limits: Limits, held: Iterable[int]) -> float:
    """Tokens of context that the decodes of a step of slots read. Args: held: tokens of each."""
    levels = sorted(Counter(cells(tokens + 1) for tokens in held).items())
    return _longest(tuple(levels), limits.sequences, limits.pass_tokens)


@lru_cache(maxsize=65536)
def _longest(levels: tuple[tuple[int, int], ...], slots: int, most: int | None) -> float:
    """Cells that are read where each slot of a pass reads as many as its longest has.

    Args:
        levels: (cells, slots with so many). most: slots of a pass.
    """
    busy, total = sum(count for _, count in levels), 0.0
    for size, number in runs(busy, slots, most):
        below, before, longest = 0, 0.0, 0.0
        for level, count in levels:
            below += count
            share = math.comb(below, int(size)) / math.comb(busy, int(size))
            longest += level * (share - before)
            before = share
        total += number * size * longest
    return total

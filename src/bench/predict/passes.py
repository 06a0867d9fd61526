"""What goes through the layers together: a step as a whole, or on llama.cpp's slots the passes that it falls into.

Source: llama.cpp's `llama_kv_cache::init_batch` and `llama_batch_allocr::split_equal`. Where each slot has a KV cache of its own, a
step falls into passes of at most `--ubatch-size` tokens, in each of which the slots are consecutive and have as many tokens each. By
`llama_kv_cache::get_n_kv`, all tokens of a pass read as many cells as its longest slot has, in steps of 256.

Which slots are busy depends on who was served before; the passes are those of slots taken at random, in the mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from bench.predict.state import Limits

__all__ = ["Passes", "cells", "context_read", "passes_of", "prompt_read", "runs"]

_CELLS = 256  # of a slot's KV cache are read at a time
#: (tokens that go through the layers together, how many such passes, in the mean)
Passes = tuple[tuple[float, float], ...]


def cells(tokens: int) -> int:
    """Cells of a slot's KV cache that are read where it holds so many tokens."""
    return -(-tokens // _CELLS) * _CELLS


@lru_cache(maxsize=4096)
def runs(busy: int, slots: int) -> Passes:
    """Runs of neighbouring busy slots: (slots of a run, how many there are in the mean), where any `busy` of `slots` are.

    Source: the gaps between the idle slots are a random composition of `busy` into `slots` - `busy` + 1 parts.
    """
    gaps = slots - busy + 1
    if busy == 0 or gaps <= 1:
        return ((float(busy), 1.0),) if busy else ()
    every = math.comb(busy + gaps - 1, gaps - 1)
    return tuple((float(size), gaps * math.comb(busy - size + gaps - 2, gaps - 2) / every) for size in range(1, busy + 1))


@lru_cache(maxsize=4096)
def passes_of(limits: Limits, decodes: int, prompts: int, prefill: int) -> Passes:
    """The passes of a step. Args: prompts: of which `prefill` tokens are computed."""
    if limits.pass_tokens is None:
        return ((float(decodes + prefill), 1.0),)
    found = list(runs(decodes, limits.sequences))
    if prefill:
        groups = sum(number for _, number in runs(max(1, prompts), limits.sequences))
        number = groups * math.ceil(prefill / groups / limits.pass_tokens)
        found.append((prefill / number, number))
    return tuple(found)


def context_read(limits: Limits, held: Iterable[int]) -> float:
    """Tokens of context that the decodes of a step read. Args: held: by each of them, tokens."""
    if limits.pass_tokens is None:
        return float(sum(held))
    return _longest(tuple(sorted(Counter(cells(tokens + 1) for tokens in held).items())), limits.sequences)


def prompt_read(limits: Limits, start: int, count: int) -> float:
    """Tokens of context that so many tokens of a prompt read. Args: start: tokens before them."""
    return count * (start + count / 2) if limits.pass_tokens is None else float(count * cells(start + count))


@lru_cache(maxsize=65536)
def _longest(levels: tuple[tuple[int, int], ...], slots: int) -> float:
    """Cells that are read where each slot of a run reads as many as its longest has. Args: levels: (cells, slots with so many)."""
    busy, total = sum(count for _, count in levels), 0.0
    for size, number in runs(busy, slots):
        below, before, longest = 0, 0.0, 0.0
        for level, count in levels:
            below += count
            share = math.comb(below, int(size)) / math.comb(busy, int(size))
            longest += level * (share - before)
            before = share
        total += number * size * longest
    return total

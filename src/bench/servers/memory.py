"""What an engine makes of a device's memory: blocks of KV cache, and the load at which they are full.

The rules are vLLM's, as of 0.32 (`v1/core/kv_cache_utils.py`, `v1/kv_cache_interface.py`); sources:
docs/explanation/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.models.geometry import Geometry, of_states

Groups = tuple[tuple[int | None, int], ...]
_ALIGNMENT = 16  # tokens to a multiple of which blocks of hybrid models are rounded; source: vLLM's attention kernels


@dataclass(frozen=True)
class KvPool:
    """How the KV cache of one device is cut into blocks.

    Attributes:
        bytes_per_token: that one token holds on the device, over all layers.
        block_bytes: of one block: `block_size` tokens of the layers of one group, or their states.
        groups: window (tokens; None for none, 1 for a state) and number of groups of layers with it. A token takes a slot in each.
    """

    bytes_per_token: int
    block_size: int
    block_bytes: int
    groups: Groups

    def tokens(self, kv_bytes: int) -> int:
        """Slots of all blocks together. Where there are several groups, a token takes one in each."""
        return max(0, kv_bytes // self.block_bytes * self.block_size) if self.block_bytes else 0


def kv_pool(
    geometry: Geometry,
    *,
    dtype: str,
    tensor_parallel: int = 1,
    block_size: int = 16,
    layers: range | None = None,
    state_dtype: str | None = None,
) -> KvPool:
    """The pool of one of `tensor_parallel` devices.

    KV heads are dealt out over the devices; each holds at least one (a latent vector counts as one head, which every device holds).
    Layers of each window, and those with a state, stand in groups of equal size, padded where the numbers do not divide. Of n groups
    of one kind, each takes every n-th layer. A group of states has a window of one token, and blocks are as long as it takes for a
    state to fit one layer's. Where layers differ in what a token takes, each is counted with the most; vLLM packs them tighter.

    Args:
        layers: those of the device's pipeline stage; None for all. The groups are the whole model's; a block of the stage holds as many
            layers as the fullest of them has there.
        state_dtype: of the model, in which states are kept; `dtype` where it is not given.
    """
    shares = {
        kind: max(held // tensor_parallel, held // kind.kv_heads)
        for kind, _ in geometry.attention_kinds
        if (held := kind.size(dtype))
    }
    alike: dict[int | None, list[int]] = {}  # layers, by their window
    for i, attention in enumerate(geometry.attentions):
        if attention in shares:
            alike.setdefault(attention.window, []).append(i)
    widest = max(shares.values())
    kept = of_states(state_dtype or dtype)
    stateful = [i for i, state in enumerate(geometry.states) if state]
    page = -(-max((state.size(kept) for state in geometry.states if state), default=0) // tensor_parallel)
    if stateful:
        block_size = max(block_size, _ALIGNMENT * -(-page // (_ALIGNMENT * widest)))
    kinds = [*alike.items(), *([(1, stateful)] if stateful else [])]
    smallest, largest = min(len(members) for _, members in kinds), max(len(members) for _, members in kinds)
    size = largest if largest < 1.5 * smallest else smallest
    groups = [(window, -(-len(members) // size)) for window, members in kinds]
    if layers is not None:
        size = max(
            sum(i in layers for i in members[first::count])
            for (_, members), (_, count) in zip(kinds, groups, strict=True)
            for first in range(count)
        )
    present = geometry.attentions if layers is None else [geometry.attentions[i] for i in layers]
    total = sum(shares.get(kind, 0) for kind in present if kind)
    return KvPool(
        bytes_per_token=total,
        block_size=block_size,
        block_bytes=block_size * (total if len(kinds) == 1 else size * widest),
        groups=tuple(groups),
    )


def predicted_saturation(
    kv_tokens: int, tokens_per_request: float, block_size: int = 1, groups: Groups = ((None, 1),)
) -> float:
    """Requests whose whole context fits the KV cache at once: its blocks ÷ blocks a request.

    Args:
        kv_tokens: capacity of the KV cache (token slots, as an engine tells them: blocks × tokens a block).
        tokens_per_request: prompt + output of one request, the mean where they differ (tokens).
        block_size: tokens in a block; a request holds whole blocks.
        groups: of `KvPool`; in a group with a window, a request holds the blocks that the window can touch.

    Returns:
        Concurrency at which the cache is full. Of several engines' tokens together it is what all of them hold: dealt out unevenly, the
        requests fill the first engine before that.
    """
    blocks = 0.0
    for window, count in groups:
        held = -(-tokens_per_request // block_size)
        blocks += count * (held if window is None else min(held, -(-(window - 1) // block_size) + 1))
    return kv_tokens / (blocks * block_size)

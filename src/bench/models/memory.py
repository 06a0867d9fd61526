"""What an engine makes of a device's memory: blocks of KV cache, and the load at which they are full.

The rules are vLLM's, as of 0.32 (`v1/core/kv_cache_utils.py`, `v1/kv_cache_interface.py`); sources:
docs/explanation/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.models.geometry import Geometry, layer_kv_bytes

__all__ = ["KvPool", "kv_pool", "predicted_saturation"]

Groups = tuple[tuple[int | None, int], ...]


@dataclass(frozen=True)
class KvPool:
    """How the KV cache of one device is cut into blocks.

    Attributes:
        bytes_per_token: that one token holds on the device, over all layers.
        block_bytes: of one block: `block_size` tokens of the layers of one group.
        groups: window (tokens; None for none) and number of groups of layers with it. A token takes a slot in each group.
    """

    bytes_per_token: int
    block_size: int
    block_bytes: int
    groups: Groups

    def tokens(self, kv_bytes: int) -> int:
        """Slots of all blocks together. Where there are several groups, a token takes one in each."""
        return max(0, kv_bytes // self.block_bytes * self.block_size)


def kv_pool(
    geometry: Geometry, *, dtype: str, tensor_parallel: int = 1, block_size: int = 16, layers: range | None = None
) -> KvPool:
    """The pool of one of `tensor_parallel` devices.

    KV heads are dealt out over the devices; each holds at least one (a latent vector counts as one head, which every device holds).
    Layers with a window and layers without stand in groups of equal size, padded where the numbers do not divide. Of n groups with one
    window, each takes every n-th layer.

    Args:
        layers: those of the device's pipeline stage; None for all. The groups are the whole model's; a block of the stage holds as many
            layers as the fullest of them has there.
    """
    layer = layer_kv_bytes(geometry, dtype)
    share = max(layer // tensor_parallel, layer // geometry.kv_heads)
    counts = {window: geometry.windows.count(window) for window in dict.fromkeys(geometry.windows)}
    smallest, largest = min(counts.values()), max(counts.values())
    size = largest if largest < 1.5 * smallest else smallest
    groups = {window: -(-count // size) for window, count in counts.items()}
    if layers is not None:
        alike = {window: [i for i, other in enumerate(geometry.windows) if other == window] for window in groups}
        size = max(
            sum(i in layers for i in alike[window][first::count]) for window, count in groups.items() for first in range(count)
        )
    return KvPool(
        bytes_per_token=(geometry.layers if layers is None else len(layers)) * share,
        block_size=block_size,
        block_bytes=size * share * block_size,
        groups=tuple(groups.items()),
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
        Concurrency at which the cache is full. It holds for exact output lengths; where outputs stop early, use the
        lengths seen. Of several engines' tokens together it is what all of them hold: dealt out unevenly, the requests fill the first
        engine before that.
    """
    blocks = 0.0
    for window, count in groups:
        held = -(-tokens_per_request // block_size)
        blocks += count * (held if window is None else min(held, -(-(window - 1) // block_size) + 1))
    return kv_tokens / (blocks * block_size)

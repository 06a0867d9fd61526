"""The fastest that a device could prefill and decode a model, from its bandwidth and FLOP/s: ceilings, never forecasts.

Decode reads the weights once a step, and each sequence's KV cache; prefill multiplies. Whatever else an engine does comes on top.
Source: Williams, Waterman and Patterson 2009 (roofline); the counting of FLOPs is that of Kaplan et al. 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.models.geometry import Geometry, kv_bytes_of_sequence

__all__ = ["Roofline"]


@dataclass(frozen=True)
class Roofline:
    """A model on devices that share its layers without any loss.

    Attributes:
        geometry: the model's. weights: bytes of all its weights. active_weights: bytes of those that one token passes through.
        kv_dtype: of the KV cache. bandwidth: bytes/s of all devices together. flops: FLOP/s of all together, for the weights' dtype.
    """

    geometry: Geometry
    weights: int
    active_weights: int
    kv_dtype: str
    bandwidth: float
    flops: float

    @property
    def ridge(self) -> float:
        """FLOP a byte from which arithmetic and no longer memory is the limit."""
        return self.flops / self.bandwidth

    def decode(self, sequences: float = 1, context: float = 0) -> float:
        """Output tokens/s of a batch.

        The larger of two times is a step's: that of reading the weights (of a mixture of experts: one token's share for one sequence,
        all of them for more, which so many tokens touch between them) and every sequence's KV cache, and that of the arithmetic.

        Args:
            sequences: in the batch. context: tokens that each holds.
        """
        weights = self.active_weights if sequences <= 1 else self.weights
        reading = (weights + sequences * self._kv_bytes(context)) / self.bandwidth
        computing = sequences * self._flop(context) / self.flops
        return sequences / max(reading, computing)

    def prefill(self, tokens: int) -> float:
        """Prompt tokens/s of prompts of `tokens`: a token attends to half of the prompt in the mean."""
        return self.flops / self._flop(tokens / 2)

    def _flop(self, context: float) -> float:
        """Of one token: 2 a parameter that it passes through, and 4 × heads × head_dim a layer for each token that it attends to."""
        g = self.geometry
        attended = sum(context if window is None else min(context, window) for window in g.windows)
        return 2 * g.active_parameters + 4 * g.heads * g.head_dim * attended

    def _kv_bytes(self, context: float) -> int:
        return kv_bytes_of_sequence(self.geometry, round(context), self.kv_dtype)

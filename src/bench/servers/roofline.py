"""The fastest that a GPU could prefill and decode a model, from its bandwidth and FLOP/s: ceilings, never forecasts.

Decode reads the weights once a step, and each sequence's KV cache; prefill multiplies. What layers compute of a state is left out, and
whatever else an engine does.
Source: Williams, Waterman and Patterson 2009 (roofline); FLOPs are counted as by Kaplan et al. 2020, without embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.models.geometry import Geometry, kv_bytes_of_sequence


@dataclass(frozen=True)
class Roofline:
    """A model on GPUs that share its layers without any loss.

    Attributes:
        geometry: the model's. weights: bytes of all its weights. active_weights: bytes of those that one token passes through.
        kv_dtype: of the KV cache. kv_copies: how often the GPUs together hold it: more than once where they outnumber KV heads.
        bandwidth: bytes/s of all GPUs together. flops: FLOP/s of all together, for the weights' dtype.
    """

    geometry: Geometry
    weights: int
    active_weights: int
    kv_dtype: str
    kv_copies: float
    bandwidth: float
    flops: float

    @property
    def ridge(self) -> float:
        """FLOP a byte from which arithmetic and no longer memory is the limit."""
        return self.flops / self.bandwidth

    def decode(self, sequences: float = 1, context: float = 0) -> float:
        """Output tokens/s of a batch: the larger of two times is a step's, that of reading and that of the arithmetic.

        A step reads the weights and every sequence's KV cache. Of a mixture of experts it reads one token's share for each sequence,
        and no more than all; tokens that choose the same experts read less.

        Args:
            sequences: in the batch. context: tokens that each holds.
        """
        kv_bytes = self.kv_copies * kv_bytes_of_sequence(self.geometry, round(context), self.kv_dtype)
        reading = (self._read(sequences) + sequences * kv_bytes) / self.bandwidth
        attended = sum(
            layers * kind.heads * kind.pairs[1] * _held(context, kind.window) for kind, layers in self.geometry.attention_kinds
        )
        flop = self._linear_flop() + self._output_flop() + 2 * attended
        return sequences / max(reading, sequences * flop / self.flops)

    def prefill(self, tokens: int) -> float:
        """Prompt tokens/s of many prompts of `tokens` together, which the arithmetic alone limits."""
        return tokens * self.flops / self._prompt_flop(tokens)

    def first_token(self, tokens: int) -> float:
        """Least time (s) until one prompt of `tokens` is computed: of the arithmetic, or of reading the weights once."""
        return max(self._prompt_flop(tokens) / self.flops, self._read(tokens) / self.bandwidth)

    def _read(self, tokens: float) -> float:
        """Bytes of weights that `tokens` pass through between them, at most."""
        return min(self.weights, tokens * self.active_weights)

    def _prompt_flop(self, tokens: int) -> float:
        """FLOP of one prompt. The output layer is computed for its last token alone."""
        attended = sum(
            layers * kind.heads * kind.pairs[0] * _attended(tokens, kind.window)
            for kind, layers in self.geometry.attention_kinds
        )
        return tokens * self._linear_flop() + self._output_flop() + 2 * attended

    def _linear_flop(self) -> int:
        """FLOP of one token: two for each linear parameter that it passes through."""
        return 2 * ((self.geometry.active_parameters or 0) - self.geometry.tables)

    def _output_flop(self) -> int:
        return 2 * self.geometry.vocabulary * self.geometry.hidden_size


def _held(tokens: float, window: int | None) -> float:
    return tokens if window is None else min(tokens, window)


def _attended(tokens: int, window: int | None) -> float:
    """Pairs of a prompt's tokens and those that they see, themselves among them: 1 + 2 + … up to the window, then the window."""
    held = _held(tokens, window)
    return held * (held + 1) / 2 + (tokens - held) * held

"""A decoder as its family's reader finds it, and which of its layers do what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.models.parts import Config, Layer


@dataclass(frozen=True)
class Decoder:
    """A family's layers, and what stands outside them.

    Attributes:
        once: parameters outside the layers that are no embeddings: norms, positions, biases.
        hidden, intermediate, vocabulary: where the configuration has them under other keys. spare: rows of the embeddings beside the
            vocabulary, which the output layer lacks.
    """

    layers: tuple[Layer, ...]
    once: int
    hidden: int | None = None
    intermediate: int | None = None
    vocabulary: int | None = None
    spare: int = 0


# Families in which each n-th layer sees all, where the configuration names no `layer_types`: the key of n, and its default.
_PATTERNS = {
    "cohere2": ("sliding_window_pattern", 4),
    "exaone4": ("sliding_window_pattern", 4),
    "gemma2": ("sliding_window_pattern", 2),
    "gemma3_text": ("sliding_window_pattern", 6),
    "gemma3n_text": ("sliding_window_pattern", 5),
    "gemma4_text": ("sliding_window_pattern", 6),
    "gpt_oss": ("sliding_window_pattern", 2),
    "llama4_text": ("no_rope_layer_interval", 4),
    "olmo3": ("sliding_window_pattern", 4),
}
# Families whose windows must be switched on, and then are those of the layers from `max_window_layers` on; and one without a switch.
_SWITCHED = {"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_vl_text", "qwen2_5_vl_text", "smollm3"}
_LATE = _SWITCHED | {"dots1"}
_SLIDING = {"sliding_attention", "chunked_attention", "sliding", "local"}


def window_of(c: Config, layer: int) -> int | None:
    """Tokens that the layer sees at most; None where it sees all.

    `layer_types` decides where it is stated; else the family's rule in transformers' configuration class; else all layers have the
    window that is stated, as in vLLM.
    """
    family = c.get("model_type")
    window = c.get("attention_chunk_size") if family == "llama4_text" else c.get("sliding_window")
    if family == "mimo_v2_flash":
        window = c.get("sliding_window_size") or window
    if not window:
        return None
    return int(window) if _slides(c, str(family), layer) else None


def _slides(c: Config, family: str, layer: int) -> bool:
    kinds = c.get("layer_types")
    last = layer == c["num_hidden_layers"] - 1
    if family in _SWITCHED and not c.get("use_sliding_window"):
        return False
    if kinds:
        return kinds[layer] in _SLIDING
    if family == "mimo_v2_flash":
        hybrid = c.get("hybrid_layer_pattern")
        return bool(hybrid[layer]) if hybrid else layer != 0 and (layer + 1) % 6 != 0
    if family == "llama4_text" and c.get("no_rope_layers"):
        return bool(c["no_rope_layers"][layer])
    if family in _PATTERNS:
        key, default = _PATTERNS[family]
        pattern = c.get(key) or default
        if isinstance(pattern, str):  # such as LLLG
            return pattern[layer % len(pattern)] == "L" and not last
        return (layer + 1) % pattern != 0 and not (last and family in ("exaone4", "gemma4_text"))
    return family not in _LATE or bool(layer >= (c.get("max_window_layers") or 0))


def dense_first(c: Config, layer: int) -> bool:
    """Whether the layer has experts: none of the first `first_k_dense_replace`, and of the others every `moe_layer_freq`-th."""
    kinds, every_nth = c.get("mlp_layer_types"), c.get("moe_layer_freq")
    if kinds:
        return bool(kinds[layer] == "sparse")
    if isinstance(every_nth, list):
        return bool(every_nth[layer])
    return layer >= (c.get("first_k_dense_replace") or 0) and layer % (every_nth or 1) == 0


def every(value: Any, layer: int) -> int:
    """A number that a configuration states for all layers, or one for each."""
    return int(value[layer] if isinstance(value, list) else value)

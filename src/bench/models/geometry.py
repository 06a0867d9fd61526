"""What a decoder weighs, from its shape alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.study import Architecture

__all__ = [
    "DTYPE_BYTES",
    "architecture_of_config",
    "kv_bytes_per_token",
    "parameters",
    "predicted_saturation",
]

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}


def kv_bytes_per_token(architecture: Architecture, dtype: str) -> int:
    """Bytes that one token holds in the KV cache, over all devices.

    2 (key and value) × layers × KV heads × head_dim × bytes an element. With KV heads fewer than tensor-parallel
    devices, engines replicate them; that is not counted here.

    Source: the definition used in vLLM's KV cache specification (page size over block size).
    """
    return 2 * architecture.layers * architecture.kv_heads * architecture.head_dim * DTYPE_BYTES[dtype]


def parameters(architecture: Architecture) -> int:
    """Parameters of a Llama-shaped decoder with this geometry: gated MLP, RMS norms, no biases, untied output layer."""
    a = architecture
    attention = a.hidden_size * a.head_dim * (2 * a.heads + 2 * a.kv_heads)
    layer = attention + 3 * a.hidden_size * a.intermediate_size + 2 * a.hidden_size
    return a.layers * layer + 2 * a.vocabulary * a.hidden_size + a.hidden_size


def predicted_saturation(kv_tokens: int, tokens_per_request: float, block_size: int = 1) -> float:
    """Requests whose whole context fits the KV cache at once: KV tokens ÷ tokens a request.

    Args:
        kv_tokens: capacity of the KV cache (tokens).
        tokens_per_request: prompt + output of one request, the mean where they differ (tokens).
        block_size: tokens in a block; a request holds whole blocks.

    Returns:
        Concurrency at which the cache is full. It holds for exact output lengths; where outputs stop early, use the
        lengths seen.
    """
    blocks = -(-tokens_per_request // block_size)
    return kv_tokens / (blocks * block_size)


def architecture_of_config(config: Mapping[str, Any]) -> Architecture:
    """Architecture facts from a checkpoint's `config.json` (the names that Llama-like models use).

    Raises:
        KeyError: the file lacks a name; the model is of a family that is not read here.
    """
    heads = config["num_attention_heads"]
    return Architecture(
        layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        intermediate_size=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        context=config["max_position_embeddings"],
    )

"""What a decoder weighs, from its shape alone."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DTYPE_BYTES", "Geometry", "kv_bytes_of_sequence", "kv_bytes_per_token", "layer_kv_bytes", "weight_bytes"]

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}


@dataclass(frozen=True)
class Geometry:
    """The facts of a decoder from which its memory follows, whatever its family.

    Attributes:
        family: `model_type` of its config.json.
        heads: query heads. kv_heads: heads of what the cache holds; 1 where all heads share it. head_dim: elements of one of those.
        latent: multi-head latent attention: the cache holds one compressed vector for keys and values together.
        windows: of each layer, tokens that it sees, and holds, at most; None where it sees all.
        intermediate_size: width of a dense layer's MLP.
        vocabulary: rows of the embeddings. context: longest sequence (tokens).
        parameters: all, an image encoder's too. active_parameters: those that one token passes through.
        linear_parameters: those in the linear layers of the decoder's layers, which are what a quantised checkpoint quantises.
        layer_parameters: the same of each layer. layer_experts: those of them in routed experts; 0 where a layer's MLP is dense.
        tied: whether the output layer is the embeddings.
        attended: multiply-adds of one query head with one earlier token, in prefill and in decode: 2 × head_dim, for query · key and
            weight × value. Latent attention unfolds keys and values in prefill, and works on the compressed vector in decode.
        quantised_bytes: bytes of one of the linear parameters in a quantised checkpoint; None where they have the dtype of the rest.
        exact: whether a reader of its own family counted; otherwise it was taken for Llama-shaped, and only the KV cache is sure.
    """

    family: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocabulary: int
    context: int
    parameters: int
    active_parameters: int
    linear_parameters: int
    layer_parameters: tuple[int, ...]
    layer_experts: tuple[int, ...]
    tied: bool
    windows: tuple[int | None, ...]
    attended: tuple[int, int]
    latent: bool = False
    quantised_bytes: float | None = None
    exact: bool = True

    @property
    def attention(self) -> str:
        """`MHA`, `GQA`, `MQA` or `MLA`."""
        if self.latent:
            return "MLA"
        return "MHA" if self.kv_heads == self.heads else "MQA" if self.kv_heads == 1 else "GQA"


def layer_kv_bytes(geometry: Geometry, dtype: str) -> int:
    """Bytes that one token holds in one layer: key and value (MLA: one vector for both) × KV heads × head_dim × bytes an element."""
    vectors = 1 if geometry.latent else 2
    return vectors * geometry.kv_heads * geometry.head_dim * DTYPE_BYTES[dtype]


def kv_bytes_per_token(geometry: Geometry, dtype: str) -> int:
    """Bytes that one token holds in the KV cache, over all layers and devices, while no window has passed over it.

    2 (key and value) × layers × KV heads × head_dim × bytes an element; with MLA, layers × (kv_lora_rank + qk_rope_head_dim) × bytes.
    Where there are fewer KV heads than tensor-parallel devices, engines replicate them; that is not counted here.

    Source: the definition used in vLLM's KV cache specification (page size over block size).
    """
    return geometry.layers * layer_kv_bytes(geometry, dtype)


def kv_bytes_of_sequence(geometry: Geometry, tokens: int, dtype: str) -> int:
    """Bytes that a sequence of `tokens` holds: a layer with a window holds no more than the window."""
    held = sum(tokens if window is None else min(tokens, window) for window in geometry.windows)
    return held * layer_kv_bytes(geometry, dtype)


def weight_bytes(geometry: Geometry, dtype: str) -> int:
    """Bytes of the weights as a server holds them, over all devices.

    The linear layers of a quantised checkpoint keep its type; embeddings, output layer, norms and routers have `dtype`.
    """
    full = DTYPE_BYTES[dtype]
    linear = geometry.linear_parameters * (geometry.quantised_bytes or full)
    return round(linear) + (geometry.parameters - geometry.linear_parameters) * full

"""What a decoder weighs, from its shape alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}  # bytes of a number; derived
# bytes of a block of 32 numbers with its scale, in llama.cpp's types of a quantised KV cache; source: ggml-common.h
BLOCK_BYTES = {"q8_0": 34, "q4_0": 18}
MXFP4 = 1 / 2 + 1 / 32  # bytes of a weight: four bits, and an exponent that 32 share; derived
_BLOCK = 32  # numbers of such a block; source: ggml-common.h, QK8_0 and QK4_0


@dataclass(frozen=True)
class Attention:
    """One attention of a layer, and what it keeps of a sequence.

    Attributes:
        heads: query heads. kv_heads: heads of what the cache holds; 1 where all query heads share it.
        width: elements that a token takes in each of those, keys and values together.
        pairs: multiply-adds of one query head with one earlier token, in prefill and in decode.
        window: tokens that it sees, and holds, at most; None where it sees all.
        latent: multi-head latent attention: the cache holds one compressed vector for keys and values together.
        shares: it reads the cache of an earlier layer and keeps none.
        beside: bytes of a token that lie beside its elements, whatever their type: the keys by which sparse attention chooses.
    """

    heads: int
    kv_heads: int
    width: int
    pairs: tuple[int, int]
    window: int | None = None
    latent: bool = False
    shares: bool = False
    beside: int = 0

    def size(self, dtype: str) -> int:
        """Bytes that one token adds to the cache."""
        if self.shares:
            return 0
        elements = self.kv_heads * self.width
        blocks = dtype in BLOCK_BYTES
        return (elements // _BLOCK * BLOCK_BYTES[dtype] if blocks else elements * DTYPE_BYTES[dtype]) + self.beside


@dataclass(frozen=True)
class State:
    """What a layer without a growing cache keeps of a sequence, however long: elements of its convolution and of its recurrence.

    Attributes:
        dtype: of the recurrence; None where it is the model's.
    """

    convolution: int
    recurrence: int
    dtype: str | None = None

    def size(self, dtype: str) -> int:
        """Bytes of one sequence, for a model of `dtype`."""
        each = DTYPE_BYTES[dtype]
        return self.convolution * each + self.recurrence * (DTYPE_BYTES[self.dtype] if self.dtype else each)


@dataclass(frozen=True)
class Experts:
    """Routed experts: `count` in each of `layers` layers, of which a token passes through `used`; `width` is an expert's inner width.

    Attributes:
        parameters: of all of them.
    """

    count: int
    used: int
    width: int
    layers: int
    parameters: int


@dataclass(frozen=True)
class Geometry:
    """The facts of a decoder from which its memory follows, whatever its family.

    Attributes:
        family: `model_type` of its config.json.
        layers: how many. heads, kv_heads, head_dim: of its first attention.
        intermediate_size: width of a dense layer's MLP. vocabulary: rows of the embeddings. context: longest sequence (tokens).
        attentions, states: of each layer; None where it has none.
        tied: whether the output layer is the embeddings.
        experts: None where every MLP is dense.
        quantised_bytes: of a quantised weight, scales included; None where none is quantised, nan where nothing here reads how.
        parameters: all; None where they are not known. stored: bytes of a quantised checkpoint's weights. estimated: how either was
            counted, where neither files nor a publisher say it.
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
    attentions: tuple[Attention | None, ...]
    states: tuple[State | None, ...]
    tied: bool
    experts: Experts | None = None
    quantised_bytes: float | None = None
    parameters: int | None = None
    stored: int | None = None
    estimated: str | None = None

    @property
    def weighed(self) -> bool:
        """Whether its weights' bytes are known."""
        return self.parameters is not None and (self.quantised_bytes is None or self.stored is not None)

    @property
    def mxfp4_bytes(self) -> float:
        """Bytes of its experts, where they are MXFP4, which engines pad; else 0."""
        return self.experts.parameters * MXFP4 if self.experts and self.quantised_bytes == MXFP4 else 0

    @property
    def tables(self) -> int:
        """Parameters of the embeddings and of the output layer."""
        return self.vocabulary * self.hidden_size * (1 if self.tied else 2)

    @property
    def active_parameters(self) -> int | None:
        """Parameters that one token passes through."""
        if self.parameters is None or self.experts is None:
            return self.parameters
        return self.parameters - round(self.experts.parameters * (1 - self.experts.used / self.experts.count))

    @property
    def dense_mlp(self) -> bool:
        """Whether a layer has an MLP without routed experts."""
        return self.intermediate_size > 0 and (self.experts is None or self.experts.layers < self.layers)

    def quantised(self, each: float) -> Geometry:
        """The model with all but its tables at `each` bytes a parameter."""
        if self.parameters is None:
            return self
        stored = round((self.parameters - self.tables) * each) + 2 * self.tables
        return replace(self, quantised_bytes=each, stored=stored)

    @cached_property
    def attention_kinds(self) -> tuple[tuple[Attention, int], ...]:
        """Each kind of attention, with how often the model has it."""
        return tuple(Counter(filter(None, self.attentions)).items())

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Of each attention that keeps a cache, tokens that it sees, and holds, at most; None where it sees all."""
        return tuple(attention.window for attention in self.attentions if attention and not attention.shares)

    @property
    def latent(self) -> bool:
        """Whether it has multi-head latent attention."""
        return any(attention.latent for attention, _ in self.attention_kinds)

    @property
    def attention(self) -> str:
        """`MHA`, `GQA`, `MQA` or `MLA`."""
        if self.latent:
            return "MLA"
        return "MHA" if self.kv_heads == self.heads else "MQA" if self.kv_heads == 1 else "GQA"


def kv_bytes_per_token(geometry: Geometry, dtype: str) -> int:
    """Bytes that one token holds in the KV cache, over all layers and devices, while no window has passed over it.

    The sum over the attentions of 2 (key and value) × KV heads × head_dim × bytes an element; with MLA, (kv_lora_rank +
    qk_rope_head_dim) × bytes, and what sparse attention keeps beside it. Layers without attention, and those that read another
    layer's cache, add nothing. Where there are fewer KV heads than tensor-parallel devices, engines replicate them; that is not
    counted here.

    Source: the definition used in vLLM's KV cache specification (page size over block size).
    """
    return sum(kind.size(dtype) * count for kind, count in geometry.attention_kinds)


def state_bytes_per_sequence(geometry: Geometry, dtype: str) -> int:
    """Bytes that linear-attention, state-space and convolution layers keep of a sequence, however long, over all devices.

    Args:
        dtype: of the model; a recurrence with a type of its own keeps that.

    Source: vLLM's `MambaStateShapeCalculator` and `MambaStateDtypeCalculator` (0.32).
    """
    return sum(state.size(dtype) for state in geometry.states if state)


def kv_bytes_of_sequence(geometry: Geometry, tokens: int, dtype: str, state_dtype: str | None = None) -> int:
    """Bytes that a sequence of `tokens` holds: a layer with a window holds no more than the window; states, if any, come on top.

    Args:
        dtype: of the cache. state_dtype: of the model, in which states are kept; `dtype` where it is not given.
    """
    held = sum(
        count * kind.size(dtype) * (tokens if kind.window is None else min(tokens, kind.window))
        for kind, count in geometry.attention_kinds
    )
    return held + state_bytes_per_sequence(geometry, state_dtype or of_states(dtype))


def of_states(dtype: str) -> str:
    """The type of a model's states beside a cache of `dtype`: 16 bit where that is quantised."""
    return "bfloat16" if dtype == "fp8" or dtype in BLOCK_BYTES else dtype


def weight_bytes(geometry: Geometry, dtype: str, *, active: bool = False) -> int:
    """Bytes of the weights as a server holds them, over all devices; 0 where they are not known.

    A quantised checkpoint has what its files have; any other `dtype` throughout.

    Args:
        active: only those that one token passes through.
    """
    if geometry.parameters is None or not geometry.weighed:
        return 0
    whole = geometry.parameters * DTYPE_BYTES[dtype] if geometry.stored is None else geometry.stored
    return round(whole * (geometry.active_parameters or 0) / geometry.parameters) if active else whole

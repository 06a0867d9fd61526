"""What a decoder weighs, from its shape alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}  # bytes of a number; derived
# bytes of a block of 32 numbers with its scale, in llama.cpp's types of a quantised KV cache; source: ggml-common.h
BLOCK_BYTES = {"q8_0": 34, "q4_0": 18}
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
class Weights:
    """Weights of matrices: how many, how many of those keep the type of the rest, and bytes of the others, scales included."""

    parameters: int = 0
    kept: int = 0
    stored: float = 0.0

    def __add__(self, other: Weights) -> Weights:
        return Weights(self.parameters + other.parameters, self.kept + other.kept, self.stored + other.stored)

    def size(self, full: float) -> float:
        """Bytes, where what is not quantised has `full` bytes each."""
        return self.kept * full + self.stored

    def part(self, share: float) -> Weights:
        """That share of them."""
        return Weights(round(self.parameters * share), round(self.kept * share), self.stored * share)

    def quantised(self, each: float) -> Weights:
        """All of them at `each` bytes."""
        return Weights(self.parameters, 0, self.parameters * each)


@dataclass(frozen=True)
class Geometry:
    """The facts of a decoder from which its memory follows, whatever its family.

    Attributes:
        family: `model_type` of its config.json.
        layers: how many. heads, kv_heads, head_dim: of its first attention; 0 where it has none.
        intermediate_size: width of a dense layer's MLP. vocabulary: rows of the embeddings. context: longest sequence (tokens).
        outside: parameters that are no matrix of a layer and no embedding: norms, biases, routers, convolutions, encoders.
        dense: matrices of each layer but routed experts, which are what a quantised checkpoint quantises. routed: of all its routed
            experts together. used: of those, the share that a token passes through.
        attentions: of each layer, none, one or more. states: of each layer; None where it has none.
        tied: whether the output layer is the embeddings.
        expert_width: inner width of a routed expert; 0 where there are none. experts_used: how many of them a token passes through in
            a layer. mxfp4: whether their matrices are MXFP4, which engines pad.
        unknown: why parameters or weights are not what is counted here; empty where they are.
        bound: `at least` or `at most`, where what is counted is that much of the weights' bytes all the same.
        file_bytes: of the checkpoint's weight files, where `unknown` says why the weights cannot be counted.
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
    outside: int
    dense: tuple[Weights, ...]
    routed: tuple[Weights, ...]
    used: float
    attentions: tuple[tuple[Attention, ...], ...]
    states: tuple[State | None, ...]
    tied: bool
    expert_width: int = 0
    experts_used: int = 0
    mxfp4: bool = False
    unknown: tuple[str, ...] = ()
    bound: str | None = None
    file_bytes: int | None = None

    @property
    def weighed(self) -> bool:
        """Whether its weights' bytes are known, or what is counted is more than they are."""
        return self.exact or self.file_bytes is not None or self.bound == "at most"

    @property
    def exact(self) -> bool:
        """Whether parameters and weights are known."""
        return not self.unknown

    @cached_property
    def linear(self) -> Weights:
        """All matrices of the layers."""
        return sum(self.dense, self.experts)

    @cached_property
    def experts(self) -> Weights:
        """The matrices of all routed experts."""
        return sum(self.routed, Weights())

    @property
    def linear_parameters(self) -> int:
        """Those in the matrices of the layers."""
        return self.linear.parameters

    @property
    def layer_experts(self) -> tuple[int, ...]:
        """Of each layer, those in routed experts; 0 where its MLP is dense."""
        return tuple(routed.parameters for routed in self.routed)

    @property
    def tables(self) -> int:
        """Parameters of the embeddings and of the output layer."""
        return self.vocabulary * self.hidden_size * (1 if self.tied else 2)

    @cached_property
    def parameters(self) -> int:
        """All, an encoder's too."""
        return self.linear.parameters + self.tables + self.outside

    @cached_property
    def active_parameters(self) -> int:
        """Those that one token passes through."""
        return self.parameters - round(self.experts.parameters * (1 - self.used))

    @cached_property
    def active(self) -> Weights:
        """Matrices that one token passes through."""
        return sum(self.dense, self.experts.part(self.used))

    @property
    def quantised_bytes(self) -> float | None:
        """Bytes of a quantised parameter, the mean; None where the checkpoint quantises none."""
        quantised = self.linear.parameters - self.linear.kept
        return self.linear.stored / quantised if quantised else None

    def quantised(self, each: float) -> Geometry:
        """The model with all its matrices at `each` bytes a parameter; made once, since plans ask for it again and again."""
        made: dict[float, Geometry] = self.__dict__.setdefault("_quantised", {})
        if each not in made:
            dense = tuple(weights.quantised(each) for weights in self.dense)
            made[each] = replace(self, dense=dense, routed=tuple(weights.quantised(each) for weights in self.routed))
        return made[each]

    @cached_property
    def attention_kinds(self) -> tuple[tuple[Attention, int], ...]:
        """Each kind of attention, with how often the model has it."""
        return tuple(Counter(attention for layer in self.attentions for attention in layer).items())

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Of each attention that keeps a cache, tokens that it sees, and holds, at most; None where it sees all."""
        return tuple(attention.window for layer in self.attentions for attention in layer if not attention.shares)

    @property
    def latent(self) -> bool:
        """Whether it has multi-head latent attention."""
        return any(attention.latent for attention, _ in self.attention_kinds)

    @property
    def attention(self) -> str:
        """`MHA`, `GQA`, `MQA` or `MLA`; `–` where no layer attends."""
        if self.latent:
            return "MLA"
        if not self.heads:
            return "–"
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
    """Bytes of the weights as a server holds them, over all devices.

    The matrices that a checkpoint quantises keep its type; embeddings, output layer, norms and routers have `dtype`.

    Args:
        active: only those that one token passes through.
    """
    full = DTYPE_BYTES[dtype]
    rest = (geometry.tables + geometry.outside) * full
    whole = round(geometry.linear.size(full)) + rest
    size = round(geometry.active.size(full)) + rest if active else whole
    return size if geometry.file_bytes is None else round(geometry.file_bytes * (size / whole))

"""What layers are made of: attention, recurrences, MLPs, experts; each with its matrices, by the names that checkpoints give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.models.geometry import Attention, State

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Matrix:
    """`count` matrices of `size` weights, `used` of which a token passes through; `name` as in the checkpoint, below its layer."""

    name: str
    size: int
    count: int = 1
    used: int = 1


@dataclass(frozen=True)
class Layer:
    """A layer, or a part of one. Parts add up.

    Attributes:
        other: parameters that are no matrix: norms, biases, routers, convolutions.
    """

    matrices: tuple[Matrix, ...] = ()
    other: int = 0
    attentions: tuple[Attention, ...] = ()
    state: State | None = None

    def __add__(self, more: Layer) -> Layer:
        return Layer(
            self.matrices + more.matrices, self.other + more.other, self.attentions + more.attentions, self.state or more.state
        )


def norms(width: int, count: int = 2, *, bias: bool = False) -> Layer:
    """`count` norms over `width`; LayerNorm with a bias has two vectors, RMSNorm one."""
    return Layer(other=count * width * (2 if bias else 1))


def attention(
    c: Config,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    value_dim: int | None = None,
    window: int | None = None,
    inputs: int | None = None,
    qkv_bias: bool = False,
    out_bias: bool = False,
    row_norms: bool = False,
    head_norms: bool = False,
    gate: int = 0,
    shares: bool = False,
    keyless: bool = False,
    valueless: bool = False,
    name: str = "self_attn",
) -> Layer:
    """Grouped-query attention with query, key, value and output projections.

    Args:
        inputs: width of what it reads, where that is not the hidden size. value_dim: of a value head, where it is not the key's.
        row_norms: norms over all query and all key heads. head_norms: over one head, shared by all.
        gate: columns of an output gate. shares: it reads an earlier layer's cache. keyless: and it has no key and value projection
            then. valueless: keys serve as values too, and are kept twice.
    """
    hidden = c["hidden_size"]
    heads = heads or c["num_attention_heads"]
    kv_heads = kv_heads or c.get("num_key_value_heads") or heads
    head_dim = head_dim or c.get("head_dim") or hidden // heads
    value_dim = value_dim or head_dim
    inputs = inputs or hidden
    queries, keys, values, out = heads * head_dim, kv_heads * head_dim, kv_heads * value_dim, heads * value_dim
    matrices = [Matrix(f"{name}.q_proj", inputs * queries), Matrix(f"{name}.o_proj", out * hidden)]
    if not keyless:
        matrices.insert(1, Matrix(f"{name}.k_proj", inputs * keys))
        if not valueless:
            matrices.insert(2, Matrix(f"{name}.v_proj", inputs * values))
    if gate:
        matrices.append(Matrix(f"{name}.g_proj", inputs * gate))
    other = (queries + (0 if keyless else keys + values) if qkv_bias else 0) + (hidden if out_bias else 0)
    other += queries + keys if row_norms else (1 if keyless else 2) * head_dim if head_norms else 0
    both = head_dim + value_dim
    kept = Attention(heads, kv_heads, both, (both, both), window, shares=shares)
    return Layer(tuple(matrices), other, (kept,))


def latent_attention(
    c: Config, *, query_norm: bool = True, gate: int = 0, indexer: bool = False, computes: bool = True
) -> Layer:
    """Multi-head latent attention, known by its keys: the cache holds `kv_lora_rank` + `qk_rope_head_dim` elements a token.

    Args:
        indexer: DeepSeek's sparse attention: small heads choose tokens; of their keys, `index_head_dim` bytes in FP8 and a float32
            scale lie beside each token in the cache, as vLLM and SGLang keep them. computes: whether this layer has the indexer.
    """
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    rank, rope, nope, value = c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"]
    query_rank = c.get("q_lora_rank")
    width = heads * (nope + rope)
    query = (
        [Matrix("self_attn.q_a_proj", hidden * query_rank), Matrix("self_attn.q_b_proj", query_rank * width)]
        if query_rank
        else [Matrix("self_attn.q_proj", hidden * width)]
    )
    matrices = [
        *query,
        Matrix("self_attn.kv_a_proj_with_mqa", hidden * (rank + rope)),
        Matrix("self_attn.kv_b_proj", rank * heads * (nope + value)),
        Matrix("self_attn.o_proj", heads * value * hidden),
    ]
    if gate:
        matrices.append(Matrix("self_attn.g_proj", hidden * gate))
    other = rank + (query_rank if query_rank and query_norm else 0)
    if c.get("attention_bias"):
        other += (query_rank or 0) + rank + rope + hidden
    if indexer and computes:
        small, size = c["index_n_heads"], c["index_head_dim"]
        matrices += [
            Matrix("self_attn.indexer.wq_b", (query_rank or hidden) * small * size),
            Matrix("self_attn.indexer.wk", hidden * size),
            Matrix("self_attn.indexer.weights_proj", hidden * small),
        ]
        other += 2 * size
    beside = c["index_head_dim"] + 4 if indexer and computes else 0
    kept = Attention(heads, 1, rank + rope, (nope + rope + value, rank + rope + rank), latent=True, beside=beside)
    return Layer(tuple(matrices), other, (kept,))


def mlp(
    c: Config, width: int | None = None, *, inputs: int | None = None, gated: bool = True, bias: bool = False, name: str = "mlp"
) -> Layer:
    """A dense MLP: three matrices where it is gated, else two."""
    hidden, width = inputs or c["hidden_size"], c["intermediate_size"] if width is None else width
    columns = ("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj")
    other = (len(columns) - 1) * width + hidden if bias else 0
    return Layer(tuple(Matrix(f"{name}.{column}", hidden * width) for column in columns), other)


def experts(
    c: Config,
    *,
    count: int,
    used: int,
    width: int,
    shared: int = 0,
    shared_gate: bool = False,
    gated: bool = True,
    bias: bool = False,
    router_bias: bool = False,
    latent: int | None = None,
    name: str = "mlp",
    shared_name: str = "shared_experts",
) -> Layer:
    """A router over `count` experts of `width`, `used` of which a token uses, and `shared` columns of an MLP that all tokens use.

    Args:
        latent: width of what the experts read, where it is not the hidden size.
    """
    hidden = c["hidden_size"]
    columns = ("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj")
    prefix = f"{name}." if name else ""
    routed = tuple(Matrix(f"{prefix}experts.0.{column}", (latent or hidden) * width, count, used) for column in columns)
    other = hidden * count + (count if router_bias else 0) + (hidden if shared_gate else 0)
    other += count * ((len(columns) - 1) * width + hidden) if bias else 0
    found = Layer(routed, other)
    if latent:
        found += Layer((Matrix(f"{name}.fc1_latent_proj", hidden * latent), Matrix(f"{name}.fc2_latent_proj", hidden * latent)))
    return found + mlp(c, shared, gated=gated, name=f"{name}.{shared_name}") if shared else found


def mamba1(
    c: Config,
    *,
    inner: int,
    state: int,
    kernel: int,
    rank: int,
    bias: bool,
    conv_bias: bool,
    normed: bool = False,
    name: str = "mamba",
) -> Layer:
    """Mamba's selective state space: a state of `inner` × `state`, and the last `kernel` − 1 inputs of its convolution."""
    hidden = c["hidden_size"]
    matrices = (
        Matrix(f"{name}.in_proj", hidden * 2 * inner),
        Matrix(f"{name}.x_proj", inner * (rank + 2 * state)),
        Matrix(f"{name}.dt_proj", rank * inner),
        Matrix(f"{name}.out_proj", inner * hidden),
    )
    other = inner * kernel + (inner if conv_bias else 0) + inner + inner * state + inner
    other += (2 * inner + hidden if bias else 0) + (rank + 2 * state if normed else 0)
    return Layer(matrices, other, state=State(inner * (kernel - 1), inner * state))


def mamba2(
    c: Config,
    *,
    inner: int,
    heads: int,
    head_dim: int,
    state: int,
    groups: int,
    kernel: int,
    bias: bool,
    conv_bias: bool,
    normed: bool = True,
    dtype: str | None = None,
    name: str = "mamba",
) -> Layer:
    """Mamba 2: a state of `heads` × `head_dim` × `state`, and the last `kernel` − 1 inputs of its convolution."""
    hidden, convolved = c["hidden_size"], inner + 2 * groups * state
    projected = inner + convolved + heads
    matrices = (Matrix(f"{name}.in_proj", hidden * projected), Matrix(f"{name}.out_proj", inner * hidden))
    other = convolved * kernel + (convolved if conv_bias else 0) + 3 * heads + (inner if normed else 0)
    other += projected + hidden if bias else 0
    return Layer(matrices, other, state=State(convolved * (kernel - 1), heads * head_dim * state, dtype))

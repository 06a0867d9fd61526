"""A reader of config.json for each family of models.

Parameters are counted tensor by tensor as transformers builds the modules, and defaults are transformers' too;
`tests/test_catalogue.py` compares them with the published counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.models.geometry import Geometry

__all__ = ["READERS", "Config", "llama"]

Config = Mapping[str, Any]


@dataclass(frozen=True)
class _Experts:
    """In `layers`, by their numbers, `count` experts of `each` parameters, `per_token` of which a token uses, and `shared` more."""

    layers: tuple[int, ...] = ()
    count: int = 0
    per_token: int = 0
    each: int = 0
    shared: int = 0


def _decoder(
    c: Config,
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    intermediate: int,
    context: int,
    attention: int,
    dense: int,
    other: int,
    once: int,
    tied: bool,
    experts: _Experts = _Experts(),
    latent: bool = False,
    attended: tuple[int, int] | None = None,
) -> Geometry:
    """Add up a decoder.

    Args:
        attention: weights of one layer's attention. dense: those of one dense MLP. other: norms and biases of one layer.
        once: norms and position embeddings outside the layers. tied: whether the output layer is the embeddings.
        attended: as in `Geometry`, where it is not 2 × head_dim.
    """
    routed = [experts.count * experts.each if i in experts.layers else 0 for i in range(layers)]
    each_layer = [attention + (some + experts.shared if some else dense) for some in routed]
    linear = sum(each_layer)
    routers = len(experts.layers) * hidden * experts.count
    embeddings = c["vocab_size"] * hidden * (1 if tied else 2)
    total = linear + layers * other + routers + embeddings + once
    return Geometry(
        family=str(c.get("model_type", "unknown")),
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=intermediate,
        vocabulary=c["vocab_size"],
        context=context,
        parameters=total,
        active_parameters=total - len(experts.layers) * (experts.count - experts.per_token) * experts.each,
        linear_parameters=linear,
        layer_parameters=tuple(each_layer),
        layer_experts=tuple(routed),
        tied=tied,
        windows=_windows(c, layers),
        latent=latent,
        attended=attended or (2 * head_dim, 2 * head_dim),
    )


def _windows(c: Config, layers: int) -> tuple[int | None, ...]:
    family = c.get("model_type")
    window = c.get("sliding_window", 4096 if family in ("mistral", "gemma3_text") else None)
    if str(family).startswith("qwen") and not c.get("use_sliding_window", False):
        window = None
    if "layer_types" in c:
        sees_all = [kind == "full_attention" for kind in c["layer_types"]]
    elif family == "gemma3_text":
        sees_all = [(i + 1) % c.get("sliding_window_pattern", 6) == 0 for i in range(layers)]
    elif str(family).startswith("qwen"):
        sees_all = [i < c.get("max_window_layers", 28) for i in range(layers)]
    else:
        sees_all = [False] * layers
    return tuple(None if full else window for full in sees_all)


def llama(
    c: Config,
    *,
    norms: int = 2,
    head_norms: bool = False,
    qkv_bias: bool = False,
    tied: bool = False,
    experts: _Experts = _Experts(),
) -> Geometry:
    """Llama and what is built like it: separate query, key, value and output, a gated MLP, `norms` RMS norms a layer."""
    hidden, heads, intermediate = c["hidden_size"], c["num_attention_heads"], c["intermediate_size"]
    kv_heads = c.get("num_key_value_heads") or heads
    head_dim = c.get("head_dim") or hidden // heads
    bias = head_dim * (heads + 2 * kv_heads) if qkv_bias or c.get("attention_bias") else 0
    bias += hidden if c.get("attention_bias") else 0
    bias += 2 * intermediate + hidden if c.get("mlp_bias") else 0
    return _decoder(
        c,
        layers=c["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        context=c["max_position_embeddings"],
        attention=hidden * head_dim * (2 * heads + 2 * kv_heads),
        dense=3 * hidden * intermediate,
        other=norms * hidden + (2 * head_dim if head_norms else 0) + bias,
        once=hidden,
        tied=c.get("tie_word_embeddings", tied),
        experts=experts,
    )


def _mixtral(c: Config) -> Geometry:
    each = 3 * c["hidden_size"] * c["intermediate_size"]
    return llama(
        c, experts=_Experts(tuple(range(c["num_hidden_layers"])), c["num_local_experts"], c["num_experts_per_tok"], each)
    )


def _qwen3_moe(c: Config) -> Geometry:
    step, dense = c.get("decoder_sparse_step", 1), c.get("mlp_only_layers") or []
    layers = tuple(i for i in range(c["num_hidden_layers"]) if (i + 1) % step == 0 and i not in dense)
    each = 3 * c["hidden_size"] * c["moe_intermediate_size"]
    return llama(c, head_norms=True, experts=_Experts(layers, c["num_experts"], c["num_experts_per_tok"], each))


def _gemma3(c: Config) -> Geometry:
    # The published files leave these to transformers' defaults.
    c = {"vocab_size": 262_208, "max_position_embeddings": 131_072, **c}
    c = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, **c}
    return llama(c, norms=4, head_norms=True, tied=True)


def _gpt2(c: Config) -> Geometry:
    """GPT-2: fused query, key and value, two-matrix MLP, biases everywhere, learned positions."""
    hidden = c["n_embd"]
    inner = c.get("n_inner") or 4 * hidden
    return _decoder(
        c,
        layers=c["n_layer"],
        hidden=hidden,
        heads=c["n_head"],
        kv_heads=c["n_head"],
        head_dim=hidden // c["n_head"],
        intermediate=inner,
        context=c["n_positions"],
        attention=4 * hidden * hidden,
        dense=2 * hidden * inner,
        other=(4 * hidden) + (4 * hidden + inner + hidden),
        once=2 * hidden + c["n_positions"] * hidden,
        tied=c.get("tie_word_embeddings", True),
    )


def _falcon(c: Config) -> Geometry:
    """Falcon: attention and MLP side by side; the new decoder has groups of heads and a norm for each of the two."""
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    new, head_dim, inner = c.get("new_decoder_architecture", False), hidden // heads, c.get("ffn_hidden_size") or 4 * hidden
    kv_heads = (c.get("num_kv_heads") or heads) if new else 1 if c.get("multi_query", True) else heads
    norms = (c.get("num_ln_in_parallel_attn") or 2) if new else 1 if c.get("parallel_attn", True) else 2
    bias = head_dim * (heads + 2 * kv_heads) + hidden + inner + hidden if c.get("bias", False) else 0
    return _decoder(
        c,
        layers=c["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=inner,
        context=c.get("max_position_embeddings", 2048),
        attention=hidden * head_dim * (2 * heads + 2 * kv_heads),
        dense=2 * hidden * inner,
        other=norms * 2 * hidden + bias,
        once=2 * hidden,
        tied=c.get("tie_word_embeddings", True),
    )


def _deepseek(c: Config) -> Geometry:
    """DeepSeek V2 and V3: latent attention, whose cache is one vector a token, and many small experts with shared ones beside them."""
    hidden, heads, layers = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
    rank, rope, nope, value = c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"]
    query_rank = c.get("q_lora_rank")
    query_width = heads * (nope + rope)
    query = hidden * query_rank + query_rank * query_width if query_rank else hidden * query_width
    key_value = hidden * (rank + rope) + rank * heads * (nope + value)
    each = 3 * hidden * c["moe_intermediate_size"]
    first, every = c.get("first_k_dense_replace", 0), c.get("moe_layer_freq", 1)
    experts = _Experts(
        layers=tuple(i for i in range(layers) if i >= first and i % every == 0),
        count=c["n_routed_experts"],
        per_token=c["num_experts_per_tok"],
        each=each,
        shared=each * (c.get("n_shared_experts") or 0),
    )
    return _decoder(
        c,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=1,
        head_dim=rank + rope,
        intermediate=c["intermediate_size"],
        context=c["max_position_embeddings"],
        attention=query + key_value + heads * value * hidden,
        dense=3 * hidden * c["intermediate_size"],
        other=2 * hidden + rank + (query_rank or 0),
        once=hidden,
        tied=c.get("tie_word_embeddings", False),
        experts=experts,
        latent=True,
        attended=(nope + rope + value, rank + rope + rank),
    )


READERS: dict[str, Callable[[Config], Geometry]] = {
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "falcon": _falcon,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "llama": llama,
    "mistral": llama,
    "mixtral": _mixtral,
    "qwen2": lambda c: llama(c, qkv_bias=True),
    "qwen3": lambda c: llama(c, head_norms=True),
    "qwen3_moe": _qwen3_moe,
}

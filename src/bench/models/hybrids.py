"""Families some of whose layers, or all, keep a state of fixed size in place of a growing cache.

Sources: transformers' modules; sizes and types of the states are vLLM's (`MambaStateShapeCalculator`, `MambaStateDtypeCalculator`, and
the models' own arguments to them, 0.32).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from bench.models.geometry import State
from bench.models.layers import Decoder, dense_first
from bench.models.parts import Config, Layer, Matrix, attention, experts, latent_attention, mamba1, mamba2, mlp, norms


def _kinds(c: Config, default: Callable[[int], bool]) -> list[bool]:
    """Of each layer, whether it attends: by `layer_types` where it is stated."""
    kinds = c.get("layer_types") or c.get("layers_block_type")
    if kinds:
        return ["attention" in str(kind) and "linear" not in str(kind) for kind in kinds]
    return [default(i) for i in range(c["num_hidden_layers"])]


def _jamba(c: Config) -> Decoder:
    hidden = c["hidden_size"]
    rank = c["mamba_dt_rank"] if isinstance(c["mamba_dt_rank"], int) else math.ceil(hidden / 16)
    attends = _kinds(c, lambda i: i % c["attn_layer_period"] == c["attn_layer_offset"])
    recurrent = mamba1(
        c,
        inner=c["mamba_expand"] * hidden,
        state=c["mamba_d_state"],
        kernel=c["mamba_d_conv"],
        rank=rank,
        bias=c["mamba_proj_bias"],
        conv_bias=c["mamba_conv_bias"],
        normed=True,
    )
    layers = []
    for i, sees in enumerate(attends):
        layer = norms(hidden, 2) + (attention(c) if sees else recurrent)
        many = c["num_experts"] > 1 and i % c["expert_layer_period"] == c["expert_layer_offset"]
        routed = (
            experts(
                c,
                count=c["num_experts"],
                used=c["num_experts_per_tok"],
                width=c["intermediate_size"],
                name="feed_forward",
            )
            if many
            else mlp(c, name="feed_forward")
        )
        layers.append(layer + routed)
    return Decoder(tuple(layers), hidden)


def _of_mamba2(c: Config, **others: Any) -> Layer:
    """The Mamba 2 of Bamba, Granite 4 and Falcon H1, which name its keys alike."""
    inner, heads = int(c["mamba_expand"] * c["hidden_size"]), c["mamba_n_heads"]
    head_dim = c["mamba_d_head"] if isinstance(c["mamba_d_head"], int) else inner // heads
    shape = {
        "inner": inner,
        "head_dim": head_dim,
        "bias": c["mamba_proj_bias"],
        "conv_bias": c["mamba_conv_bias"],
        **others,
    }
    return mamba2(c, heads=heads, state=c["mamba_d_state"], groups=c["mamba_n_groups"], kernel=c["mamba_d_conv"], **shape)


def _bamba(c: Config) -> Decoder:
    hidden, chosen = c["hidden_size"], c.get("attn_layer_indices") or ()
    attends = _kinds(c, lambda i: i in chosen)
    bias = bool(c.get("attention_bias"))
    sees, recurrent = attention(c, qkv_bias=bias, out_bias=bias), _of_mamba2(c)
    rest = norms(hidden, 2) + mlp(c, bias=bool(c.get("mlp_bias")), name="feed_forward")
    return Decoder(tuple((sees if each else recurrent) + rest for each in attends), hidden)


def _granite_hybrid(c: Config) -> Decoder:
    hidden, bias = c["hidden_size"], bool(c.get("attention_bias"))
    sees, recurrent = attention(c, qkv_bias=bias, out_bias=bias), _of_mamba2(c)
    rest = norms(hidden, 2) + mlp(c, c["shared_intermediate_size"], name="shared_mlp")
    if c["num_local_experts"]:
        rest += experts(
            c,
            count=c["num_local_experts"],
            used=c["num_experts_per_tok"],
            width=c["intermediate_size"],
            name="block_sparse_moe",
        )
    attends = _kinds(c, lambda _i: False)
    return Decoder(tuple((sees if each else recurrent) + rest for each in attends), hidden)


def _falcon_h1(c: Config) -> Decoder:
    """Falcon H1: attention and Mamba 2 side by side in every layer."""
    hidden, bias = c["hidden_size"], bool(c.get("attention_bias"))
    inner = c.get("mamba_d_ssm") or int(c["mamba_expand"] * hidden)
    recurrent = _of_mamba2(
        c,
        inner=inner,
        normed=bool(c.get("mamba_rms_norm")),
        bias=False,
        head_dim=c["mamba_d_head"] if isinstance(c["mamba_d_head"], int) else inner // c["mamba_n_heads"],
    )
    projected = 2 * inner + 2 * c["mamba_n_groups"] * c["mamba_d_state"] + c["mamba_n_heads"]
    biases = (projected if c.get("mamba_proj_bias") else 0) + (hidden if c.get("projectors_bias") else 0)
    layer = recurrent + attention(c, qkv_bias=bias, out_bias=bias) + norms(hidden, 2)
    layer += mlp(c, bias=bool(c.get("mlp_bias")), name="feed_forward") + Layer(other=biases)
    return Decoder((layer,) * c["num_hidden_layers"], hidden)


_NEMOTRON = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _nemotron_h(c: Config) -> Decoder:
    """Nemotron-H: a layer is one of Mamba 2, attention, an MLP or experts, by the pattern's letters."""
    hidden, kinds = c["hidden_size"], c.get("layer_types") or c.get("layers_block_type")
    if not kinds:
        kinds = [_NEMOTRON[letter] for letter in c["hybrid_override_pattern"]]
    heads, head_dim = c["mamba_num_heads"], c["mamba_head_dim"]
    built = {
        "mamba": lambda: mamba2(
            c,
            inner=heads * head_dim,
            heads=heads,
            head_dim=head_dim,
            state=c["ssm_state_size"],
            groups=c.get("mamba_n_groups") or c["n_groups"],
            kernel=c.get("mamba_d_conv") or c["conv_kernel"],
            bias=bool(c.get("use_bias") or c.get("mamba_proj_bias")),
            conv_bias=bool(c.get("mamba_conv_bias", c.get("use_conv_bias", True))),
            dtype=c.get("mamba_ssm_cache_dtype") or "float32",
            name="mixer",
        ),
        "attention": lambda: attention(c, head_dim=c.get("head_dim") or c.get("attention_head_dim"), name="mixer"),
        "mlp": lambda: mlp(c, gated=False, bias=bool(c.get("mlp_bias")), name="mixer"),
        "moe": lambda: experts(
            c,
            count=c["n_routed_experts"],
            used=c["num_experts_per_tok"],
            width=c["moe_intermediate_size"],
            shared=c.get("moe_shared_expert_intermediate_size") or 0,
            gated=False,
            latent=c.get("moe_latent_size"),
            name="mixer",
        ),
    }
    named = {"linear_attention": "mamba", "full_attention": "attention"}
    each = {kind: built[named.get(kind, kind)]() + norms(hidden, 1) for kind in dict.fromkeys(kinds)}
    return Decoder(tuple(each[kind] for kind in kinds), hidden)


def _zamba2(c: Config) -> Decoder:
    """Zamba 2: Mamba 2 everywhere; some layers also run a shared attention block, with matrices of their own beside it (LoRA)."""
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    kinds, blocks = c["layers_block_type"], c["num_mem_blocks"]
    inner = int(c["mamba_expand"] * hidden)
    recurrent = mamba2(
        c,
        inner=inner,
        heads=c["n_mamba_heads"],
        head_dim=inner // c["n_mamba_heads"],
        state=c["mamba_d_state"],
        groups=c["mamba_ngroups"],
        kernel=c["mamba_d_conv"],
        bias=bool(c.get("add_bias_linear")),
        conv_bias=bool(c.get("use_conv_bias", True)),
    ) + norms(hidden, 1)
    wide, rank = 2 * hidden, c["adapter_rank"]
    head_dim = wide // heads
    width, bias = c.get("intermediate_size") or 4 * hidden, bool(c.get("add_bias_linear"))
    seen = attention(c, inputs=wide, head_dim=head_dim)
    block = seen + norms(wide, 1) + norms(hidden, 1) + mlp(c, width, bias=bias)
    cached = Layer(attentions=seen.attentions)
    own = Layer(
        (Matrix("feed_forward.gate_up_proj_adapter", hidden * rank + rank * 2 * width), Matrix("linear", hidden * hidden))
    )
    if c.get("use_shared_attention_adapter"):
        own += Layer((Matrix("self_attn.linear_adapter", 3 * (wide * rank + rank * wide)),))
    layers, shared = [], 0
    for kind in kinds:
        layer = recurrent
        if kind == "hybrid":
            layer += own + (block if shared < blocks else cached)
            shared += 1
        layers.append(layer)
    return Decoder(tuple(layers), hidden, intermediate=width)


def _mamba(c: Config) -> Decoder:
    hidden = c["hidden_size"]
    inner = c.get("intermediate_size") or int(c["expand"] * hidden)
    rank = c["time_step_rank"] if isinstance(c["time_step_rank"], int) else math.ceil(hidden / 16)
    layer = mamba1(
        c,
        inner=inner,
        state=c["state_size"],
        kernel=c["conv_kernel"],
        rank=rank,
        bias=c["use_bias"],
        conv_bias=c["use_conv_bias"],
        name="mixer",
    )
    return Decoder((layer + norms(hidden, 1),) * _layer_count(c), hidden, intermediate=inner)


def _layer_count(c: Config) -> int:
    return int(c.get("n_layer") or c["num_hidden_layers"])


def _mamba2(c: Config) -> Decoder:
    hidden = c["hidden_size"]
    inner = int(c["expand"] * hidden)
    layer = mamba2(
        c,
        inner=inner,
        heads=c["num_heads"],
        head_dim=c["head_dim"],
        state=c["state_size"],
        groups=c["n_groups"],
        kernel=c["conv_kernel"],
        bias=c["use_bias"],
        conv_bias=c["use_conv_bias"],
        name="mixer",
    )
    return Decoder((layer + norms(hidden, 1),) * _layer_count(c), hidden, intermediate=inner)


def _lfm2(c: Config) -> Decoder:
    """LFM2: gated short convolutions, which keep their last inputs alone, and some attention."""
    hidden, chosen, bias = c["hidden_size"], c.get("full_attn_idxs"), bool(c.get("conv_bias"))
    attends = _kinds(c, lambda i: chosen is None or i in chosen)
    kernel = c["conv_L_cache"]
    convolved = Layer(
        (Matrix("conv.in_proj", 3 * hidden * hidden), Matrix("conv.out_proj", hidden * hidden)),
        hidden * kernel + (5 * hidden if bias else 0),
        state=State(hidden * (kernel - 1), 0),
    )
    layers = []
    for i, sees in enumerate(attends):
        layer = (attention(c, head_norms=True) if sees else convolved) + norms(hidden, 2)
        if c.get("num_experts") and i >= c["num_dense_layers"]:
            layer += experts(
                c,
                count=c["num_experts"],
                used=c["num_experts_per_tok"],
                width=c["moe_intermediate_size"],
                name="feed_forward",
            )
        else:
            layer += mlp(c, _lfm2_width(c), name="feed_forward")
        layers.append(layer)
    return Decoder(tuple(layers), hidden, intermediate=_lfm2_width(c))


def _lfm2_width(c: Config) -> int:
    """Width of LFM2's MLP: two thirds of what is stated, rounded up, where it is to be adjusted."""
    width = c.get("block_ff_dim") or c["intermediate_size"]
    if not c.get("block_auto_adjust_ff_dim"):
        return int(width)
    width = int(2 * width / 3)
    if c.get("block_ffn_dim_multiplier") is not None:
        width = int(c["block_ffn_dim_multiplier"] * width)
    step = c["block_multiple_of"]
    return int(step * ((width + step - 1) // step))


def _recurrent_gemma(c: Config) -> Decoder:
    """RecurrentGemma: a linear recurrence in two layers of three, attention with a window in the third."""
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    width, kernel, kinds = c.get("lru_width") or hidden, c["conv1d_width"], c["block_types"]
    block = width // heads
    recurrent = Layer(
        (
            Matrix("temporal_block.linear_y", hidden * width),
            Matrix("temporal_block.linear_x", hidden * width),
            Matrix("temporal_block.linear_out", width * hidden),
        ),
        # Biases, the convolution, and the gates of the recurrence.
        2 * width + hidden + width * kernel + width + width + 2 * (heads * block * block + heads * block),
        state=State(width * (kernel - 1), width, "float32"),
    )
    sees = attention(
        c, window=c["attention_window_size"], out_bias=True, qkv_bias=bool(c.get("attention_bias")), name="temporal_block"
    )
    inner = c["intermediate_size"] // 2
    rest = norms(hidden, 2) + mlp(c, inner, bias=True, name="mlp_block")
    built = [(recurrent if kinds[i % len(kinds)] == "recurrent" else sees) + rest for i in range(c["num_hidden_layers"])]
    return Decoder(tuple(built), hidden, intermediate=inner)


def _minimax(c: Config) -> Decoder:
    """MiniMax-Text-01: lightning attention, whose state is a square a head, and full attention in each eighth layer."""
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    head_dim = c.get("head_dim") or hidden // heads
    codes = c.get("attn_type_list")
    attends = [bool(code) for code in codes] if codes else _kinds(c, lambda i: bool((i + 1) % 2))
    inner = heads * head_dim
    recurrent = Layer(
        (
            Matrix("self_attn.qkv_proj", hidden * 3 * inner),
            Matrix("self_attn.out_proj", inner * hidden),
            Matrix("self_attn.output_gate", hidden * inner),
        ),
        inner,
        state=State(0, heads * head_dim * head_dim),
    )
    rest = norms(hidden, 2) + experts(
        c,
        count=c["num_local_experts"],
        used=c["num_experts_per_tok"],
        width=c["intermediate_size"],
        name="block_sparse_moe",
    )
    return Decoder(tuple((attention(c) if sees else recurrent) + rest for sees in attends), hidden)


def _delta_net(c: Config, *, fused: bool) -> Layer:
    """Gated delta net of Qwen3-Next and Qwen3.5: a state of key × value a head, and its convolution's last inputs."""
    hidden, heads, kernel = c["hidden_size"], c["linear_num_value_heads"], c["linear_conv_kernel_dim"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = heads * c["linear_value_head_dim"]
    convolved = 2 * keys + values
    names = (
        (("in_proj_qkvz", convolved + values), ("in_proj_ba", 2 * heads))
        if fused
        else (("in_proj_qkv", convolved), ("in_proj_z", values), ("in_proj_b", heads), ("in_proj_a", heads))
    )
    return Layer(
        (
            *(Matrix(f"linear_attn.{name}", hidden * width) for name, width in names),
            Matrix("linear_attn.out_proj", values * hidden),
        ),
        convolved * kernel + 2 * heads + c["linear_value_head_dim"],
        state=State(
            convolved * (kernel - 1),
            heads * c["linear_value_head_dim"] * c["linear_key_head_dim"],
            c.get("mamba_ssm_dtype"),
        ),
    )


def _qwen_hybrid(c: Config, *, fused: bool = False) -> Decoder:
    """Qwen3-Next and Qwen3.5: gated delta nets, and in each fourth layer attention with an output gate as wide as its queries."""
    hidden, step = c["hidden_size"], c.get("full_attention_interval") or 4
    attends = _kinds(c, lambda i: (i + 1) % step == 0)
    gate = c["num_attention_heads"] * c["head_dim"] if c.get("attn_output_gate", True) else 0
    bias = bool(c.get("attention_bias"))
    sees, recurrent = attention(c, head_norms=True, gate=gate, qkv_bias=bias, out_bias=bias), _delta_net(c, fused=fused)
    layers = []
    for i, each in enumerate(attends):
        layer = (sees if each else recurrent) + norms(hidden, 2)
        sparse = c.get("num_experts") and (i + 1) % (c.get("decoder_sparse_step") or 1) == 0
        if sparse and i not in (c.get("mlp_only_layers") or ()):
            layer += experts(
                c,
                count=c["num_experts"],
                used=c["num_experts_per_tok"],
                width=c["moe_intermediate_size"],
                shared=c["shared_expert_intermediate_size"],
                shared_gate=True,
                shared_name="shared_expert",
            )
        else:
            layer += mlp(c)
        layers.append(layer)
    return Decoder(tuple(layers), hidden, intermediate=c.get("intermediate_size") or c["moe_intermediate_size"])


def _kimi_linear(c: Config) -> Decoder:
    """Kimi Linear: delta attention with a gate a channel in three layers of four, latent attention in the others."""
    hidden, inside = c["hidden_size"], c.get("linear_attn_config") or {}
    heads = inside.get("num_heads") or c["linear_num_heads"]
    head_dim = inside.get("head_dim") or c["linear_head_dim"]
    kernel = inside.get("short_conv_kernel_size") or c["linear_conv_kernel_dim"]
    inner = heads * head_dim
    full = inside.get("full_attn_layers")
    attends = _kinds(c, lambda i: i + 1 in full if full else bool(i) and i % 4 == 0)
    recurrent = Layer(
        (
            *(Matrix(f"self_attn.{name}_proj", hidden * inner) for name in "qkv"),
            Matrix("self_attn.o_proj", inner * hidden),
            Matrix("self_attn.f_a_proj", hidden * head_dim),
            Matrix("self_attn.f_b_proj", head_dim * inner),
            Matrix("self_attn.g_a_proj", hidden * head_dim),
            Matrix("self_attn.g_b_proj", head_dim * inner),
            Matrix("self_attn.b_proj", hidden * heads),
        ),
        3 * inner * kernel + inner + heads + head_dim,
        state=State(3 * inner * (kernel - 1), heads * head_dim * head_dim, "float32"),
    )
    layers = []
    for i, sees in enumerate(attends):
        layer = (latent_attention(c) if sees else recurrent) + norms(hidden, 2)
        if dense_first({**c, "first_k_dense_replace": c.get("first_k_dense_replace", 1)}, i):
            width = c["moe_intermediate_size"]
            layer += experts(
                c,
                count=c["num_experts"],
                used=c.get("num_experts_per_token") or c["num_experts_per_tok"],
                width=width,
                shared=width * (c.get("num_shared_experts") or 0),
                name="block_sparse_moe",
            )
        else:
            layer += mlp(c)
        layers.append(layer)
    return Decoder(tuple(layers), hidden)


HYBRIDS: Mapping[str, Callable[[Config], Decoder]] = {
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "falcon_mamba": _mamba,
    "granitemoehybrid": _granite_hybrid,
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "mamba": _mamba,
    "mamba2": _mamba2,
    "minimax": _minimax,
    "minimax_text_01": _minimax,
    "nemotron_h": _nemotron_h,
    "qwen3_5_moe_text": _qwen_hybrid,
    "qwen3_5_text": _qwen_hybrid,
    "qwen3_next": lambda c: _qwen_hybrid(c, fused=True),
    "recurrent_gemma": _recurrent_gemma,
    "zamba2": _zamba2,
}

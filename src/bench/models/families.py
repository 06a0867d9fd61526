"""What is said of each family of decoders: how its layers are built, and where that differs from Llama.

Keys that a config.json leaves out have the defaults of the family's own configuration class (`definitions.json`). Parameters are
counted tensor by tensor as transformers builds the modules; `benchmarks/model_facts.py` compares both with transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bench.models.hybrids import HYBRIDS
from bench.models.layers import Decoder, dense_first, every, window_of
from bench.models.parts import Config, Layer, Matrix, attention, experts, latent_attention, mlp, norms

Flag = bool | str
Experts = Callable[[Config, int], Layer | None]


@dataclass(frozen=True)
class _Plain:
    """A decoder whose layers have attention and an MLP each. A flag is a constant, or the key that states it.

    Attributes:
        norms: of the hidden width in a layer. norm_bias: LayerNorm with a bias; else one vector. normless: norms without weights.
        row_norms: over all heads of queries and of keys. head_norms: over one head.
        qkv_bias, out_bias, mlp_bias: of the projections. gated: an MLP of three matrices, else of two.
        experts: the routed MLP of a layer, or None where the layer's MLP is dense. more: what else a layer has.
        positions: rows of learned positions. head_bias: of the output layer.
    """

    norms: int = 2
    norm_bias: bool = False
    normless: bool = False
    row_norms: Flag = False
    head_norms: Flag = False
    qkv_bias: Flag = "attention_bias"
    out_bias: Flag = "attention_bias"
    mlp_bias: Flag = "mlp_bias"
    gated: bool = True
    experts: Experts | None = None
    more: Callable[[Config, int], Layer] | None = None
    positions: Callable[[Config], int] | None = None
    embedding_norms: int = 0
    head_bias: Flag = False

    def __call__(self, c: Config) -> Decoder:
        hidden, layers = c["hidden_size"], []
        for i in range(c["num_hidden_layers"]):
            layer = attention(
                c,
                window=window_of(c, i),
                qkv_bias=_flag(c, self.qkv_bias),
                out_bias=_flag(c, self.out_bias),
                row_norms=_flag(c, self.row_norms),
                head_norms=_flag(c, self.head_norms),
                shares=_shares(c, i),
                keyless=_shares(c, i),
            )
            layer += Layer() if self.normless else norms(hidden, self.norms, bias=self.norm_bias)
            routed = self.experts(c, i) if self.experts else None
            layer += routed if routed is not None else mlp(c, gated=self.gated, bias=_flag(c, self.mlp_bias))
            layers.append(layer + self.more(c, i) if self.more else layer)
        last = 0 if self.normless else (1 + self.embedding_norms) * hidden * (2 if self.norm_bias else 1)
        once = last + (self.positions(c) * hidden if self.positions else 0)
        return Decoder(tuple(layers), once + (c["vocab_size"] if _flag(c, self.head_bias) else 0))


def _flag(c: Config, flag: Flag) -> bool:
    return flag if isinstance(flag, bool) else bool(c.get(flag))


def _shares(c: Config, layer: int) -> bool:
    """Whether the layer reads the cache of the layer before it: cross-layer attention of Hunyuan."""
    return bool(c.get("use_cla")) and layer % (c.get("cla_share_factor") or 1) != 0


def _named(
    count: str, width: str, sparse: Callable[[Config, int], bool] = lambda _c, _i: True, *, biases: bool = False
) -> Experts:
    """Experts whose keys have these names, in the layers that `sparse` says."""

    def built(c: Config, layer: int) -> Layer | None:
        if not sparse(c, layer):
            return None
        return experts(c, count=c[count], used=c["num_experts_per_tok"], width=c[width], bias=biases, router_bias=biases)

    return built


def _qwen_sparse(c: Config, layer: int) -> bool:
    dense = c.get("mlp_only_layers") or []
    return bool(c["num_experts"]) and (layer + 1) % c.get("decoder_sparse_step", 1) == 0 and layer not in dense


def _qwen2_experts(c: Config, layer: int) -> Layer | None:
    if not _qwen_sparse(c, layer):
        return None
    shared = c["shared_expert_intermediate_size"]
    return experts(
        c,
        count=c["num_experts"],
        used=c["num_experts_per_tok"],
        width=c["moe_intermediate_size"],
        shared=shared,
        shared_gate=True,
        shared_name="shared_expert",
    )


def _deepseek_experts(c: Config, layer: int) -> Layer | None:
    """Many small experts, with shared ones beside them; the first layers are dense."""
    width = c.get("moe_intermediate_size")
    if not width or not c["n_routed_experts"] or not dense_first(c, layer):
        return None
    return experts(
        c,
        count=c["n_routed_experts"],
        used=c["num_experts_per_tok"],
        width=width,
        shared=width * (c.get("n_shared_experts") or 0),
        router_bias=c.get("topk_method") == "noaux_tc",
    )


def _granite_shared(c: Config, _layer: int) -> Layer:
    return experts(
        c, count=c["num_local_experts"], used=c["num_experts_per_tok"], width=c["intermediate_size"], name="block_sparse_moe"
    ) + mlp(c, c["shared_intermediate_size"], name="shared_mlp")


def _llama4_experts(c: Config, layer: int) -> Layer | None:
    step = c.get("interleave_moe_layer_step") or 1
    sparse = c.get("moe_layers") or range(step - 1, c["num_hidden_layers"], step)
    if layer not in sparse:
        return mlp(c, c["intermediate_size_mlp"], name="feed_forward")
    width = c["intermediate_size"]
    return experts(
        c,
        count=c["num_local_experts"],
        used=c["num_experts_per_tok"],
        width=width,
        shared=width,
        name="feed_forward",
        shared_name="shared_expert",
    )


def _ernie_experts(c: Config, layer: int) -> Layer | None:
    first, last = c.get("moe_layer_start_index") or 0, c.get("moe_layer_end_index", -1)
    last = c["num_hidden_layers"] - 1 if last == -1 else last
    if (layer + 1) % c.get("moe_layer_interval", 1) or not first <= layer <= last:
        return None
    width = c["moe_intermediate_size"]
    return experts(
        c,
        count=c["moe_num_experts"],
        used=c["moe_k"],
        width=width,
        shared=width * (c.get("moe_num_shared_experts") or 0),
        router_bias=True,
    )


def _hunyuan_experts(c: Config, layer: int) -> Layer | None:
    if every(c["num_experts"], layer) <= 1:
        return None
    width = every(c.get("moe_intermediate_size") or c["intermediate_size"], layer)
    shared = every(c.get("num_shared_expert", 1), layer) if c.get("use_mixed_mlp_moe", True) else 0
    used = every(c["moe_topk"], layer)
    return experts(
        c, count=every(c["num_experts"], layer), used=used, width=width, shared=width * shared, shared_name="shared_mlp"
    )


def _sinks(c: Config, _layer: int) -> Layer:
    return Layer(other=c["num_attention_heads"])


def _gpt2(c: Config, *, kv_heads: int | None = None) -> Decoder:
    """GPT-2: fused query, key and value, two-matrix MLP, biases everywhere, learned positions."""
    hidden = c["n_embd"]
    shape = {**c, "hidden_size": hidden, "num_attention_heads": c["n_head"], "num_key_value_heads": kv_heads or c["n_head"]}
    inner = c.get("n_inner") or 4 * hidden
    layer = attention(shape, qkv_bias=True, out_bias=True) + norms(hidden, 2, bias=True)
    layer += mlp(shape, inner, gated=False, bias=True)
    return Decoder((layer,) * c["n_layer"], 2 * hidden + c["n_positions"] * hidden, hidden=hidden, intermediate=inner)


def _gpt_bigcode(c: Config) -> Decoder:
    """GPT-2 with one key and value head for all query heads."""
    return _gpt2(c, kv_heads=1 if c.get("multi_query", True) else None)


def _gptj(c: Config) -> Decoder:
    """GPT-J: attention without biases beside an MLP with them, after one norm; the output layer has a bias."""
    hidden = c["n_embd"]
    shape = {**c, "hidden_size": hidden, "num_attention_heads": c["n_head"]}
    inner = c.get("n_inner") or 4 * hidden
    layer = attention(shape) + norms(hidden, 1, bias=True) + mlp(shape, inner, gated=False, bias=True)
    return Decoder((layer,) * c["n_layer"], 2 * hidden + c["vocab_size"], hidden=hidden, intermediate=inner)


def _gpt_neox(c: Config) -> Decoder:
    bias = c.get("attention_bias", True)
    return _Plain(norm_bias=True, qkv_bias=bias, out_bias=bias, mlp_bias=True, gated=False)({**c, "num_key_value_heads": None})


def _falcon(c: Config) -> Decoder:
    """Falcon: attention and MLP side by side; the new decoder has groups of heads and a norm for each of the two."""
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    new, inner = c.get("new_decoder_architecture", False), c.get("ffn_hidden_size") or 4 * hidden
    kv_heads = (c.get("num_kv_heads") or heads) if new else 1 if c.get("multi_query", True) else heads
    count = (c.get("num_ln_in_parallel_attn") or 2) if new else 1 if c.get("parallel_attn", True) else 2
    bias = bool(c.get("bias"))
    layer = attention(c, kv_heads=kv_heads, qkv_bias=bias, out_bias=bias) + norms(hidden, count, bias=True)
    layer += mlp(c, inner, gated=False, bias=bias)
    return Decoder((layer,) * c["num_hidden_layers"], 2 * hidden, intermediate=inner)


def _bloom(c: Config) -> Decoder:
    """BLOOM: full multi-head attention with ALiBi, biases everywhere, a norm after the embeddings."""
    hidden = c["hidden_size"]
    shape = {**c, "num_attention_heads": c["n_head"], "num_key_value_heads": None}
    layer = attention(shape, qkv_bias=True, out_bias=True) + norms(hidden, 2, bias=True)
    layer += mlp(shape, 4 * hidden, gated=False, bias=True)
    return Decoder((layer,) * c["n_layer"], 4 * hidden, intermediate=4 * hidden)


def _opt(c: Config) -> Decoder:
    """OPT: biases everywhere, learned positions with two rows to spare."""
    hidden, bias = c["hidden_size"], c.get("enable_bias", True)
    narrow = c.get("word_embed_proj_dim") or hidden
    layer = attention(c, qkv_bias=bias, out_bias=bias) + norms(hidden, 2, bias=True)
    layer += mlp(c, c["ffn_dim"], gated=False, bias=bias)
    final = 2 * hidden if c.get("do_layer_norm_before", True) and not c.get("_remove_final_layer_norm") else 0
    once = (c["max_position_embeddings"] + 2) * hidden + final + (2 * narrow * hidden if narrow != hidden else 0)
    # The tables have the narrow width; what they are smaller by is taken off here.
    once -= c["vocab_size"] * (hidden - narrow)
    return Decoder((layer,) * c["num_hidden_layers"], once, intermediate=c["ffn_dim"])


def _mpt(c: Config) -> Decoder:
    """MPT: fused attention with ALiBi, no biases."""
    hidden = c["d_model"]
    shape = {**c, "hidden_size": hidden, "num_attention_heads": c["n_heads"]}
    inner = hidden * c.get("expansion_ratio", 4)
    layer = attention(shape, kv_heads=(c.get("attn_config") or {}).get("kv_n_heads")) + norms(hidden, 2)
    layer += mlp(shape, inner, gated=False)
    return Decoder((layer,) * c["n_layers"], hidden, hidden=hidden, intermediate=inner)


def _dbrx(c: Config) -> Decoder:
    """DBRX: its shape stands in two objects below the configuration."""
    hidden, inner = c["d_model"], {**_DBRX_ATTENTION, **(c.get("attn_config") or {})}
    ffn = {**_DBRX_FFN, **(c.get("ffn_config") or {})}
    shape = {**c, "hidden_size": hidden, "num_attention_heads": c["n_heads"]}
    width = ffn["ffn_hidden_size"]
    layer = attention(shape, kv_heads=inner["kv_n_heads"]) + norms(hidden, 2)
    layer += experts(shape, count=ffn["moe_num_experts"], used=ffn["moe_top_k"], width=width)
    return Decoder((layer,) * c["n_layers"], hidden, hidden=hidden, intermediate=width)


_DBRX_ATTENTION = {"kv_n_heads": 1}  # keys that DBRX's files leave out; source: transformers' DbrxAttentionConfig
# keys that DBRX's files leave out; source: transformers' DbrxFFNConfig
_DBRX_FFN = {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1}


def _chatglm(c: Config) -> Decoder:
    """ChatGLM 2 and 3, and GLM-4 by its own code: names of keys that no other family has."""
    heads, hidden = c["num_attention_heads"], c["hidden_size"]
    kv_heads = c.get("multi_query_group_num") if c.get("multi_query_attention") else None
    qkv_bias = bool(c.get("add_qkv_bias") or c.get("add_bias_linear"))
    layer = attention(c, heads=heads, kv_heads=kv_heads, head_dim=c.get("kv_channels"), qkv_bias=qkv_bias)
    layer += norms(hidden, 2) + mlp(c, c["ffn_hidden_size"])
    return Decoder((layer,) * c["num_layers"], hidden, vocabulary=c["padded_vocab_size"], intermediate=c["ffn_hidden_size"])


def _qwen1(c: Config) -> Decoder:
    """The first Qwen: `intermediate_size` counts both halves of the gated MLP."""
    inner = c["intermediate_size"] // 2
    layer = attention(c, head_dim=c.get("kv_channels"), qkv_bias=True) + norms(c["hidden_size"], 2) + mlp(c, inner)
    return Decoder((layer,) * c["num_hidden_layers"], c["hidden_size"], intermediate=inner)


def _nemotron_nas(c: Config) -> Decoder:
    """DeciLM and Nemotron's pruned Llamas: each block states what of it is left."""
    hidden, layers = c["hidden_size"], []
    for block in c["block_configs"]:
        layer = Layer()
        kept, wide = block["attention"], block["ffn"]
        if kept.get("replace_with_linear"):
            layer += norms(hidden, 1) + Layer((Matrix("self_attn.linear_attn", hidden * hidden),))
        elif not kept.get("no_op"):
            layer += norms(hidden, 1) + attention(c, kv_heads=c["num_attention_heads"] // kept["n_heads_in_group"])
        if wide.get("replace_with_linear"):
            layer += norms(hidden, 1) + Layer((Matrix("mlp.linear_mlp", hidden * hidden),))
        elif not wide.get("no_op"):
            width = int(2 * wide["ffn_mult"] * hidden / 3)
            layer += norms(hidden, 1) + mlp(c, width + -width % 256)
        layers.append(layer)
    return Decoder(tuple(layers), hidden)


def latent(c: Config) -> Decoder:
    """Latent attention, with experts or without: DeepSeek V2, V3 and its sparse attention, Kimi K2, GLM 4.7 Flash, MiniCPM3."""
    hidden, layers = c["hidden_size"], []
    indexed = bool(c.get("index_head_dim"))
    for i in range(c["num_hidden_layers"]):
        layer = latent_attention(c, indexer=indexed, computes=not indexed or _indexes(c, i)) + norms(hidden, 2)
        routed = _deepseek_experts({**c, "topk_method": None}, i)
        layers.append(layer + (routed if routed is not None else mlp(c, bias=bool(c.get("mlp_bias")))))
    return Decoder(tuple(layers), hidden)


def _indexes(c: Config, layer: int) -> bool:
    """Whether the layer chooses tokens itself, or takes an earlier layer's choice (GLM 5.2)."""
    kinds, pattern = c.get("indexer_types"), c.get("index_topk_pattern")
    if kinds:
        return bool(kinds[layer] == "full")
    if pattern:
        return pattern[layer] in ("F", "full")
    step, offset = max(c.get("index_topk_freq") or 1, 1), c.get("index_skip_topk_offset")
    return max(layer - (2 if offset is None else offset) + 1, 0) % step == 0


def _longcat(c: Config) -> Decoder:
    """LongCat: each layer has two latent attentions, two dense MLPs, and experts beside them, some of which are empty."""
    hidden = c["hidden_size"]
    layer = latent_attention(c) + latent_attention(c) + norms(hidden, 4)
    layer += mlp(c, c["ffn_hidden_size"]) + mlp(c, c["ffn_hidden_size"])
    routed = experts(c, count=c["n_routed_experts"], used=c["moe_topk"], width=c["expert_ffn_hidden_size"])
    empty = c.get("zero_expert_num") or 0
    biases = c["n_routed_experts"] + empty if c.get("router_bias") else 0
    layer += routed + Layer(other=empty * hidden + biases)
    return Decoder((layer,) * (c.get("num_layers") or c["num_hidden_layers"]), hidden, intermediate=c["ffn_hidden_size"])


def _gemma3n(c: Config) -> Decoder:
    """Gemma 3n: the last layers read earlier layers' caches; embeddings of each layer, and several streams (AltUp, Laurel)."""
    hidden, count = c["hidden_size"], c["num_hidden_layers"]
    streams, narrow, rank = c["altup_num_inputs"], c["hidden_size_per_layer_input"], c["laurel_rank"]
    first = count - c["num_kv_shared_layers"]
    layers = []
    for i in range(count):
        layer = attention(c, window=window_of(c, i), head_norms=True, shares=i >= first, keyless=i >= first) + norms(hidden, 4)
        layer += mlp(c, every(c["intermediate_size"], i))
        layer += Layer((Matrix("laurel.linear_left", hidden * rank), Matrix("laurel.linear_right", rank * hidden)), hidden)
        layer += Layer(
            (Matrix("per_layer_input_gate", hidden * narrow), Matrix("per_layer_projection", narrow * hidden)), hidden
        )
        # The scale of the output, coefficients of correction and prediction, the router of streams and its norm.
        layers.append(layer + Layer(other=hidden + streams**2 + streams**3 + hidden * streams + hidden))
    once = hidden + c["vocab_size_per_layer_input"] * count * narrow + hidden * count * narrow + narrow
    once += 2 * (streams - 1) * hidden * hidden
    return Decoder(tuple(layers), once, intermediate=every(c["intermediate_size"], 0))


def _gemma4(c: Config) -> Decoder:
    """Gemma 4: wider heads where all is seen, keys that serve as values there, experts beside the MLP, shared caches."""
    hidden, count, narrow = c["hidden_size"], c["num_hidden_layers"], c.get("hidden_size_per_layer_input") or 0
    first = count - (c.get("num_kv_shared_layers") or 0)
    layers = []
    for i in range(count):
        window, shared = window_of(c, i), i >= first
        same = bool(c.get("attention_k_eq_v")) and window is None
        wide = window is None and c.get("global_head_dim")
        fewer = c.get("num_global_key_value_heads") if same else None
        layer = attention(
            c,
            window=window,
            head_dim=wide or None,
            kv_heads=fewer,
            head_norms=True,
            shares=shared,
            keyless=shared,
            valueless=same,
        ) + norms(hidden, 4)
        layer += mlp(c, c["intermediate_size"] * (2 if shared and c.get("use_double_wide_mlp") else 1))
        if c.get("enable_moe_block"):
            used = c.get("top_k_experts") or c["num_experts_per_tok"]
            layer += experts(c, count=c["num_experts"], used=used, width=c["moe_intermediate_size"], name="")
            layer += norms(hidden, 3) + Layer(other=hidden + c["num_experts"])
        if narrow:
            layer += norms(hidden, 1) + Layer(
                (Matrix("per_layer_input_gate", hidden * narrow), Matrix("per_layer_projection", narrow * hidden))
            )
        layers.append(layer)
    once = hidden
    if narrow:
        once += c["vocab_size_per_layer_input"] * count * narrow + hidden * count * narrow + narrow
    return Decoder(tuple(layers), once)


def _mllama(c: Config) -> Decoder:
    """Llama 3.2 Vision: some layers attend to the image alone, and keep nothing of the text."""
    hidden, crossed, layers = c["hidden_size"], set(c["cross_attention_layers"]), []
    for i in range(c["num_hidden_layers"]):
        layer = attention(c, head_norms=i in crossed) + norms(hidden, 2) + mlp(c)
        layers.append(replace(layer, attentions=(), other=layer.other + 2) if i in crossed else layer)
    return Decoder(tuple(layers), hidden, spare=8)


def _mimo_flash(c: Config) -> Decoder:
    """MiMo V2: full and sliding layers with different heads; values are narrower than keys."""
    layers = []
    for i in range(c["num_hidden_layers"]):
        window = window_of(c, i)
        full, sinks = (
            window is None,
            bool(c.get("add_full_attention_sink_bias" if window is None else "add_swa_attention_sink_bias")),
        )
        heads = c["num_attention_heads"] if full else c.get("swa_num_attention_heads") or c["num_attention_heads"]
        layer = attention(
            c,
            heads=heads,
            kv_heads=c["num_key_value_heads"] if full else c.get("swa_num_key_value_heads"),
            head_dim=c["head_dim"] if full else c.get("swa_head_dim") or c["head_dim"],
            value_dim=c["v_head_dim"] if full else c.get("swa_v_head_dim") or c["v_head_dim"],
            window=window,
            qkv_bias=bool(c.get("attention_bias")),
        ) + norms(c["hidden_size"], 2)
        routed = _deepseek_experts({**c, "topk_method": None}, i)
        layers.append(layer + (routed if routed is not None else mlp(c)) + Layer(other=heads if sinks else 0))
    return Decoder(tuple(layers), c["hidden_size"])


_LLAMA = _Plain()
_QWEN2 = _Plain(qkv_bias=True, out_bias=False, mlp_bias=False)
_QWEN3 = _Plain(head_norms=True, mlp_bias=False)
_QWEN3_MOE = replace(_QWEN3, experts=_named("num_experts", "moe_intermediate_size", _qwen_sparse))
_INTERNLM = _Plain(qkv_bias="bias", out_bias="bias", mlp_bias=False)
_LOCAL = _named("num_local_experts", "intermediate_size")
_COHERE = _Plain(norms=1, row_norms="use_qk_norm", mlp_bias=False)
_OLMO2 = _Plain(row_norms=True, mlp_bias=False)
_GLM_MOE = _Plain(head_norms="use_qk_norm", out_bias=False, mlp_bias=False, experts=_deepseek_experts)

READERS: Mapping[str, Callable[[Config], Decoder]] = {
    "apertus": _Plain(head_norms=True, gated=False, more=lambda _c, _i: Layer(other=2)),
    "arcee": _Plain(gated=False),
    "baichuan": _LLAMA,
    "bloom": _bloom,
    "chatglm": _chatglm,
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "dbrx": _dbrx,
    "deepseek": _Plain(experts=_deepseek_experts),
    "deepseek_v2": latent,
    "deepseek_v3": latent,
    "deepseek_v32": latent,
    "dots1": _Plain(head_norms=True, mlp_bias=False, out_bias="attention_bias", experts=_deepseek_experts),
    "ernie4_5": _Plain(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
    "ernie4_5_moe": _Plain(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", experts=_ernie_experts),
    "exaone4": _Plain(head_norms=True, qkv_bias=False, out_bias=False, mlp_bias=False),
    "falcon": _falcon,
    "gemma": _Plain(mlp_bias=False),
    "gemma2": _Plain(norms=4, mlp_bias=False),
    "gemma3_text": _Plain(norms=4, head_norms=True, mlp_bias=False),
    "gemma3n_text": _gemma3n,
    "gemma4_text": _gemma4,
    "glm": _Plain(out_bias=False, mlp_bias=False),
    "glm4": _Plain(norms=4, out_bias=False, mlp_bias=False),
    "glm4_moe": _GLM_MOE,
    "glm4_moe_lite": latent,
    "glm_moe_dsa": latent,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _Plain(mlp_bias=False, experts=_named("num_local_experts", "intermediate_size", biases=True), more=_sinks),
    "gptj": _gptj,
    "granite": _LLAMA,
    "granitemoe": _Plain(mlp_bias=False, experts=_LOCAL),
    "granitemoeshared": _Plain(mlp_bias=False, experts=_granite_shared),
    "helium": _Plain(out_bias=False),
    "hunyuan_v1_dense": _Plain(head_norms="use_qk_norm", mlp_bias=False),
    "hunyuan_v1_moe": _Plain(head_norms="use_qk_norm", mlp_bias=False, experts=_hunyuan_experts),
    "internlm": _INTERNLM,
    "internlm2": _INTERNLM,
    "internlm3": _Plain(qkv_bias="qkv_bias", out_bias="bias", mlp_bias="bias"),
    "kimi_k2": latent,
    "llama": _LLAMA,
    "llama4_text": _Plain(mlp_bias=False, experts=_llama4_experts),
    "longcat_flash": _longcat,
    "mimo": _QWEN2,
    "mimo_v2_flash": _mimo_flash,
    "minicpm": _Plain(experts=_named("num_experts", "intermediate_size", lambda c, _i: bool(c.get("num_experts")))),
    "minicpm3": latent,
    "minimax_m2": _Plain(row_norms=True, qkv_bias=False, out_bias=False, mlp_bias=False, experts=_LOCAL),
    "ministral": _LLAMA,
    "ministral3": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _Plain(mlp_bias=False, experts=_LOCAL),
    "mllama_text_model": _mllama,
    "mpt": _mpt,
    "nemotron": _Plain(norm_bias=True, gated=False),
    "nemotron-nas": _nemotron_nas,
    "olmo": _Plain(normless=True, mlp_bias=False),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "olmoe": _Plain(row_norms=True, mlp_bias=False, experts=_named("num_experts", "intermediate_size")),
    "opt": _opt,
    "orion": _Plain(norm_bias=True, mlp_bias=False),
    # Attention and MLP side by side after one norm, biases everywhere.
    "phi": _Plain(norms=1, norm_bias=True, qkv_bias=True, out_bias=True, mlp_bias=True, gated=False, head_bias=True),
    "phi3": _Plain(qkv_bias=False, out_bias=False, mlp_bias=False),
    "phimoe": _Plain(norm_bias=True, experts=_LOCAL, head_bias="lm_head_bias"),
    "qwen": _qwen1,
    "qwen2": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": _Plain(qkv_bias="qkv_bias", out_bias=False, mlp_bias=False, experts=_qwen2_experts),
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": _Plain(out_bias="attention_out_bias"),
    "smollm3": _LLAMA,
    "stablelm": _Plain(norm_bias=True, qkv_bias="use_qkv_bias", out_bias=False, mlp_bias=False),
    "starcoder2": _Plain(norm_bias=True, qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", gated=False),
    **HYBRIDS,
}

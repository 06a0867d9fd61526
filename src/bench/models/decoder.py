"""What a config.json says of a decoder, whatever its family: layers and their attention, experts, states, windows.

One reader for all families, by the keys that they use; each name below stands beside the families that differ from Llama in that point.
Sizes and types of states are vLLM's (`MambaStateShapeCalculator`, `MambaStateDtypeCalculator`, 0.32), windows transformers'.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bench.errors import BenchError, shown
from bench.models.checkpoint_record import PACKED_BITS
from bench.models.geometry import MXFP4, Attention, Experts, State

Config = Mapping[str, Any]

# Families that this reader was compared with transformers' own modules for (tests/data/model_facts), without `_text` at the end.
_COMPARED = (
    "apertus arcee baichuan bamba cohere cohere2 deepseek deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5 ernie4_5_moe "
    "exaone4 falcon falcon_h1 gemma gemma2 gemma3 gemma3n gemma4 glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_neox "
    "gpt_oss granite granitemoe granitemoehybrid granitemoeshared helium internlm internlm2 internlm3 kimi_k2 lfm2 "
    "lfm2_moe llama llama4 llava mimo minicpm minicpm3 minimax_m2 ministral ministral3 mistral mistral3 mixtral nemotron "
    "nemotron_h olmo olmo2 olmo3 olmoe opt orion phi phi3 phimoe qwen qwen2 qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_5 "
    "qwen3_5_moe qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe seed_oss smollm3 stablelm starcoder2"
)
FAMILIES = frozenset(_COMPARED.split())
LATENT_KEYS = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
# Keys of decoders whose layers attend in several ways, by which Kimi-Linear's and Ling's kin differ from DeepSeek's.
_APART = ("layer_group_size", "linear_attn_config", "attn_type_list", "hybrid_layer_pattern")
# Other names of the same thing.
_NAMES = {
    "num_hidden_layers": ("n_layer",),
    "hidden_size": ("n_embd",),
    "num_attention_heads": ("n_head",),
    "num_key_value_heads": ("num_kv_heads",),
    "head_dim": ("kv_channels", "attention_head_dim"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "block_ff_dim"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_topk", "moe_k", "moe_top_k", "top_k_experts"),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
}
_POSITIVE = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "head_dim", "kv_lora_rank")
_OF_STATES = ("mamba_n_heads", "mamba_num_heads", "mamba_head_dim", "mamba_d_state", "ssm_state_size")
_COUNTS = (*_POSITIVE, *_NAMES, *LATENT_KEYS, *_OF_STATES, "sliding_window")
_LISTED = ("intermediate_size", "moe_intermediate_size", "num_experts", "num_experts_per_tok")  # of each layer, in some files
# keys that published files leave out and that are not as Llama has them; source: transformers' configuration classes
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "falcon": {"max_position_embeddings": 2048},
    "gemma3": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208, "sliding_window": 4096,
               "max_position_embeddings": 131_072},
    "llava": {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11_008},
    "mistral": {"sliding_window": 4096},
    "qwen2": {"max_window_layers": 28, "sliding_window": 4096},
    "qwen3": {"max_window_layers": 28, "sliding_window": 4096},
}  # fmt: skip
_SAME_TABLES = {
    *("cohere", "cohere2", "falcon", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "gpt2", "lfm2"),
    *("lfm2_moe", "minicpm", "opt", "qwen3_vl_moe", "starcoder2", "internvl"),
}
_MAMBA2 = {"bamba", "falcon_h1", "granitemoehybrid", "nemotron_h"}
_DELTA_NET = {"qwen3_5", "qwen3_5_moe", "qwen3_next"}
_STATES = ("mamba", "linear_attention", "conv")
# Families in which each n-th layer sees all, where the configuration names no `layer_types`: the key of n, and its default.
_PATTERNS = {
    "cohere2": ("sliding_window_pattern", 4),
    "exaone4": ("sliding_window_pattern", 4),
    "gemma2": ("sliding_window_pattern", 2),
    "gemma3": ("sliding_window_pattern", 6),
    "gemma3n": ("sliding_window_pattern", 5),
    "gemma4": ("sliding_window_pattern", 6),
    "gpt_oss": ("sliding_window_pattern", 2),
    "llama4": ("no_rope_layer_interval", 4),
    "olmo3": ("sliding_window_pattern", 4),
}
# Families whose windows must be switched on, and then are those of the layers from `max_window_layers` on; and one without a switch.
_SWITCHED = {"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_vl", "qwen2_5_vl", "smollm3"}
_SLIDING = {"sliding_attention", "chunked_attention", "sliding", "local"}
# Keys that have a kind for each layer: engines build `num_hidden_layers`, by the list's beginning.
_BY_LAYER = (
    *("layer_types", "layers_block_type", "hybrid_override_pattern", "mlp_layer_types", "moe_layer_freq", "indexer_types"),
    *("index_topk_pattern", "no_rope_layers"),
)


def family_of(config: Config, part: Config) -> str:
    """`model_type` of the decoder, or of the model that holds it, without `_text`."""
    return str(part.get("model_type") or config.get("model_type") or "(none stated)").removesuffix("_text")


def latent_throughout(part: Config) -> bool:
    """Whether all layers have multi-head latent attention, in a family that is not known: nothing says that they differ."""
    kinds = part.get("layer_types")
    alike = not isinstance(kinds, list) or set(map(str, kinds)) <= {"full_attention"}
    windows = part.get("sliding_window") and part.get("use_sliding_window", True)
    return alike and not windows and not any(part.get(key) for key in _APART) and all(key in part for key in LATENT_KEYS)


def named(family: str, config: Config, part: Config) -> dict[str, Any]:
    """The decoder's keys by one name each, with what the family, or the model that holds it, takes for keys that are left out.

    Raises:
        ValueError: a list of layers is shorter than the model.
        BenchError: a number is none, or out of bounds.
    """
    defaults = {**_DEFAULTS.get(str(config.get("model_type")), {}), **_DEFAULTS.get(family, {})}
    spelled = {
        key: next((name for name in (key, *others) if part.get(name) is not None), key) for key, others in _NAMES.items()
    }
    _refuse_odd_numbers(part, spelled)
    c = {**part, **{key: part.get(name) or defaults.get(key) for key, name in spelled.items()}}
    for key, value in defaults.items():
        c.setdefault(key, value)
    if c["num_hidden_layers"] is None and isinstance(c.get("layers_block_type"), list):
        c["num_hidden_layers"] = len(c["layers_block_type"])
    for key in ("hidden_size", "num_hidden_layers", "vocab_size"):
        if c.get(key) is None:
            raise KeyError(key)
    count = c["num_hidden_layers"]
    for key in _BY_LAYER:
        if isinstance(c.get(key), list | str) and c[key]:
            if len(c[key]) < count:
                raise ValueError(f"{key} lists {len(c[key])} layers, but num_hidden_layers is {count}")
            c[key] = c[key][:count]
    return c


def _refuse_odd_numbers(part: Config, spelled: Mapping[str, str]) -> None:
    """Args: spelled: what the file calls each key of `_NAMES`."""
    for key in dict.fromkeys(_COUNTS):
        name, least, most = spelled.get(key, key), int(key in _POSITIVE), 10_000 if key == "num_hidden_layers" else 10**9
        value = part.get(name)
        for each in value if isinstance(value, list) and key in _LISTED else [value]:
            number = isinstance(each, int | float) and not isinstance(each, bool)
            if each is not None and not (number and least <= each <= most):
                raise BenchError(f"config.json: {name} is {shown(each)}; it must be a number from {least} to {most:,}")


def tied(family: str, config: Config, c: Config) -> bool:
    """Whether the output layer is the embeddings."""
    outer = config.get("tie_word_embeddings", c.get("tie_word_embeddings", c.get("tie_embedding")))
    return family in _SAME_TABLES if outer is None else bool(outer)


def kinds_of(family: str, c: Config) -> list[str]:
    """Of each layer `attends`, `state`, `both`, or an empty text."""
    count, stated = c["num_hidden_layers"], c.get("layer_types") or c.get("layers_block_type")
    if family == "falcon_h1":
        return ["both"] * count
    if stated:
        return ["state" if kind in _STATES else "" if kind in ("mlp", "moe") else "attends" for kind in stated]
    if pattern := c.get("hybrid_override_pattern"):
        return [{"M": "state", "*": "attends", "-": "", "E": ""}[letter] for letter in pattern]
    sees = [True] * count
    if family in _DELTA_NET:
        sees = [(i + 1) % (c.get("full_attention_interval") or 4) == 0 for i in range(count)]
    elif family in ("bamba", "granitemoehybrid", "lfm2", "lfm2_moe"):
        chosen = c.get("attn_layer_indices" if family == "bamba" else "full_attn_idxs")
        sees = [family.startswith("lfm2") if chosen is None else i in chosen for i in range(count)]
    return ["attends" if each else "state" for each in sees]


def attention_of(family: str, c: Config, layer: int) -> Attention:
    """What an attending layer keeps of each token."""
    heads = c["num_attention_heads"]
    if heads is None:
        raise KeyError("num_attention_heads")
    if all(c.get(key) for key in LATENT_KEYS):
        rank, rope, nope, value = (c[key] for key in LATENT_KEYS)
        beside = c["index_head_dim"] + 4 if c.get("index_head_dim") and _indexes(c, layer) else 0  # FP8, with a float32 scale
        pairs = (nope + rope + value, rank + rope + rank)
        return Attention(heads, 1, rank + rope, pairs, latent=True, beside=beside)
    kv_heads, head_dim = c["num_key_value_heads"] or heads, c["head_dim"] or c["hidden_size"] // heads
    stated, shares = c.get("attention_chunk_size" if family == "llama4" else "sliding_window"), False
    window = int(stated) if stated and _slides(c, family, layer) else None
    if family in ("gpt_neox", "gpt2"):
        kv_heads = heads
    elif family == "falcon" and not c.get("new_decoder_architecture"):
        kv_heads = 1 if c.get("multi_query", True) else heads
    elif family in ("gemma3n", "gemma4"):
        shares = layer >= c["num_hidden_layers"] - (c.get("num_kv_shared_layers") or 0)
        if family == "gemma4" and window is None:
            head_dim = c.get("global_head_dim") or head_dim
            kv_heads = (c.get("attention_k_eq_v") and c.get("num_global_key_value_heads")) or kv_heads
    return Attention(heads, kv_heads, 2 * head_dim, (2 * head_dim, 2 * head_dim), window, shares=shares)


def _indexes(c: Config, layer: int) -> bool:
    """Whether the layer of sparse attention chooses tokens itself, or takes an earlier layer's choice (GLM 5.2)."""
    kinds = c.get("indexer_types") or c.get("index_topk_pattern")
    if kinds:
        return kinds[layer] in ("full", "F")
    step, offset = max(c.get("index_topk_freq") or 1, 1), c.get("index_skip_topk_offset")
    return max(layer - (2 if offset is None else offset) + 1, 0) % step == 0


def _slides(c: Config, family: str, layer: int) -> bool:
    """Whether the window that is stated is the layer's: `layer_types` decides where it is stated; else the family's rule in
    transformers' configuration class; else all layers have it, as in vLLM.
    """
    kinds, last = c.get("layer_types"), layer == c["num_hidden_layers"] - 1
    if family in _SWITCHED and not c.get("use_sliding_window"):
        return False
    if kinds:
        return kinds[layer] in _SLIDING
    if family == "llama4" and c.get("no_rope_layers"):
        return bool(c["no_rope_layers"][layer])
    if family in _PATTERNS:
        key, default = _PATTERNS[family]
        pattern = c.get(key) or default
        if isinstance(pattern, str):  # such as LLLG
            return pattern[layer % len(pattern)] == "L" and not last
        return (layer + 1) % pattern != 0 and not (last and family in ("exaone4", "gemma4"))
    return family not in _SWITCHED | {"dots1"} or bool(layer >= (c.get("max_window_layers") or 0))


def state_of(family: str, c: Config) -> State:
    """What a layer that does not attend keeps of a sequence: a convolution's last inputs, and a recurrence's state."""
    hidden = c["hidden_size"]
    kernel = _first(c, "mamba_d_conv", "conv_kernel", "linear_conv_kernel_dim", "conv_L_cache") - 1
    if family in _MAMBA2:
        size, count = _first(c, "mamba_d_state", "ssm_state_size"), _first(c, "mamba_n_heads", "mamba_num_heads")
        width = _first(c, "mamba_d_head", "mamba_head_dim", default=None)
        width = width if isinstance(width, int) else int(_first(c, "mamba_expand", "expand", default=2) * hidden) // count
        groups = _first(c, "mamba_n_groups", "n_groups")
        dtype = (c.get("mamba_ssm_cache_dtype") or "float32") if family == "nemotron_h" else None
        return State((count * width + 2 * groups * size) * kernel, count * width * size, dtype)
    if family in _DELTA_NET:
        keys, values = (c[f"linear_num_{each}_heads"] * c[f"linear_{each}_head_dim"] for each in ("key", "value"))
        return State((2 * keys + values) * kernel, values * c["linear_key_head_dim"], c.get("mamba_ssm_dtype"))
    if family in ("lfm2", "lfm2_moe"):
        return State(hidden * kernel, 0)
    raise ValueError(f"a layer that keeps a state, in {family}")


def _first(c: Config, *keys: str, default: Any = ...) -> Any:
    found = next((c[key] for key in keys if c.get(key) is not None), default)
    if found is ...:
        raise KeyError(keys[0])
    return found


def experts_of(family: str, c: Config) -> Experts | None:
    """The routed experts, and in how many layers they stand."""
    count = _most(c["num_experts"] or 0)
    if count <= 1 or (family == "gemma4" and not c.get("enable_moe_block")):
        return None
    layers, width = c["num_hidden_layers"], _most(c["moe_intermediate_size"] or c["intermediate_size"])
    outer = c.get("moe_latent_size") or c["hidden_size"]
    matrices, kinds, pattern = 3, c.get("mlp_layer_types"), c.get("hybrid_override_pattern")
    every = c.get("moe_layer_freq")
    step = _first(c, "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1) or 1
    first = _first(c, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0)
    if family == "nemotron_h":
        stated, matrices = c.get("layer_types") or c.get("layers_block_type"), 2
        sparse = list(stated).count("moe") if stated else str(pattern).count("E")
    elif kinds:
        sparse = list(kinds).count("sparse")
    elif isinstance(every, list):
        sparse = sum(map(bool, every))
    elif isinstance(every, int) and every > 1:
        sparse = sum(i % every == 0 for i in range(first, layers))
    else:
        dense = c.get("mlp_only_layers") or ()
        sparse = sum((i + 1) % step == 0 and i not in dense for i in range(first, layers))
    if not sparse:
        return None
    return Experts(count, _most(c["num_experts_per_tok"]), width, sparse, sparse * count * matrices * outer * width)


def _most(value: Any) -> int:
    """A number that a configuration states for all layers, or the most of one for each."""
    return int(max(value) if isinstance(value, list) else value)


def quantisation_of(config: Config, part: Config) -> Config | None:
    """What is said of quantisation at the top, or beside the decoder's keys."""
    keys = ("quantization_config", "compression_config")
    given = next((place[key] for place in (config, part) for key in keys if place.get(key) is not None), None)
    return config["quantization"] if given is None and "bits" in (config.get("quantization") or {}) else given


def _of_weights(given: Config) -> Config:
    """The part of a quantisation's configuration that is about weights."""
    inner: Config = given.get("quantization", given)
    groups = [each.get("weights") for each in (inner.get("config_groups") or {}).values()]
    return next((each for each in groups if each), inner)


def packed_bits(config: Config, part: Config) -> int:
    """Bits of a weight, where a number holds several. Of a value that is not what its key means `bytes_of_quantised` says so."""
    with suppress(TypeError, ValueError, AttributeError):
        given = quantisation_of(config, part)
        if given is not None and (bits := _first(_of_weights(given), *_BITS_KEYS, default=None)):
            return max(1, int(bits))
    return PACKED_BITS


def bytes_of_quantised(given: Config) -> float:
    """Bytes of a quantised weight, its share of scales included; nan where the method is not read."""
    inner, weights = given.get("quantization", given), _of_weights(given)
    method = str(given.get("quant_method", "")).lower()
    if method == "mxfp4":
        return MXFP4
    bits = _first(weights, *_BITS_KEYS, default=None) or _BITS.get(inner.get("quant_algo") or method)
    if method == "bitsandbytes":
        bits = 4.5 if given.get("load_in_4bit") else 8
    group = _first(weights, "group_size", "q_group_size", default=None) or 0
    scale = (1.0 if weights.get("type") == "float" else 2.5) / group if group > 0 else 0.0
    return bits / 8 + (scale if bits == 4 else 0) if bits else math.nan


def quantised_throughout(given: Config) -> bool:
    """Whether all matrices of the layers are quantised alike: nothing is left out but embeddings, output layer, norms and routers."""
    inner = given.get("quantization", given)
    keys = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude", "exclude_modules", "llm_int8_skip_modules")
    left = [str(name) for key in keys for name in inner.get(key) or ()]
    special = ("dynamic", "extra_config", "quantized_layers", "layer_quant_config", "modules_in_block_to_quantize")
    one = len(inner.get("config_groups") or {}) <= 1 and not any(inner.get(key) for key in special)
    return one and all(_NOT_IN_LAYERS.search(name) for name in left)


_NOT_IN_LAYERS = re.compile(r"lm_head|embed|norm|(^|\.)gate$|e_score|router")
_BITS_KEYS = ("bits", "num_bits", "w_bit")
# bits of a weight; derived
_BITS = {"fp8": 8, "fbgemm_fp8": 8, "FP8": 8, "FP8_PB_WO": 8, "NVFP4": 4.5, "NVFP4_AWQ": 4.5, "W4A16_AWQ": 4.25}

# Families whose MLP has two matrices, where Llama's has three.
_TWO_MATRICES = {
    *("apertus", "arcee", "falcon", "gpt2", "gpt_neox", "nemotron", "opt", "phi", "starcoder2"),
}


def width_of(family: str, c: Config) -> int:
    """Inner width of a dense layer's MLP."""
    stated: Any = c.get("intermediate_size_mlp") or c["intermediate_size"] or 0
    if not stated and family in ("falcon", "gpt2"):
        return int(c["hidden_size"] * 4)
    if c.get("block_auto_adjust_ff_dim"):  # LFM2: two thirds, rounded up
        step = int(c["block_multiple_of"])
        return -(-(int(stated) * 2 // 3) // step) * step
    return _most(stated) // (2 if family == "qwen" else 1)


def parameters_by_formula(family: str, c: Config, attention: Attention, width: int, *, same_tables: bool) -> int:
    """Parameters of a plain dense decoder: attention, an MLP of two or three matrices and two norms a layer, and the tables.

    Biases are left out: of the models that were compared, 0.1 % at most.
    """
    hidden, layers = c["hidden_size"], c["num_hidden_layers"]
    head = attention.width // 2
    layer = hidden * head * 2 * (attention.heads + attention.kv_heads) + 2 * hidden
    layer += hidden * width * (2 if family in _TWO_MATRICES else 3)
    learned = c.get("n_positions") or c.get("max_position_embeddings") or 0
    positions = learned if family in ("gpt2", "opt") else 0
    return int(layers * layer + c["vocab_size"] * hidden * (1 if same_tables else 2) + (positions + 1) * hidden)

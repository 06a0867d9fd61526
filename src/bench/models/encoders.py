"""Parameters of what stands before a decoder: encoders of images, with what leads from them to the decoder's width.

Counted as transformers builds the modules. An encoder that is not read here makes the model's parameters unknown; its KV cache is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.models.parts import Config


def encoder_parameters(config: Config, hidden: int) -> tuple[int, str | None]:
    """Parameters beside the decoder's, and why they are not known, if so.

    Args:
        hidden: the decoder's width.
    """
    family = str(config.get("model_type"))
    parts = [key for key in config if key.endswith(("vision_config", "audio_config", "speech_config")) and config[key]]
    for key in parts:
        if not isinstance(config[key], Mapping):
            raise TypeError(f"{key} is no object")
    reader = _READERS.get(family)
    if not parts and (reader is None or "vision_config" in config):
        return 0, None
    if reader is None or parts not in ([], ["vision_config"]):
        return 0, f"nothing here counts the parameters of {' and '.join(parts)} in a model of model_type {family}"
    tower = (config.get("vision_config") or {}).get("model_type")
    if tower is not None and family in _TOWERS and tower != _TOWERS[family]:
        return 0, f"nothing here counts the parameters of a vision_config of model_type {tower}"
    try:
        return int(reader(config, {**_DEFAULTS.get(family, {}), **(config.get("vision_config") or {})}, hidden)), None
    except KeyError as missing:
        return 0, f"vision_config of model_type {family} does not state {missing}"


def _vit(v: Config, *, norm_bias: bool = True, bias: bool = True, gated: bool = False) -> Any:
    """The layers of a vision transformer: attention, an MLP, two norms."""
    width, inner = v["hidden_size"], v["intermediate_size"]
    matrices = 4 * width * width + (3 if gated else 2) * width * inner
    biases = 4 * width + (2 if gated else 1) * inner + width if bias else 0
    layer = matrices + biases + 2 * width * (2 if norm_bias else 1)
    return v["num_hidden_layers"] * layer


def _siglip(_c: Config, v: Config, hidden: int) -> Any:
    """Gemma 3: SigLIP, a norm, and one matrix."""
    width, patch = v["hidden_size"], v["patch_size"]
    patches = (v["image_size"] // patch) ** 2
    embeddings = v.get("num_channels", 3) * patch * patch * width + width + patches * width
    return _vit(v) + embeddings + 2 * width + width * hidden + width


def _clip(_c: Config, v: Config, hidden: int) -> Any:
    """LLaVA: CLIP with its norms before and after, and an MLP of two matrices."""
    width, patch = v["hidden_size"], v["patch_size"]
    patches = (v["image_size"] // patch) ** 2 + 1
    embeddings = v.get("num_channels", 3) * patch * patch * width + width + patches * width
    return _vit(v) + embeddings + 4 * width + width * hidden + hidden + hidden * hidden + hidden


def _pixtral(c: Config, v: Config, hidden: int) -> Any:
    """Mistral 3 and Ministral 3: Pixtral without biases, a merger of patches, and an MLP of two matrices."""
    width, patch, merged = v["hidden_size"], v["patch_size"], c.get("spatial_merge_size", 2) ** 2
    encoder = _vit(v, norm_bias=False, bias=False, gated=True) + v.get("num_channels", 3) * patch * patch * width + width
    bias = 2 * hidden if c.get("multimodal_projector_bias") else 0
    return encoder + width + merged * width * width + width * hidden + hidden * hidden + bias


def _qwen(_c: Config, v: Config, _hidden: int) -> Any:
    """Qwen3-VL and Qwen3.5: learned positions, and mergers, as many more as there are layers whose features go into the decoder."""
    width, out, merged = v["hidden_size"], v["out_hidden_size"], v["hidden_size"] * v["spatial_merge_size"] ** 2
    inputs = v.get("in_channels", 3) * v["temporal_patch_size"] * v["patch_size"] ** 2
    tower = _vit({**v, "num_hidden_layers": v["depth"]}) + inputs * width + width + v["num_position_embeddings"] * width
    merger = merged * merged + merged + merged * out + out
    deep = len(v.get("deepstack_visual_indexes") or ())
    return tower + merger + 2 * width + deep * (merger + 2 * merged)


def _qwen2_5(_c: Config, v: Config, _hidden: int) -> Any:
    """Qwen2.5-VL: a gated MLP with biases, RMS norms."""
    width, merged = v["hidden_size"], v["hidden_size"] * v.get("spatial_merge_size", 2) ** 2
    inputs = v.get("in_channels", v.get("in_chans", 3)) * v.get("temporal_patch_size", 2) * v.get("patch_size", 14) ** 2
    tower = _vit({**v, "num_hidden_layers": v["depth"]}, norm_bias=False, gated=True) + inputs * width
    out = v["out_hidden_size"]
    return tower + width + merged * merged + merged + merged * out + out


def _qwen2(_c: Config, v: Config, hidden: int) -> Any:
    """Qwen2-VL."""
    width = v.get("embed_dim", 1280)
    merged = width * v.get("spatial_merge_size", 2) ** 2
    inputs = v.get("in_channels", v.get("in_chans", 3)) * v.get("temporal_patch_size", 2) * v.get("patch_size", 14) ** 2
    shape = {
        "hidden_size": width,
        "intermediate_size": int(width * v.get("mlp_ratio", 4)),
        "num_hidden_layers": v.get("depth", 32),
    }
    return _vit(shape) + inputs * width + 2 * width + merged * merged + merged + merged * hidden + hidden


def _internvl(c: Config, v: Config, hidden: int) -> Any:
    """InternVL: InternViT with a scale for each of a layer's two halves, and an MLP over four merged patches."""
    width = v["hidden_size"]
    patch, size = (v[key][0] if isinstance(v[key], list) else v[key] for key in ("patch_size", "image_size"))
    patches = (size // patch) ** 2 + 1
    layers, heads_bias = v["num_hidden_layers"], bool(v.get("attention_bias", v.get("qkv_bias", False)))
    tower = _vit({**v}) + layers * 2 * width - (0 if heads_bias else 3 * width * layers)
    tower += layers * 2 * width if v.get("use_qk_norm", v.get("qk_normalization")) else 0
    # RMS norms have no bias.
    tower -= 2 * width * layers if v.get("norm_type") == "rms_norm" else 0
    embeddings = 3 * patch * patch * width + width + patches * width + width
    merged = width * round(1 / c.get("downsample_ratio", 0.5)) ** 2
    return tower + embeddings + 2 * merged + merged * hidden + hidden + hidden * hidden + hidden


def _llama4(_c: Config, v: Config, hidden: int) -> Any:
    """Llama 4: positions and a class token, an MLP that shuffles pixels, and one matrix."""
    width, patch = v["hidden_size"], v["patch_size"]
    patches = (v["image_size"] // patch) ** 2 + 1
    embeddings = v.get("num_channels", 3) * patch * patch * width + width + patches * width + 4 * width
    inner = v["intermediate_size"]
    shuffled = inner * v["projector_input_dim"] + v["projector_output_dim"] ** 2
    return _vit(v) + embeddings + shuffled + v["vision_output_dim"] * hidden


def _kimi(_c: Config, v: Config, hidden: int) -> Any:
    """Kimi K2.5: MoonViT, and an MLP over merged patches."""
    width = v.get("vt_hidden_size", 1152)
    inner, layers = v.get("vt_intermediate_size", 4304), v.get("vt_num_hidden_layers", 27)
    tower = _vit({"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers})
    positions = v.get("init_pos_emb_height", 64) * v.get("init_pos_emb_width", 64)
    tower += 3 * v.get("patch_size", 14) ** 2 * width + width + positions * width + 2 * width
    down, up = v.get("merge_kernel_size") or (2, 2)
    merged = width * down * up
    return tower + 2 * width + merged * merged + merged + merged * hidden + hidden


def _gemma4(_c: Config, v: Config, hidden: int) -> Any:
    """Gemma 4: four norms a layer and norms of heads, no biases, a table of positions for each axis, and one matrix."""
    width, inner, layers = v["hidden_size"], v["intermediate_size"], v["num_hidden_layers"]
    head_dim = v.get("head_dim") or width // v["num_attention_heads"]
    queries = v["num_attention_heads"] * head_dim
    keys = (v.get("num_key_value_heads") or v["num_attention_heads"]) * head_dim
    layer = 2 * width * (queries + keys) + 3 * width * inner + 4 * width + 2 * head_dim
    embeddings = 3 * v["patch_size"] ** 2 * width + 2 * v["position_embedding_size"] * width
    return layers * layer + embeddings + width * hidden


# Models that are built around different encoders, and the one that is read here.
_TOWERS = {"gemma3": "siglip_vision_model", "llava": "clip_vision_model", "mistral3": "pixtral"}
# keys that LLaVA's files leave out; source: transformers' configuration classes
_CLIP = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14, "image_size": 336}
# keys that Pixtral's files leave out; source: transformers' configuration classes
_PIXTRAL = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "patch_size": 16,
    "num_attention_heads": 16,
}
# keys that Qwen 3's files leave out; source: transformers' configuration classes
_QWEN3 = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}
# keys that published files of each family leave out; source: transformers' configuration classes
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "patch_size": 16, "image_size": 224},
    "gemma4": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "head_dim": 64,
        "patch_size": 16,
        "position_embedding_size": 10240,
    },
    "internvl": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14, "image_size": 448},
    "llama4": {
        "hidden_size": 768,
        "intermediate_size": 5632,
        "num_hidden_layers": 34,
        "patch_size": 14,
        "image_size": 448,
        "vision_output_dim": 7680,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
    },
    "llava": _CLIP,
    "mistral3": _PIXTRAL,
    "qwen2_5_vl": {"depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "out_hidden_size": 3584},
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
    "qwen3_vl": {**_QWEN3, "deepstack_visual_indexes": [8, 16, 24]},
    "qwen3_vl_moe": {**_QWEN3, "deepstack_visual_indexes": [8, 16, 24]},
}

_READERS: Mapping[str, Callable[[Config, Config, int], Any]] = {
    "gemma3": _siglip,
    "gemma4": _gemma4,
    "internvl": _internvl,
    "internvl_chat": _internvl,
    "kimi_k25": _kimi,
    "llama4": _llama4,
    "llava": _clip,
    "mistral3": _pixtral,
    "qwen2_5_vl": _qwen2_5,
    "qwen2_vl": _qwen2,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
}

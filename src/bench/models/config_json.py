"""A published config.json, read as a decoder's geometry, and written for architecture facts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.errors import BenchError, shown
from bench.models.families import READERS, Config, llama
from bench.models.geometry import Geometry
from bench.models.model import Architecture, Model
from bench.published import decoder_part

# Keys from which memory and speed are computed.
_COUNT = re.compile(
    r"(num_(hidden_layers|attention_heads|key_value_heads|kv_heads|experts|experts_per_tok|local_experts)|(hidden|vocab|\w*intermediate)_size"
    r"|head_dim|max_position_embeddings|n_(positions|embd|head|layer|inner|routed_experts|shared_experts)|sliding_window"
    r"|(kv|q)_lora_rank|(qk_rope|qk_nope|v)_head_dim|ffn_hidden_size)"
)

_NEVER_ZERO = {
    *("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "max_position_embeddings", "head_dim"),
    *("n_layer", "n_head", "n_embd", "n_positions", "kv_lora_rank"),
}

__all__ = ["config_of", "geometry_at", "geometry_of", "geometry_of_model"]


def geometry_of_model(model: Model) -> Geometry | None:
    """The geometry that a study's model states; None where only its checkpoint knows.

    Raises:
        BenchError: its `config` lacks a key.
    """
    if model.architecture:
        return geometry_of(config_of(model.architecture))
    return geometry_of(model.config) if model.config else None


def geometry_at(path: Path) -> Geometry:
    """The geometry of a config.json, or of the checkpoint's folder that holds one.

    Raises:
        BenchError: there is none, it is not JSON, or it lacks a key that its family needs.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BenchError(f"{path} holds no config.json; name the folder of a checkpoint, or the file itself.") from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not JSON, a number of 5,000 digits
        raise BenchError(f"{file} cannot be read as JSON: {error}. Name a model's config.json.") from None
    if not isinstance(config, dict):
        raise BenchError(f"{file} holds no JSON object. Name a model's config.json.")
    try:
        return geometry_of(config)
    except BenchError as error:
        raise BenchError(f"{file}: {error}. Name the config.json of a decoder.") from None


def geometry_of(config: Config) -> Geometry:
    """The geometry of the model that a config.json describes.

    A family without a reader here is taken for Llama-shaped, and marked so (`exact`): most are, in all that the KV cache needs.

    Raises:
        BenchError: it lacks a key that its family needs, or a value is not what the key means.
    """
    part = decoder_part(config)
    family = str(part.get("model_type", "unknown"))
    _refuse_odd_numbers(part)
    try:
        geometry = READERS.get(family, llama)(part)
        encoder, encoder_known = _encoder_parameters(config)
        quantised, quantisation_known = _quantised_bytes(config.get("quantization_config"))
    except KeyError as missing:
        raise BenchError(f"config.json of model_type {family} does not state {missing}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, StopIteration) as error:
        raise BenchError(f"config.json of model_type {family} has a value that is not what its key means ({error})") from None
    return replace(
        geometry,
        parameters=geometry.parameters + encoder,
        active_parameters=geometry.active_parameters + encoder,
        quantised_bytes=quantised,
        exact=family in READERS and encoder_known and quantisation_known,
    )


def config_of(architecture: Architecture) -> dict[str, Any]:
    """The config.json of a Llama with these facts: gated MLP, RMS norms, no biases, an output layer of its own."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": architecture.layers,
        "hidden_size": architecture.hidden_size,
        "num_attention_heads": architecture.heads,
        "num_key_value_heads": architecture.kv_heads,
        "head_dim": architecture.head_dim,
        "intermediate_size": architecture.intermediate_size,
        "vocab_size": architecture.vocabulary,
        "max_position_embeddings": architecture.context,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }


def _refuse_odd_numbers(part: Config) -> None:
    """Refuse a count or a size that is none.

    Raises:
        BenchError: it names the key.
    """
    for key, value in part.items():
        if _COUNT.fullmatch(str(key)) and value is not None:
            least, most = int(key in _NEVER_ZERO), 10_000 if "layer" in key else 10**9
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
                raise BenchError(f"config.json: {key} is {shown(value)}; it is a number from {least} to {most:,}")


def _encoder_parameters(config: Config) -> tuple[int, bool]:
    """Parameters of Gemma 3's image encoder (SigLIP) with its projection; and whether the count is right."""
    vision = config.get("vision_config")
    if vision is None:
        return 0, True
    if vision.get("model_type") != "siglip_vision_model" or config.get("model_type") != "gemma3":
        return 0, False
    width, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    patches = (vision["image_size"] // patch) ** 2
    layer = 4 * width * width + 4 * width + 2 * width * inner + inner + width + 4 * width
    embeddings = vision.get("num_channels", 3) * patch * patch * width + width + patches * width
    projection = width * config["text_config"]["hidden_size"] + width
    return vision["num_hidden_layers"] * layer + embeddings + 2 * width + projection, True


def _quantised_bytes(quantisation: Config | None) -> tuple[float | None, bool]:
    """Bytes of a quantised parameter with its share of what a block or group of them has in common; and whether the method is known.

    That is a float32 scale for a block of FP8, a float16 scale for a group of compressed-tensors, and a packed zero point beside it
    in GPTQ and AWQ. A scale of a whole matrix or column weighs nothing against it.
    """
    if quantisation is None:
        return None, True
    method = quantisation.get("quant_method")
    if method == "fp8":
        rows, columns = quantisation.get("weight_block_size") or (0, 0)
        return 1 + (4 / (rows * columns) if rows else 0), True
    if method == "compressed-tensors":
        weights = next(iter(quantisation["config_groups"].values()))["weights"]
        group = weights.get("group_size") or 0
        return weights["num_bits"] / 8 + (2 / group if group > 0 else 0), True
    if method in ("awq", "gptq"):
        each, group = quantisation["bits"] / 8, quantisation.get("group_size") or 0
        return each + ((2 + each) / group if group > 0 else 0), True
    return None, False

"""A published config.json, read as a decoder's geometry, and written for architecture facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.errors import BenchError
from bench.models.families import READERS, Config, llama
from bench.models.geometry import Geometry
from bench.study import Architecture, Model, decoder_part

__all__ = ["config_of", "geometry_of", "geometry_of_model"]


def geometry_of_model(model: Model) -> Geometry | None:
    """The geometry that a study's model states; None where only its checkpoint knows.

    Raises:
        BenchError: its `config` lacks a key.
    """
    if model.architecture:
        return geometry_of(config_of(model.architecture))
    return geometry_of(model.config) if model.config else None


def geometry_of(config: Config) -> Geometry:
    """The geometry of the model that a config.json describes.

    A family without a reader here is taken for Llama-shaped, and said to be (`exact`): most are, in all that the KV cache needs.

    Raises:
        BenchError: it lacks a key that its family needs.
    """
    part = decoder_part(config)
    family = str(part.get("model_type", "unknown"))
    try:
        geometry = READERS.get(family, llama)(part)
        encoder, encoder_known = _encoder_parameters(config)
        quantised, quantisation_known = _quantised_bytes(config.get("quantization_config"))
    except KeyError as missing:
        raise BenchError(f"config.json of model_type {family} does not state {missing}") from None
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
    """Bytes of a quantised parameter with its share of a block's scale (float32); and whether the method is known here."""
    if quantisation is None:
        return None, True
    method = quantisation.get("quant_method")
    if method == "fp8":
        rows, columns = quantisation.get("weight_block_size") or (0, 0)
        return 1 + (4 / (rows * columns) if rows else 0), True
    if method == "compressed-tensors":
        group = next(iter(quantisation["config_groups"].values()))
        return group["weights"]["num_bits"] / 8, True
    return None, False

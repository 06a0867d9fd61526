"""A config.json, read as a decoder's geometry."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bench.errors import BenchError
from bench.models import decoder
from bench.models.catalogue import DECODER_KEYS, CatalogueEntry, catalogue, context_of, decoder_part
from bench.models.checkpoint_record import Weights, weights_at
from bench.models.decoder import Config
from bench.models.geometry import Geometry
from bench.models.gguf_file import config_of_gguf, parameters_of_gguf
from bench.models.model import OF_LLAMA, Model

_AS_LLAMA = (
    f"If its layers attend as a Llama's do, write a config.json of `model_type: llama` with its {', '.join(OF_LLAMA)}; in a study, "
    "give them as models.NAME.config"
)


def geometry_of_model(model: Model) -> Geometry | None:
    """The geometry that a study's model states; None where only its checkpoint knows.

    Raises:
        BenchError: its `config` lacks a key.
    """
    return geometry_of(model.config, stated_weights(model)) if model.config else None


def stated_weights(model: Model) -> Weights | None:
    """Its weights as the study states them, or the catalogue of a model that is taken from it unchanged."""
    if model.parameters:
        return Weights(model.parameters)
    entry = catalogue().get(model.catalogue or "")
    return Weights(entry.parameters, entry.weight_bytes) if entry and entry.config == model.config else None


def served_model(model: Model) -> tuple[Geometry | None, Config | None]:
    """What a server that was not started here serves: its geometry and its config.json, stated or at the model's path on this machine.

    None where they are not known, are of a family that is not read, or lack a key: what is measured does not need them.
    """
    try:
        if model.here is None or model.config:
            return geometry_of_model(model), model.config
        return geometry_at(Path(model.here), stated_weights(model)), config_at(Path(model.here))
    except BenchError:
        return None, model.config


def geometry_of_entry(entry: CatalogueEntry) -> Geometry:
    """The geometry of a model of the catalogue."""
    return geometry_of(entry.config, Weights(entry.parameters, entry.weight_bytes))


def geometry_at(path: Path, stated: Weights | None = None) -> Geometry:
    """The geometry of a config.json, of the checkpoint's folder that holds one, or of a GGUF file; weights by its files' own heads.

    Args:
        stated: weights that count where there are no files.

    Raises:
        BenchError: there is none, it is not JSON, or it lacks a key that its family needs.
    """
    config = config_at(path)
    if path.suffix.lower() == ".gguf":
        return geometry_of(config, Weights(parameters_of_gguf(path), path.stat().st_size))
    file = path / "config.json" if path.is_dir() else path
    try:
        return geometry_of(config, weights_at(file.parent, *of_heads(config)) or stated)
    except BenchError as error:
        raise BenchError(f"{file}: {str(error).rstrip('.')}. Name the config.json of a decoder.") from None


def of_heads(config: Config) -> tuple[int | None, int]:
    """What the heads of its weights do not say: how many layers the model has, and the bits of a packed weight."""
    part = decoder_part(config)
    return part.get("num_hidden_layers"), decoder.packed_bits(config, part)


def config_at(path: Path) -> Config:
    """A config.json, that in a checkpoint's folder, or what a GGUF file states.

    What a checkpoint's `hf_quant_config.json` says of quantisation is part of it.

    Raises:
        BenchError: there is none, or it is not JSON.
    """
    if path.suffix.lower() == ".gguf":
        return config_of_gguf(path)
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BenchError(f"{path} has no config.json; name a checkpoint's folder, or the file itself.") from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not JSON, a number of 5,000 digits
        raise BenchError(f"{file} cannot be read as JSON: {error}. Name a model's config.json.") from None
    if not isinstance(config, dict):
        raise BenchError(f"{file} is not a JSON object. Name a model's config.json.")
    if not any(isinstance(part, dict) and "quantization_config" in part for part in (config, config.get("text_config"))):
        with suppress(OSError, ValueError, RecursionError):
            beside = json.loads((file.parent / "hf_quant_config.json").read_text(encoding="utf-8"))
            return {**config, "quantization_config": beside} if isinstance(beside, dict) else config
    return config


def geometry_of(config: Config, weights: Weights | None = None) -> Geometry:
    """The geometry of the model that a config.json describes.

    Args:
        weights: as files, the study or the catalogue have them; None where nobody says, and those of a plain dense decoder are counted.

    Raises:
        BenchError: its family is not read here, it lacks a key that its family needs, or a value is not what the key means.
    """
    part = decoder_part(config)
    family = decoder.family_of(config, part)
    if family not in decoder.FAMILIES and not decoder.latent_throughout(part):
        raise BenchError(
            f"model_type {family} is not a known family, so its KV cache is not known, and a guess would be wrong; its decoder was "
            f"looked for at the top and under {', '.join(DECODER_KEYS)}. {_AS_LLAMA}"
        )
    try:
        return _weighed(_shape(family, config, part), config, part, weights)
    except KeyError as missing:
        raise BenchError(f"config.json of model_type {family} does not state {missing}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError) as error:
        raise BenchError(f"config.json of model_type {family} has an invalid value ({error})") from None


def _shape(family: str, config: Config, part: Config) -> Geometry:
    c, quantised = decoder.named(family, config, part), decoder.quantisation_of(config, part)
    kinds = decoder.kinds_of(family, c)
    attentions = tuple(
        decoder.attention_of(family, c, i) if kind in ("attends", "both") else None for i, kind in enumerate(kinds)
    )
    state = decoder.state_of(family, c) if {"state", "both"} & set(kinds) else None
    first = next(filter(None, attentions), None)
    if first is None:
        raise ValueError("no layer attends")
    if (context := context_of(c)) is None:
        raise KeyError("max_position_embeddings")
    return Geometry(
        family=family,
        layers=c["num_hidden_layers"],
        hidden_size=c["hidden_size"],
        heads=first.heads,
        kv_heads=first.kv_heads,
        head_dim=first.width if first.latent else first.pairs[0] // 2,
        intermediate_size=decoder.width_of(family, c),
        vocabulary=c["vocab_size"],
        context=context,
        attentions=attentions,
        states=tuple(state if kind in ("state", "both") else None for kind in kinds),
        tied=decoder.tied(family, config, c),
        experts=decoder.experts_of(family, c),
        quantised_bytes=None if quantised is None else decoder.bytes_of_quantised(quantised),
    )


def _weighed(shape: Geometry, config: Config, part: Config, weights: Weights | None) -> Geometry:
    """The shape with its weights: as they are given, or by the formula of a plain dense decoder."""
    estimated = None
    quantised = decoder.quantisation_of(config, part)
    encodes = any(str(key).startswith(("vision", "visual", "audio")) for key in config)
    if weights is None and part is config and not encodes and _plain(shape):
        c = decoder.named(shape.family, config, part)
        (kind, _), width = shape.attention_kinds[0], shape.intermediate_size
        weights = Weights(decoder.parameters_by_formula(shape.family, c, kind, width, same_tables=shape.tied))
        estimated = "they are counted by the formula of a plain dense decoder, which leaves biases out"
    if weights is None:
        return shape
    weighed, each = replace(shape, parameters=weights.parameters, estimated=estimated), shape.quantised_bytes
    if each is None or weights.stored is not None:
        return replace(weighed, stored=weights.stored)
    if shape.experts and shape.mxfp4_bytes:
        stored = round(shape.mxfp4_bytes) + 2 * (weights.parameters - shape.experts.parameters)
        return replace(weighed, stored=stored, estimated="their experts are counted as MXFP4, and the rest in 16 bit")
    if quantised is None or math.isnan(each) or not decoder.quantised_throughout(quantised):
        return weighed
    how = f"they are quantised, and {each:.3g} bytes are counted for each parameter outside the embeddings and the output layer"
    return replace(weighed.quantised(each), estimated=how)


def _plain(shape: Geometry) -> bool:
    """Whether all layers are one attention of the same shape, but for its window, and one dense MLP."""
    kinds = {replace(kind, window=None) for kind, _ in shape.attention_kinds}
    odd = shape.experts or any(shape.states) or not all(shape.attentions)
    return not odd and len(kinds) == 1 and not any(kind.latent or kind.shares for kind in kinds)

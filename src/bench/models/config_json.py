"""A published config.json, read as a decoder's geometry, and written for architecture facts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.errors import BenchError, shown
from bench.models.definitions import LATENT_KEYS, family_of, known_families, tied_of, unread_keys, with_defaults
from bench.models.encoders import encoder_parameters
from bench.models.families import READERS, latent
from bench.models.geometry import Geometry
from bench.models.gguf_file import config_of_gguf
from bench.models.layers import Decoder, every
from bench.models.model import Architecture, Model
from bench.models.parts import Config
from bench.models.quantisation import Quantisation, quantisation_of, weighed
from bench.published import DECODER_KEYS, context_of, decoder_part

# Keys from which memory and speed are computed.
_COUNT = re.compile(
    r"(num_(hidden_layers|layers|attention_heads|key_value_heads|kv_heads|experts|experts_per_tok|local_experts)|(hidden|vocab|\w*intermediate)_size"
    r"|head_dim|max_position_embeddings|n_(positions|embd|heads?|layers?|inner|routed_experts|shared_experts)|sliding_window"
    r"|(kv|q)_lora_rank|(qk_rope|qk_nope|v)_head_dim|ffn_(hidden_size|dim)|d_model|\w*state_size|mamba_\w+_(heads|dim|size)|moe_topk|moe_k)"
)

_NEVER_ZERO = {
    *("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "max_position_embeddings", "head_dim"),
    *("n_layer", "n_head", "n_embd", "n_positions", "kv_lora_rank", "num_layers", "n_layers", "n_heads", "d_model"),
}

# Keys that may have a value for each layer, with the families in which they may.
_BY_LAYER = {
    "intermediate_size": {"gemma3n_text"},
    "moe_intermediate_size": {"hunyuan_v1_moe"},
    "moe_topk": {"hunyuan_v1_moe"},
    "num_experts": {"hunyuan_v1_moe"},
}
# Keys that have a kind for each layer.
_KINDS = (
    *(
        "layer_types",
        "layers_block_type",
        "hybrid_override_pattern",
        "attn_type_list",
        "mlp_layer_types",
        "hybrid_layer_pattern",
    ),
    *("indexer_types", "index_topk_pattern", "moe_layer_freq", "no_rope_layers", "block_configs"),
)
_AS_LLAMA = (
    "If its layers attend as a Llama's do, write a config.json of `model_type: llama` with its num_hidden_layers, hidden_size, "
    "num_attention_heads, num_key_value_heads, head_dim, intermediate_size, vocab_size and max_position_embeddings; in a study, give "
    "them as models.NAME.architecture"
)
_NO_LIMIT = 10**9  # context of a model that keeps a state alone (tokens); convention: practically infinite


def geometry_of_model(model: Model) -> Geometry | None:
    """The geometry that a study's model states; None where only its checkpoint knows.

    Raises:
        BenchError: its `config` lacks a key.
    """
    if model.architecture:
        return geometry_of(config_of(model.architecture))
    return geometry_of(model.config) if model.config else None


def served_model(model: Model) -> tuple[Geometry | None, Config | None]:
    """What a server that was not started here serves: its geometry and its config.json, stated or at the model's path on this machine.

    None where they are not known, are of a family that is not read, or lack a key: what is measured does not need them.
    """
    try:
        if model.here is None or model.config:
            return geometry_of_model(model), model.config
        return geometry_at(Path(model.here)), config_at(Path(model.here))
    except BenchError:
        return None, model.config


def geometry_at(path: Path) -> Geometry:
    """The geometry of a config.json, of the checkpoint's folder that holds one, or of a GGUF file.

    Raises:
        BenchError: there is none, it is not JSON, or it lacks a key that its family needs.
    """
    config = config_at(path)
    if path.suffix.lower() == ".gguf":
        return geometry_of(config)
    file = _config_file(path)
    try:
        geometry = geometry_of(config, quantisation_at(file.parent))
        return geometry if geometry.exact else replace(geometry, file_bytes=weights_at(file.parent))
    except BenchError as error:
        raise BenchError(f"{file}: {str(error).rstrip('.')}. Name the config.json of a decoder.") from None


def _config_file(path: Path) -> Path:
    return path / "config.json" if path.is_dir() else path


def config_at(path: Path) -> Config:
    """A config.json, that in a checkpoint's folder, or what a GGUF file states.

    Raises:
        BenchError: there is none, or it is not JSON.
    """
    if path.suffix.lower() == ".gguf":
        return config_of_gguf(path)
    file = _config_file(path)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BenchError(f"{path} holds no config.json; name the folder of a checkpoint, or the file itself.") from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not JSON, a number of 5,000 digits
        raise BenchError(f"{file} cannot be read as JSON: {error}. Name a model's config.json.") from None
    if not isinstance(config, dict):
        raise BenchError(f"{file} holds no JSON object. Name a model's config.json.")
    return config


def weights_at(folder: Path) -> int | None:
    """Bytes of a checkpoint's weights: of its files, or as their index states; None where it has neither."""
    try:
        stated = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))["metadata"]["total_size"]
        if isinstance(stated, int | float) and stated > 0:
            return int(stated)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) or None


def quantisation_at(folder: Path) -> Config | None:
    """The content of a checkpoint's `hf_quant_config.json`, where it has one that can be read."""
    try:
        content = json.loads((folder / "hf_quant_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def geometry_of(config: Config, quantisation_beside: Config | None = None) -> Geometry:
    """The geometry of the model that a config.json describes.

    Args:
        quantisation_beside: the content of a `hf_quant_config.json`, where the checkpoint has one.

    Returns:
        Where the weights cannot be told (`exact`), its KV cache is right all the same.

    Raises:
        BenchError: its family is not read here, it lacks a key that its family needs, or a value is not what the key means.
    """
    part = decoder_part(config)
    _refuse_odd_numbers(part)
    family, reader = _reader(config, part)
    stated = None if part.get("model_type") is None else str(part["model_type"])
    assumed = (
        f"model_type {stated} is not known; by its architecture's name its KV cache is taken for that of {family}"
        if stated not in (None, family) and (part is config or stated not in known_families())
        else None
    )
    try:
        if not isinstance(part.get("layer_types") or [], list):
            raise TypeError(f"layer_types is {shown(part['layer_types'])}")
        shape = _of_its_layers(with_defaults(family, part, nested=part is not config or family.endswith("_text")), part)
        decoder = reader(shape)
        hidden = decoder.hidden or shape["hidden_size"]
        encoder, uncounted = encoder_parameters(config, hidden)
        quantisation = quantisation_of(config, part, quantisation_beside)
        doubts = [assumed and (assumed, None), uncounted and (uncounted, "at least"), _unread(family, part)]
        return _geometry(config, shape, decoder, quantisation, encoder, [doubt for doubt in doubts if doubt])
    except KeyError as missing:
        raise BenchError(
            f"{_where(config, part)} of model_type {family} does not state {missing}{_looked(config, part)}"
        ) from None
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, StopIteration, re.error) as error:
        raise BenchError(f"config.json of model_type {family} has a value that is not what its key means ({error})") from None


def _of_its_layers(shape: Config, part: Config) -> Config:
    """A shape whose lists of kinds of layers are as long as the model: engines build `num_hidden_layers`, by the list's beginning.

    Raises:
        ValueError: a list is shorter.
    """
    count = part.get("num_hidden_layers")
    if not isinstance(count, int):
        return shape
    lists = {key: shape[key] for key in _KINDS if isinstance(shape.get(key), list | str) and shape[key]}
    if short := next((key for key, kinds in lists.items() if len(kinds) < count), None):
        raise ValueError(f"{short} has the kinds of {len(lists[short])} layers, and num_hidden_layers is {count}")
    return {**shape, **{key: kinds[:count] for key, kinds in lists.items()}}


def _reader(config: Config, part: Config) -> tuple[str, Callable[[Config], Decoder]]:
    """The family that a decoder's keys belong to: by its model_type, its keys for latent attention, or its architecture's name.

    Raises:
        BenchError: none that is read here.
    """
    family = family_of(config, part)
    if family in READERS:
        return family, READERS[family]
    if all(key in part for key in LATENT_KEYS):
        return family, latent
    raise BenchError(
        f"model_type {family} is not a family that is read here, and a guess would be wrong: neither its KV cache nor its "
        f"weights are known{_looked(config, part)}. {_AS_LLAMA}"
    )


def _geometry(
    config: Config,
    c: Config,
    decoder: Decoder,
    quantisation: Quantisation,
    encoder: int,
    doubts: Sequence[tuple[str, str | None]],
) -> Geometry:
    family = str(c["model_type"])
    attentions = tuple(layer.attentions for layer in decoder.layers)
    if not any(layer.attentions or layer.state for layer in decoder.layers):
        raise ValueError("no layer attends or keeps a state")
    first = next((each for layer in attentions for each in layer), None)
    hidden = decoder.hidden or c["hidden_size"]
    dense, routed, used = weighed(decoder.layers, quantisation)
    doubts = list(doubts)
    if not quantisation.known:
        doubts.append((f"nothing here reads what {quantisation.method} quantisation takes, and 16 bit are counted", "at most"))
    if family not in READERS:
        reason = (
            f"nothing here counts the weights of model_type {family}; its KV cache follows from its keys of latent attention"
        )
        doubts.append((reason, None))
    width, chosen = _experts(decoder, hidden)
    return Geometry(
        family=family,
        layers=len(decoder.layers),
        hidden_size=hidden,
        heads=first.heads if first else 0,
        kv_heads=first.kv_heads if first else 0,
        head_dim=0 if first is None else first.width if first.latent else first.pairs[0] // 2,
        intermediate_size=decoder.intermediate or every(c.get("intermediate_size") or 0, 0),
        vocabulary=decoder.vocabulary or c["vocab_size"],
        context=context_of(c) or _NO_LIMIT,
        outside=sum(layer.other for layer in decoder.layers) + decoder.once + decoder.spare * hidden + encoder,
        dense=dense,
        routed=routed,
        used=used,
        attentions=attentions,
        states=tuple(layer.state for layer in decoder.layers),
        tied=tied_of(config, c),
        expert_width=width,
        experts_used=chosen,
        mxfp4=width > 0 and quantisation.method == "mxfp4",
        unknown=tuple(reason for reason, _ in doubts),
        bound=doubts[0][1] if len(doubts) == 1 else None,
    )


def _experts(decoder: Decoder, hidden: int) -> tuple[int, int]:
    """Inner width of the routed experts, and how many a token passes through; 0 where there are none."""
    routed = (each for layer in decoder.layers for each in layer.matrices if each.count > 1)
    return next(((each.size // hidden, each.used) for each in routed), (0, 0))


def _unread(family: str, part: Config) -> tuple[str, None] | None:
    """Why the weights are not known, where a model of a known family has parts that its family's class does not know."""
    keys = unread_keys(family, part)
    return (
        (f"{', '.join(keys)}: no key of the class of {family}, so its layers may be built in another way", None)
        if keys
        else None
    )


def _where(config: Config, part: Config) -> str:
    """The config.json, or what in it holds the decoder."""
    return "config.json" if part is config else f"the decoder in config.json (keys {', '.join(list(part)[:4])}, …)"


def _looked(config: Config, part: Config) -> str:
    """Where a decoder was looked for, if its keys stand nowhere."""
    if part is not config or any(key in part for key in ("hidden_size", "num_hidden_layers", "n_embd", "d_model", "n_layer")):
        return ""
    return f"; its decoder was looked for at the top and under {', '.join(DECODER_KEYS)}"


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
            for each in value if isinstance(value, list) and part.get("model_type") in _BY_LAYER.get(key, ()) else [value]:
                if not isinstance(each, int | float) or isinstance(each, bool) or not least <= each <= most:
                    raise BenchError(f"config.json: {key} is {shown(each)}; it is a number from {least} to {most:,}")

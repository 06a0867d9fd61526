"""Checkpoints: synthetic ones written from a model's shape, real ones linked or fetched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.models.catalogue import decoder_part
from bench.models.checkpoint_record import Checkpoint, weights_at
from bench.models.config_json import config_at, geometry_at, geometry_of, geometry_of_model, stated_weights
from bench.models.decoder import Config
from bench.models.geometry import Geometry
from bench.models.hub import FILES
from bench.models.model import Model
from bench.models.tokenizer import CHAT_TEMPLATE, FEWEST_TOKENS, SPECIAL, TOKEN_IDS, UNKNOWN, tokens
from bench.package import fetch_package, parts_of
from bench.runs.files import write_record

# What a decoder is called that is published inside a larger model.
_TEXT_ONLY = {"gemma3_text": "Gemma3ForCausalLM"}
# What a checkpoint must have in common with the model that the configuration names.
_FACTS = ("layers", "hidden_size", "heads", "kv_heads", "head_dim", "intermediate_size", "vocabulary", "context")


def write_checkpoint(name: str, model: Model, record: Path) -> None:
    """Make the checkpoint of `model` beside `record`, and write its facts there.

    A synthetic one is a folder with `config.json` and a tokenizer; the engine draws random weights. A real one is a link to its
    folder or to the hub's snapshot. The record's `config` is the config.json from which the memory is computed.

    Raises:
        BenchError: a path that is not a checkpoint, a hub that cannot be reached, or facts that contradict the checkpoint's own.
    """
    target = record.parent / "model"
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        shutil.rmtree(target)
    if model.synthetic:
        config = _synthetic_config(name, model)
        geometry = geometry_of(config, stated_weights(model))
        _write_synthetic(config, geometry, target)
    elif model.gguf:
        file = Path(str(model.path))
        if model.package:
            file = fetch_package(f"models.{name}", model.package, str(file), target.parent)
        config, geometry = config_at(file), geometry_at(file)
        _refuse_contradictions(name, model, geometry, str(file))
        target.symlink_to(file.resolve())
    else:
        folder = Path(model.path) if model.path else _fetch(name, model)
        if not (folder / "config.json").is_file():
            raise BenchError(f"models.{name}: {folder} has no config.json; name a checkpoint's folder.")
        target.symlink_to(folder.resolve(), target_is_directory=True)
        config, geometry = _checked(name, model, folder)
    hub, commit = model.on_hub if model.hub else (None, None)
    checkpoint = Checkpoint(
        model=name,
        source=hub or (parts_of(model.package)[0] if model.package else model.path) or "synthetic",
        revision=commit,
        path=str(target),
        config=config,
        parameters=geometry.parameters,
        weight_bytes=geometry.stored,
    )
    write_record(checkpoint, record)


def _checked(name: str, model: Model, folder: Path) -> tuple[Config, Geometry]:
    """What the configuration states stands in where the config.json of a real checkpoint cannot be read."""
    config: Config
    try:
        config = config_at(folder)
    except BenchError as error:
        raise BenchError(f"models.{name}: {error}") from None
    try:
        own = geometry_at(folder, stated_weights(model))
    except BenchError as error:
        if model.config and not model.catalogue and (stated := geometry_of_model(model)):
            return model.config, geometry_of(model.config, weights_at(folder, stated.layers) or stated_weights(model))
        raise BenchError(
            f"models.{name}: {str(error).rstrip('.')}. Its memory cannot be computed: give the keys of a decoder that is known under "
            f"models.{name}.config."
        ) from None
    _refuse_contradictions(name, model, own, "the checkpoint's config.json")
    return config, own


def _refuse_contradictions(name: str, model: Model, own: Geometry, source: str) -> None:
    """Args: own: of the checkpoint. source: what states it."""
    stated = geometry_of_model(model)
    for key in _FACTS if stated else ():
        said, found = getattr(stated, key), getattr(own, key)
        if said == found:
            continue
        raise BenchError(
            f"models.{name}: {model.catalogue or 'config'} has {key} {said}, but {source} says {found}. It is another model: name the "
            "right one, or remove the key."
        )


def _fetch(name: str, model: Model) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only real checkpoints from a hub need it

    hub, commit = model.on_hub
    try:
        return Path(snapshot_download(hub, revision=commit, allow_patterns=FILES))
    except Exception as error:
        raise BenchError(
            f"models.{name}: {model.hub} cannot be fetched: {error}. "
            "Check the id, the commit, the network and HF_TOKEN; or give `path`, or `config` alone for random weights."
        ) from error


def _synthetic_config(name: str, model: Model) -> Config:
    """The config.json of a synthetic checkpoint: the decoder alone, with our tokenizer's ids.

    An image encoder is left out: text is what is measured, and an engine would ask for the encoder's own preprocessor.
    """
    try:
        stated = dict(model.config or {})
        vocabulary = geometry_of(stated).vocabulary
    except BenchError as error:
        raise BenchError(f"models.{name}: {error}. Give the keys of a whole config.json.") from None
    if vocabulary < FEWEST_TOKENS:
        raise BenchError(
            f"models.{name}: a vocabulary of {vocabulary} is too small for every ASCII character; give {FEWEST_TOKENS} or more."
        )
    part = dict(decoder_part(stated))
    if part.get("model_type") in _TEXT_ONLY and "text_config" in stated:
        part |= {key: stated[key] for key in ("torch_dtype", "quantization_config") if key in stated}
        stated = {**part, "architectures": [_TEXT_ONLY[part["model_type"]]]}
    stated.pop("auto_map", None)  # code that lies beside the real checkpoint
    return {**stated, **TOKEN_IDS}


def _write_synthetic(config: Mapping[str, Any], geometry: Geometry, target: Path) -> None:
    target.mkdir()
    for file, content in (
        ("config.json", config),
        ("tokenizer.json", _tokenizer(geometry.vocabulary)),
        ("tokenizer_config.json", _tokenizer_config(geometry.context)),
        ("generation_config.json", TOKEN_IDS),
    ):
        # A published vocabulary has up to 262,208 entries; indented, they take seconds.
        indent = None if file == "tokenizer.json" else 1
        (target / file).write_text(json.dumps(content, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def _tokenizer(vocabulary: int) -> dict[str, Any]:
    """`bench.models.tokenizer` as the tokenizers library reads it, which wants each of these keys."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    unused = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor")),
        "added_tokens": [{"id": i, "content": token, "special": True, **plain} for i, token in enumerate(SPECIAL)],
        "pre_tokenizer": {**byte_level, "add_prefix_space": False},
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            **dict.fromkeys(unused),
            "unk_token": UNKNOWN,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens(vocabulary))},
            "merges": [],
        },
    }


def _tokenizer_config(context: int) -> dict[str, Any]:
    bos, eos, pad = SPECIAL
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }

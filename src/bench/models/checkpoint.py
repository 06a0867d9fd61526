"""Checkpoints: synthetic ones written from architecture facts, real ones linked or fetched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.models.geometry import architecture_of_config, parameters
from bench.study import Architecture, Model

__all__ = ["write_checkpoint"]

_SPECIAL = ("<s>", "</s>", "<pad>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['role'] + '\n' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)


def write_checkpoint(name: str, model: Model, record: Path) -> None:
    """Make the checkpoint of `model` beside `record`, and write its facts there.

    A synthetic one is a folder with `config.json` and a tokenizer; the engine draws random weights. A real one is a link to its
    folder or to the hub's snapshot.

    Raises:
        BenchError: a path that is no checkpoint, a hub that cannot be reached, or facts that contradict the checkpoint's own.
    """
    target = record.parent / "model"
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        shutil.rmtree(target)
    if model.synthetic:
        assert model.architecture is not None  # the configuration refuses a model without a source
        _write_synthetic(model.architecture, target)
        architecture: Architecture | None = model.architecture
    else:
        folder = Path(model.path) if model.path else _fetch(name, model)
        if not (folder / "config.json").is_file():
            raise BenchError(f"models.{name}: {folder} holds no config.json; name the folder of a checkpoint.")
        target.symlink_to(folder.resolve(), target_is_directory=True)
        architecture = _facts(name, model, folder / "config.json")
    record.write_text(
        json.dumps(
            {
                "model": name,
                "source": model.hub or model.path or "synthetic",
                "revision": model.revision,
                "path": str(target),
                "architecture": architecture.model_dump() if architecture else None,
                "parameters": parameters(architecture) if architecture else None,
                "weight_bytes": None
                if model.synthetic
                else sum(f.stat().st_size for f in target.glob("*.safetensors")) or None,
            },
            indent=2,
        )
        + "\n"
    )


def _facts(name: str, model: Model, config: Path) -> Architecture | None:
    """The checkpoint's own facts, checked against those of the configuration where it states some."""
    try:
        own = architecture_of_config(json.loads(config.read_text()))
    except KeyError as missing:
        if model.architecture is None:
            raise BenchError(
                f"models.{name}: {config} does not state {missing}, so its KV cache cannot be computed. "
                f"Add the facts under models.{name}.architecture."
            ) from None
        return model.architecture
    for key, said in (model.architecture.model_dump() if model.architecture else {}).items():
        if said != getattr(own, key):
            raise BenchError(
                f"models.{name}.architecture.{key} is {said}, but the checkpoint's config.json says {getattr(own, key)}. "
                "Correct or remove it."
            )
    return own


def _fetch(name: str, model: Model) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only real checkpoints from a hub need it

    assert model.hub is not None
    try:
        return Path(
            snapshot_download(
                model.hub,
                revision=model.revision,
                allow_patterns=["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"],
            )
        )
    except Exception as error:
        raise BenchError(
            f"models.{name}: {model.hub} at {model.revision} cannot be fetched: {error}. "
            "Check the id, the revision, the network and HF_TOKEN; or give `path`, or `architecture` alone for random weights."
        ) from error


def _write_synthetic(architecture: Architecture, target: Path) -> None:
    target.mkdir()
    for file, content in (
        ("config.json", _config(architecture)),
        ("tokenizer.json", _tokenizer(architecture.vocabulary)),
        ("tokenizer_config.json", _tokenizer_config(architecture.context)),
        ("generation_config.json", {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}),
    ):
        (target / file).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _config(a: Architecture) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": a.layers,
        "hidden_size": a.hidden_size,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "intermediate_size": a.intermediate_size,
        "vocab_size": a.vocabulary,
        "max_position_embeddings": a.context,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "torch_dtype": "float32",
    }


def _byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def _tokenizer(vocabulary: int) -> dict[str, Any]:
    """A byte-level BPE without merges: any text is encoded, and every id of the vocabulary decodes to text."""
    tokens = [*_SPECIAL, *_byte_alphabet()]
    tokens += [f"Ġt{i}" for i in range(len(tokens), vocabulary)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": token,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for i, token in enumerate(_SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [],
        },
    }


def _tokenizer_config(context: int) -> dict[str, Any]:
    bos, eos, pad = _SPECIAL
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": _CHAT_TEMPLATE,
    }

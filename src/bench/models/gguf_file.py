"""What a GGUF file says of its model: the head alone is read, never the weights.

Source: the specification of GGUF version 3 (ggml's docs/gguf.md), and llama.cpp's names of keys (gguf-py's constants.py).
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

from bench.errors import BenchError

# struct's letter of each type of a number; source: the GGUF specification
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8  # number of a value's type; source: the GGUF specification
_ARRAY = 9  # number of a value's type; source: the GGUF specification
_LONGEST = 1 << 26  # bytes of a text, and entries of a list, that are read; convention: no published file has more
_KEPT = 1024  # entries of a list of numbers that are kept, such as one a layer; convention
# architectures that are called as their families; Mistral's and Mixtral's are llama too
_FAMILIES = ("llama", "qwen2", "qwen3")


def config_of_gguf(file: Path) -> dict[str, Any]:
    """The config.json that the model of a GGUF file would have, as far as its memory follows from it.

    Raises:
        BenchError: it is no GGUF file, or of a model that is not read here.
    """
    try:
        with file.open("rb") as stream:
            head, tensors = _head(stream)
        if (parts := head.get("split.count", 1)) > 1:
            raise BenchError(f"{file} is one of {parts} parts; merge them with `llama-gguf-split --merge`.")
        arch = head["general.architecture"]
        if arch not in _FAMILIES:
            raise BenchError(
                f"{file} holds a model of the architecture {str(arch)[:40]!r}; its memory can be computed for "
                f"{', '.join(_FAMILIES)}. Start llama-server yourself with it, and measure it with `source: external`."
            )
        return _config(arch, head, tensors)
    except OSError as error:
        raise BenchError(f"{file} cannot be read: {error.strerror}.") from None
    except KeyError as error:
        raise BenchError(
            f"{file} does not state {error.args[0]}, so its memory cannot be computed. Is it a whole model?"
        ) from None
    except (struct.error, ValueError) as error:
        raise BenchError(f"{file} is not a readable GGUF file ({error}). Was its download complete?") from None


def parameters_of_gguf(file: Path) -> int:
    """Weights of all tensors of a file that `config_of_gguf` has read."""
    with file.open("rb") as stream:
        return sum(_head(stream)[1].values())


def _config(arch: str, head: dict[str, Any], tensors: dict[str, int]) -> dict[str, Any]:
    width, heads = _one(head, f"{arch}.embedding_length"), _one(head, f"{arch}.attention.head_count")
    experts = head.get(f"{arch}.expert_count") or 0
    window = head.get(f"{arch}.attention.sliding_window")
    return {
        "model_type": "mixtral" if experts and arch == "llama" else arch,
        "num_hidden_layers": _one(head, f"{arch}.block_count"),
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": _one(head, f"{arch}.attention.head_count_kv", heads),
        "head_dim": _one(head, f"{arch}.attention.key_length", width // heads),
        "intermediate_size": _one(head, f"{arch}.feed_forward_length"),
        "vocab_size": head["tokenizer.ggml.tokens"] if "tokenizer.ggml.tokens" in head else _one(head, f"{arch}.vocab_size"),
        "max_position_embeddings": _one(head, f"{arch}.context_length"),
        "tie_word_embeddings": "output.weight" not in tensors,
        **({"num_local_experts": experts, "num_experts_per_tok": _one(head, f"{arch}.expert_used_count")} if experts else {}),
        **({"sliding_window": window} if window else {}),
    }


def _one(head: dict[str, Any], key: str, default: int | None = None) -> int:
    """A number of the model; of one that each layer has, the number in which all agree."""
    value = head.get(key, default)
    if value is None:
        raise KeyError(key)
    values = set(value) if isinstance(value, list) else {value}
    if len(values) != 1 or not isinstance(found := values.pop(), int) or found <= 0:
        raise ValueError(f"{key} is not one number above 0")
    return found


def _head(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, int]]:
    """Its keys, of a long list the number of its entries alone; and its tensors, each with how many weights it has."""
    if stream.read(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version, tensors, keys = _read(stream, "IQQ")
    if version not in {2, 3}:
        raise ValueError(f"its version is {version}, but only 2 and 3 can be read")
    head = {_text(stream): _value(stream, _read(stream, "I")[0]) for _ in range(_within(keys))}
    sizes = {}
    for _ in range(_within(tensors)):
        name = _text(stream)
        (dimensions,) = _read(stream, "I")
        *shape, _, _ = _read(stream, f"{_within(dimensions)}QIQ")
        sizes[name] = math.prod(shape)
    return head, sizes


def _value(stream: BinaryIO, kind: int) -> Any:
    if kind in _NUMBERS:
        return _read(stream, _NUMBERS[kind])[0]
    if kind == _STRING:
        return _text(stream)
    if kind != _ARRAY:
        raise ValueError(f"it has a value of the unknown type {kind}")
    of, count = _read(stream, "IQ")
    if of in _NUMBERS:
        values = _read(stream, f"{_within(count)}{_NUMBERS[of]}")
        return list(values) if count <= _KEPT else count
    if of != _STRING:
        raise ValueError(f"it has a list of the type {of}")
    for _ in range(_within(count)):
        stream.seek(_within(_read(stream, "Q")[0]), 1)
    return count


def _text(stream: BinaryIO) -> str:
    (length,) = _read(stream, "Q")
    return stream.read(_within(length)).decode(errors="replace")


def _within(count: int) -> int:
    if count > _LONGEST:
        raise ValueError(f"it states a length of {count}")
    return count


def _read(stream: BinaryIO, layout: str) -> tuple[Any, ...]:
    size = struct.calcsize(f"<{layout}")
    return struct.unpack(f"<{layout}", stream.read(size))

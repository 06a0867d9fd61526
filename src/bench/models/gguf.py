"""Synthetic checkpoints as GGUF, the one file that llama.cpp reads: the model's shape, our tokenizer, and random weights.

Source: the specification of GGUF version 3 (ggml's docs/gguf.md), and llama.cpp's names of tensors (gguf-py's constants.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from bench.errors import BenchError
from bench.models.config_json import geometry_of
from bench.models.geometry import DTYPE_BYTES, Geometry
from bench.models.tokenizer import CHAT_TEMPLATE, SPECIAL, TOKEN_IDS, tokens

# What llama.cpp calls the architecture of each family that can be written.
FAMILIES = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

_ALIGNMENT = 32  # bytes to a multiple of which tensors begin; source: the GGUF specification
_CHUNK = 1 << 22  # weights drawn at a time, 16 MiB; convention
_SCALE = 0.02  # standard deviation of drawn weights; convention: transformers' usual initializer_range
_TENSOR_TYPES = {"float32": 0, "float16": 1, "bfloat16": 30}  # numbers of tensor types; source: ggml.h, ggml_type
_FILE_TYPES = {"float32": 0, "float16": 1, "bfloat16": 32}  # numbers of file types; source: llama.h, llama_ftype
_UINT32 = 4  # number of a value's type; source: the GGUF specification
_INT32 = 5  # number of a value's type; source: the GGUF specification
_FLOAT32 = 6  # number of a value's type; source: the GGUF specification
_BOOL = 7  # number of a value's type; source: the GGUF specification
_STRING = 8  # number of a value's type; source: the GGUF specification
_ARRAY = 9  # number of a value's type; source: the GGUF specification
_NORMAL = 1  # kind of a token that is text; source: the GGUF specification
_CONTROL = 3  # kind of a token that is special; source: the GGUF specification


class GgufTensor(NamedTuple):
    """A tensor of the checkpoint: `shape` as GGUF has it, the contiguous dimension first."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many weights it has."""
        return int(np.prod(self.shape))

    @property
    def size(self) -> int:
        """Bytes in the file, without what follows to align the next tensor."""
        return self.elements * DTYPE_BYTES[self.dtype]


def write_gguf(config: Mapping[str, Any], file: Path, *, dtype: str, seed: int = 0) -> None:
    """Write a checkpoint with random weights, the same for the same arguments.

    Weights are normal with a standard deviation of 0.02, norms are 1. The output layer is 0 for special tokens, so that greedy decoding
    never picks one: they have no text, and llama.cpp sends nothing for them. Scaled rotary embeddings are written as unscaled ones; no
    size or speed depends on it.

    Args:
        config: the checkpoint's config.json.
        dtype: of the weights: `float32`, `float16` or `bfloat16`; norms and biases are always float32, as llama.cpp wants them.
        seed: of the weights.

    Raises:
        BenchError: a family, an attention or a dtype that cannot be written.
    """
    geometry = _supported(config, dtype)
    layout = gguf_tensors(config, dtype)
    fields = dict(_fields(config, geometry, dtype))
    with file.open("wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(layout), len(fields)))
        for key, value in fields.items():
            out.write(_string(key) + value)
        offset = 0
        for tensor in layout:
            shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
            out.write(_string(tensor.name) + shape + struct.pack("<IQ", _TENSOR_TYPES[tensor.dtype], offset))
            offset += tensor.size + -tensor.size % _ALIGNMENT
        _align(out)
        for index, tensor in enumerate(layout):
            for part in _weights(tensor, geometry, np.random.default_rng([seed, index])):
                out.write(_as_bytes(part, tensor.dtype))
            _align(out)


def gguf_of(checkpoint: Path, config: Mapping[str, Any], dtype: str) -> Path:
    """The GGUF of a synthetic checkpoint, beside its folder; written if it is not there, or is of another config.

    It belongs to a type of weights, which is the deployment's, and not the checkpoint's.
    """
    written = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
    file = checkpoint.with_name(f"{checkpoint.name}-{dtype}-{written}.gguf")
    if not file.exists():
        for left in file.parent.glob(f".{file.name}.*"):  # by a process that was killed: as large as the model
            if left.suffix[1:].isdigit() and not psutil.pid_exists(int(left.suffix[1:])):
                left.unlink(missing_ok=True)
        unfinished = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            write_gguf(config, unfinished, dtype=dtype)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)  # where the disk is full, it must not stay so
    return file


def gguf_tensors(config: Mapping[str, Any], dtype: str) -> list[GgufTensor]:
    """The tensors of the checkpoint, in the file's order."""
    g = _supported(config, dtype)
    width, queries, keys = g.hidden_size, g.heads * g.head_dim, g.kv_heads * g.head_dim
    attention_bias, output_bias = g.family == "qwen2" or bool(config.get("attention_bias")), bool(config.get("attention_bias"))
    experts = config["num_local_experts"] if g.family == "mixtral" else 0
    found = [GgufTensor("token_embd.weight", (width, g.vocabulary), dtype)]
    inner, of_experts, end = g.intermediate_size, (experts,) if experts else (), "_exps" if experts else ""
    for layer in range(g.layers):
        matrices: dict[str, tuple[int, ...]] = {
            "attn_q": (width, queries),
            "attn_k": (width, keys),
            "attn_v": (width, keys),
            "attn_output": (queries, width),
        }
        vectors = {"attn_norm.weight": width, "ffn_norm.weight": width}
        if g.family == "qwen3":
            vectors |= {"attn_q_norm.weight": g.head_dim, "attn_k_norm.weight": g.head_dim}
        if attention_bias:
            vectors |= {"attn_q.bias": queries, "attn_k.bias": keys, "attn_v.bias": keys}
        if output_bias:
            vectors |= {"attn_output.bias": width}
        for name, shape in (("ffn_gate", (width, inner)), ("ffn_up", (width, inner)), ("ffn_down", (inner, width))):
            matrices[f"{name}{end}"] = (*shape, *of_experts)
        found += [GgufTensor(f"blk.{layer}.{name}.weight", shape, dtype) for name, shape in matrices.items()]
        if experts:
            found.append(GgufTensor(f"blk.{layer}.ffn_gate_inp.weight", (width, experts), "float32"))
        found += [GgufTensor(f"blk.{layer}.{name}", (size,), "float32") for name, size in vectors.items()]
    found.append(GgufTensor("output_norm.weight", (width,), "float32"))
    return found if g.tied else [*found, GgufTensor("output.weight", (width, g.vocabulary), dtype)]


def _supported(config: Mapping[str, Any], dtype: str) -> Geometry:
    if dtype not in _TENSOR_TYPES:
        raise BenchError(f"a GGUF is written in {', '.join(_TENSOR_TYPES)}; dtype is {dtype}.")
    g = geometry_of(config)
    trouble = None
    if g.family not in FAMILIES:
        trouble = f"model_type {g.family}; it may be {', '.join(FAMILIES)}"
    elif any(window is not None for window in g.windows):
        trouble = "a sliding window"
    elif config.get("mlp_bias"):
        trouble = "mlp_bias"
    elif config.get("quantization_config"):
        trouble = "quantization_config"
    if trouble:
        raise BenchError(
            f"llama.cpp's synthetic checkpoints are not written for {trouble}. Start llama-server yourself with a file of such a "
            "model, and measure it with `source: external`."
        )
    return g


def _fields(config: Mapping[str, Any], g: Geometry, dtype: str) -> Iterator[tuple[str, bytes]]:
    name = FAMILIES[g.family]
    yield "general.architecture", _text(name)
    yield "general.name", _text("synthetic")
    yield "general.alignment", _number(_ALIGNMENT)
    yield "general.file_type", _number(_FILE_TYPES[dtype])
    yield f"{name}.block_count", _number(g.layers)
    yield f"{name}.context_length", _number(g.context)
    yield f"{name}.embedding_length", _number(g.hidden_size)
    yield f"{name}.feed_forward_length", _number(g.intermediate_size)
    yield f"{name}.attention.head_count", _number(g.heads)
    yield f"{name}.attention.head_count_kv", _number(g.kv_heads)
    yield f"{name}.attention.key_length", _number(g.head_dim)
    yield f"{name}.attention.value_length", _number(g.head_dim)
    yield f"{name}.attention.layer_norm_rms_epsilon", _real(config.get("rms_norm_eps", 1e-6))
    yield f"{name}.rope.dimension_count", _number(g.head_dim)
    yield f"{name}.rope.freq_base", _real(config.get("rope_theta", 10000.0))
    yield f"{name}.vocab_size", _number(g.vocabulary)
    if g.family == "mixtral":
        yield f"{name}.expert_count", _number(config["num_local_experts"])
        yield f"{name}.expert_used_count", _number(config["num_experts_per_tok"])
    known = tokens(g.vocabulary)
    kinds = [_CONTROL if token in SPECIAL else _NORMAL for token in known]
    yield "tokenizer.ggml.model", _text("gpt2")
    yield "tokenizer.ggml.pre", _text("gpt-2")
    yield "tokenizer.ggml.tokens", _array(_STRING, len(known)) + b"".join(map(_string, known))
    yield "tokenizer.ggml.token_type", _array(_INT32, len(kinds)) + np.array(kinds, "<i4").tobytes()
    yield "tokenizer.ggml.merges", _array(_STRING, 0)
    yield "tokenizer.ggml.bos_token_id", _number(TOKEN_IDS["bos_token_id"])
    yield "tokenizer.ggml.eos_token_id", _number(TOKEN_IDS["eos_token_id"])
    yield "tokenizer.ggml.padding_token_id", _number(TOKEN_IDS["pad_token_id"])
    yield "tokenizer.ggml.add_bos_token", struct.pack("<I?", _BOOL, False)
    yield "tokenizer.chat_template", _text(CHAT_TEMPLATE)


def _weights(tensor: GgufTensor, g: Geometry, random: np.random.Generator) -> Iterator[NDArray[np.float32]]:
    if len(tensor.shape) == 1:
        yield np.full(tensor.shape, float(tensor.name.endswith("norm.weight")), np.float32)
        return
    is_output = tensor.name == ("token_embd.weight" if g.tied else "output.weight")
    width = tensor.shape[0]
    rows = tensor.elements // width
    each = max(1, _CHUNK // width)
    for first in range(0, rows, each):
        part = random.standard_normal((min(each, rows - first), width), np.float32) * np.float32(_SCALE)
        if is_output:
            ids = np.arange(first, first + len(part))
            part[ids < len(SPECIAL)] = 0
        yield part


def _as_bytes(values: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "bfloat16":  # the upper half of a float32
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return values.astype("<f2" if dtype == "float16" else "<f4").tobytes()


def _align(out: BinaryIO) -> None:
    out.write(bytes(-out.tell() % _ALIGNMENT))


def _string(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _text(text: str) -> bytes:
    return struct.pack("<I", _STRING) + _string(text)


def _number(value: int) -> bytes:
    return struct.pack("<II", _UINT32, value)


def _real(value: float) -> bytes:
    return struct.pack("<If", _FLOAT32, value)


def _array(kind: int, length: int) -> bytes:
    return struct.pack("<IIQ", _ARRAY, kind, length)

"""Synthetic checkpoints as GGUF, the one file that llama.cpp reads: the model's shape, our tokenizer, and random weights.

Names of tensors: llama.cpp's (gguf-py's constants.py).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from bench.errors import BenchError
from bench.models.config_json import geometry_of
from bench.models.geometry import DTYPE_BYTES, Geometry
from bench.models.tokenizer import CHAT_TEMPLATE, SPECIAL, TOKEN_IDS, tokens

if TYPE_CHECKING:
    from gguf import GGUFWriter

# What llama.cpp calls the architecture of each family that can be written.
FAMILIES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

_SCALE = 0.02  # standard deviation of drawn weights; convention: transformers' usual initializer_range
_MERGE = "ÿ ÿ"  # llama.cpp wants one at least; no text that we send has these bytes
_TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}  # gguf's names of types of tensors


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
    from gguf import GGMLQuantizationType, GGUFWriter  # noqa: PLC0415 - half a second, for llama.cpp's checkpoints alone

    geometry = _supported(config, dtype)
    layout = gguf_tensors(config, dtype)
    writer = GGUFWriter(file, FAMILIES[geometry.family])
    _describe(writer, config, geometry, dtype)
    for tensor in layout:
        kind = GGMLQuantizationType[_TYPES[tensor.dtype]]
        writer.add_tensor_info(tensor.name, tensor.shape[::-1], np.dtype(np.float32), tensor.size, kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for index, tensor in enumerate(layout):  # one at a time in memory
            writer.write_tensor_data(_weights(tensor, geometry, np.random.default_rng([seed, index])))
    finally:
        writer.close()


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
    found = [GgufTensor("token_embd.weight", (width, g.vocabulary), dtype)]
    inner = g.intermediate_size
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
            matrices[name] = shape
        found += [GgufTensor(f"blk.{layer}.{name}.weight", shape, dtype) for name, shape in matrices.items()]
        found += [GgufTensor(f"blk.{layer}.{name}", (size,), "float32") for name, size in vectors.items()]
    found.append(GgufTensor("output_norm.weight", (width,), "float32"))
    return found if g.tied else [*found, GgufTensor("output.weight", (width, g.vocabulary), dtype)]


def _supported(config: Mapping[str, Any], dtype: str) -> Geometry:
    if dtype not in _TYPES:
        raise BenchError(f"a GGUF is written in {', '.join(_TYPES)}; dtype is {dtype}.")
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


def _describe(writer: GGUFWriter, config: Mapping[str, Any], g: Geometry, dtype: str) -> None:
    from gguf import LlamaFileType, TokenType  # noqa: PLC0415 - as above

    writer.add_name("synthetic")
    writer.add_file_type(LlamaFileType[f"{'ALL' if dtype == 'float32' else 'MOSTLY'}_{_TYPES[dtype]}"])
    writer.add_block_count(g.layers)
    writer.add_context_length(g.context)
    writer.add_embedding_length(g.hidden_size)
    writer.add_feed_forward_length(g.intermediate_size)
    writer.add_head_count(g.heads)
    writer.add_head_count_kv(g.kv_heads)
    writer.add_key_length(g.head_dim)
    writer.add_value_length(g.head_dim)
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", 1e-6))
    writer.add_rope_dimension_count(g.head_dim)
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_vocab_size(g.vocabulary)
    names = tokens(g.vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types([TokenType.CONTROL if name in SPECIAL else TokenType.NORMAL for name in names])
    writer.add_token_merges([_MERGE])
    writer.add_bos_token_id(TOKEN_IDS["bos_token_id"])
    writer.add_eos_token_id(TOKEN_IDS["eos_token_id"])
    writer.add_pad_token_id(TOKEN_IDS["pad_token_id"])
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _weights(tensor: GgufTensor, g: Geometry, random: np.random.Generator) -> NDArray[Any]:
    """A tensor's weights in its type."""
    if len(tensor.shape) == 1:
        return np.full(tensor.shape, float(tensor.name.endswith("norm.weight")), np.float32)
    weights = random.standard_normal(tensor.shape[::-1], np.float32)
    weights *= _SCALE
    if tensor.name == ("token_embd.weight" if g.tied else "output.weight"):
        weights[: len(SPECIAL)] = 0
    if tensor.dtype == "bfloat16":  # the upper half of a float32
        return (weights.view("<u4") >> 16).astype("<u2")
    return weights.astype("<f2" if tensor.dtype == "float16" else "<f4", copy=False)

"""A checkpoint's record, `checkpoint.json`; its weights, by the heads of its safetensors files, here or on the hub; and what
identifies its content.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.errors import BenchError


@dataclass(frozen=True)
class Weights:
    """Parameters, and bytes where a checkpoint is loaded as it is, quantised or as GGUF; None where a server's own type decides."""

    parameters: int
    stored: int | None = None


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that is ready to be served.

    Attributes:
        model: key of the model. source: the hub's id, the package, the path as configured, or `synthetic`. revision: the hub's commit.
        path: its folder, or its GGUF file; a link where the files lie elsewhere.
        config: the config.json from which its memory is computed. parameters: how many there are; None where that is not known.
        weight_bytes: of weights that are loaded as they are, quantised or a GGUF file; None where a server's own type decides.
    """

    model: str
    source: str
    revision: str | None = None
    path: str
    config: Mapping[str, Any]
    parameters: int | None
    weight_bytes: int | None = None

    @property
    def weights(self) -> Weights | None:
        """None where they are not known."""
        return Weights(self.parameters, self.weight_bytes) if self.parameters else None


# bits of floats, which are loaded in the type that a server is given; derived
_BITS = {"F64": 64, "F32": 32, "BF16": 16, "F16": 16}
# bits of a number that holds several weights; source: the layouts of AWQ, GPTQ and MXFP4
_PACKED = {"I32": 32, "U8": 8}
PACKED_BITS = 4  # of a packed weight, where the configuration does not say it; source: as above
_SIZES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}  # bytes of other numbers; the rest have one; derived
# Not weights, but what their quantisation needs.
_SCALES = re.compile(r"scale|zero|g_idx|absmax|quant_(map|state)|weight_shape")
# Masks, places and angles, which older files hold as well, and the layers that predict further tokens.
_BESIDE = re.compile(r"^mtp\.|\.(attn|attention)\.(masked_)?bias$|inv_freq$|position_ids$|num_batches_tracked$")
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d+)\.")
_LONGEST = 100_000_000  # most bytes of a head; source: MAX_HEADER_SIZE of the safetensors library

Tensor = tuple[str, str, Iterable[int]]


def weights_of(tensors: Iterable[Tensor], layers: int | None, bits: int = PACKED_BITS) -> Weights:
    """Weights of tensors with their type and shape. Left out are buffers, and layers beyond the model's, which predict further tokens.

    Args:
        layers: of the model. bits: of a weight, where several are packed into a number.
    """
    parameters, size, quantised = 0, 0, False
    for name, dtype, shape in tensors:
        layer = _LAYER.match(name)
        if _BESIDE.search(name) or (layer and isinstance(layers, int) and int(layer[1]) >= layers):
            continue
        count = math.prod(shape)
        scale = bool(_SCALES.search(name))
        quantised |= dtype not in _BITS and not scale
        size += count * (
            min(_BITS[dtype], 16) // 8 if dtype in _BITS and not scale else _SIZES.get(dtype, _BITS.get(dtype, 8) // 8)
        )
        parameters += 0 if scale else count * _PACKED[dtype] // bits if dtype in _PACKED else count
    return Weights(parameters, size if quantised else None)


def weights_at(folder: Path, layers: int | None, bits: int = PACKED_BITS) -> Weights | None:
    """Weights of a checkpoint's folder: those in the files of its index, or all; None where it has none. Args: as of `weights_of`.

    Raises:
        BenchError: a file's head cannot be read.
    """
    index = folder / "model.safetensors.index.json"
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        named = set()
    files = sorted(file for file in folder.glob("*.safetensors") if not named or file.name in named)
    if not files or (named and len(files) < len(named)):
        return None
    found = weights_of((tensor for file in files for tensor in _head(file)), layers, bits)
    return found if found.parameters else None


def _head(file: Path) -> list[Tensor]:
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _LONGEST:
                raise ValueError(f"a head of {length} bytes")
            head: dict[str, Any] = json.loads(stream.read(length))
        return [(name, str(of["dtype"]), list(map(int, of["shape"]))) for name, of in head.items() if name != "__metadata__"]
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BenchError(f"{file} is not a readable safetensors file ({error}). Was its download complete?") from None


# What an engine loads from a checkpoint's folder: not a README, nor folders below it.
_SUFFIXES = {*(".json", ".jinja", ".model", ".txt", ".py", ".tiktoken"), *(".safetensors", ".bin", ".pt", ".pth", ".gguf")}
_WHOLE = 1 << 20  # largest file that is read whole (bytes); convention
_BLOCK = 1 << 12  # bytes of a block that is read of a larger one; convention
_BLOCKS = 16  # blocks at each end, and between the ends; convention
_END = _BLOCKS * _BLOCK  # bytes read at each end; derived


@cache
def fingerprint(path: str) -> str | None:
    """A digest of the files of a checkpoint, a folder or one file; None where it cannot be read, or holds none.

    Of each file its name and size; all of it up to 1 MiB (config.json, tokenizers); of a larger one the first and the last 64 KiB (a
    safetensors file begins with the names, types and places of its tensors) and 16 blocks of 4 KiB, evenly spaced. That is 192 KiB a
    file, whatever its size: other weights of the same shape differ nearly everywhere. A file of which only a few tensors changed, in
    place, can go unnoticed. Times are left out, so that a copy is the same checkpoint.
    """
    try:
        beside = [Path(path)] if Path(path).is_file() else Path(path).iterdir()
        files = sorted(file for file in beside if file.suffix in _SUFFIXES and file.is_file())
        digest = hashlib.sha256()
        for file in files:
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode(errors="surrogateescape"))
            with file.open("rb", buffering=0) as stream:
                for start, length in _parts(size):
                    stream.seek(start)
                    digest.update(stream.read(length))
    except (OSError, ValueError):  # ValueError: a null character in the path
        return None
    return digest.hexdigest() if files else None


def _parts(size: int) -> list[tuple[int, int]]:
    """Start and length of what is read of a file (bytes)."""
    if size <= _WHOLE:
        return [(0, size)]
    middle = [(size * i // (_BLOCKS + 1), _BLOCK) for i in range(1, _BLOCKS + 1)]
    return [(0, _END), *middle, (size - _END, _END)]

"""How many weights a checkpoint has, and their bytes, by the heads of its safetensors files: here, or on the hub."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.models.checkpoint_record import Weights

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
_LONGEST = 1 << 27  # bytes of a head that are read; convention: no published file has more

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
        raise BenchError(f"{file} is no safetensors file that can be read ({error}). Was its download complete?") from None

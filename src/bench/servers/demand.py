"""How a model is to be served, and what is asked of it: the inputs of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.models.catalogue import decoder_part
from bench.models.geometry import Geometry

# Weights as they are loaded → the dtype of what is not quantised, and bytes of a quantised parameter.
WEIGHTS: Mapping[str, tuple[str, float | None]] = {
    "bfloat16": ("bfloat16", None),
    "float16": ("float16", None),
    "float32": ("float32", None),
    "fp8": ("bfloat16", 1.0),
    "int8": ("bfloat16", 1.0),
    "int4": ("bfloat16", 0.5),
}


@dataclass(frozen=True)
class Demand:
    """What is to be held: `concurrency` requests of `prompt` + `output` tokens."""

    prompt: int
    output: int
    concurrency: int = 1

    @property
    def tokens(self) -> int:
        """Tokens of one request."""
        return self.prompt + self.output


@dataclass(frozen=True)
class Setting:
    """How the model is served.

    Attributes:
        dtype: of the weights, a key of `WEIGHTS`; a quantised checkpoint keeps its own. kv_dtype: of the KV cache.
        share: of a GPU's memory that the engine may take. max_num_seqs: most sequences in a step. block_size: tokens in a block.
    """

    dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"
    tensor_parallel: int = 1
    share: float = 0.9
    max_num_seqs: int = 256
    block_size: int = 16


# Types as config.json names them. Servers load a float32 checkpoint in 16 bit or as it is (vLLM does the first): it tells nothing.
_STATED = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16"}


def served_dtype(given: str, config: Mapping[str, Any] | None) -> str | None:
    """The type of activations and KV cache in a server that was not started here; None where it is not known.

    Args:
        given: what the deployment states; `auto` where it states nothing. config: the config.json of the checkpoint that it serves.

    Source: vLLM's `_resolve_auto_dtype` (0.32): the checkpoint's own, but 16 bit in place of float32.
    """
    if given != "auto":
        return given
    if not config:
        return None
    for place in (config, decoder_part(config)):
        for key in ("dtype", "torch_dtype"):
            stated = str(place.get(key)).removeprefix("torch.")
            if stated in _STATED:
                return _STATED[stated]
    return None


def computes_in_fp8(geometry: Geometry, setting: Setting) -> bool:
    """Whether the linear layers are FP8, which FP8-capable GPUs multiply natively.

    `int8` and `int4` stand for weights alone, multiplied in 16 bit. Of a checkpoint quantised to 8 bit FP8 is assumed.
    """
    each = geometry.quantised_bytes
    return setting.dtype == "fp8" if each is None else 1 <= each < 2  # nan is no FP8

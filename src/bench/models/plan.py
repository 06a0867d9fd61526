"""What a model takes of a device before anything is spent: memory term by term, the load that it holds, its speed's ceilings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.models.geometry import Geometry, kv_bytes_of_sequence, kv_bytes_per_token, weight_bytes
from bench.models.memory import cuda_overhead_terms, kv_pool, predicted_saturation
from bench.models.roofline import Roofline
from bench.study import Device

__all__ = ["HEADROOM", "WEIGHTS", "Demand", "Setting", "choices", "fewest_devices", "plan"]

# Weights as they are loaded → the dtype of what is not quantised, and bytes of a quantised parameter.
WEIGHTS: Mapping[str, tuple[str, float | None]] = {
    "bfloat16": ("bfloat16", None),
    "float16": ("float16", None),
    "float32": ("float32", None),
    "fp8": ("bfloat16", 1.0),
    "int8": ("bfloat16", 1.0),
    "int4": ("bfloat16", 0.5),
}
HEADROOM = 0.3  # of the memory in use, left free: the documents' 30 to 50 %
_MOST_DEVICES = 64
_CHOICES = (1, 2, 4, 8)
# The documents' rule of thumb, beside our own terms: activations as a share of the weights, the framework's share of a device.
_ACTIVATIONS, _FRAMEWORK = 0.2, 0.075


@dataclass(frozen=True)
class Demand:
    """What is to be held: `concurrency` requests of `prompt` + `output` tokens."""

    prompt: int
    output: int
    concurrency: int = 1

    @property
    def tokens(self) -> int:
        """Of one request."""
        return self.prompt + self.output


@dataclass(frozen=True)
class Setting:
    """How the model is served.

    Attributes:
        dtype: of the weights, a key of `WEIGHTS`; a quantised checkpoint keeps its own. kv_dtype: of the KV cache.
        share: of a device's memory that the engine may take. max_num_seqs: most sequences in a step. block_size: tokens in a block.
    """

    dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"
    tensor_parallel: int = 1
    share: float = 0.9
    max_num_seqs: int = 256
    block_size: int = 16


def plan(geometry: Geometry, device: Device, demand: Demand, setting: Setting) -> dict[str, Any]:
    """The plan of a model on `setting.tensor_parallel` devices, as plain data.

    Returns:
        Bytes and tokens, of all devices together unless a name says `_per_gpu`. `kv_capacity_tokens` and what follows from it are null
        where the weights leave nothing. `terms` are what they are made of, `rule_of_thumb` the documents' estimate.
    """
    quantised, dtype = _as_loaded(geometry, setting.dtype)
    pool = kv_pool(quantised, dtype=setting.kv_dtype, tensor_parallel=setting.tensor_parallel, block_size=setting.block_size)
    memory = _memory(quantised, dtype, device, setting)
    slots = pool.tokens(memory["kv_cache_bytes_per_gpu"])
    held = predicted_saturation(slots, demand.tokens, pool.block_size, pool.groups) if slots else None
    fits = bool(held) and demand.tokens <= geometry.context
    needed = fewest_devices(geometry, device, demand, setting)
    return {
        "weight_bytes": weight_bytes(quantised, dtype),
        "kv_bytes_per_token": kv_bytes_per_token(quantised, setting.kv_dtype),
        "kv_bytes_per_request": kv_bytes_of_sequence(quantised, demand.tokens, setting.kv_dtype),
        "kv_capacity_tokens": slots // sum(count for _, count in pool.groups) if slots else None,
        "predicted_saturation": held if fits else None,
        "min_gpus": needed,
        "gpus_with_headroom": fewest_devices(geometry, device, demand, setting, headroom=HEADROOM),
        "terms": {"device_memory_bytes": device.memory, "share": setting.share, "headroom": HEADROOM, **memory},
        "rule_of_thumb": _rule_of_thumb(quantised, dtype, device, demand, setting),
        "ceilings": _ceilings(quantised, dtype, device, demand, setting, held if fits else None),
    }


def choices(geometry: Geometry, device: Device, demand: Demand, setting: Setting) -> list[dict[str, Any]]:
    """1, 2, 4 and 8 devices, where they divide the heads: what each holds, and how fast it could be."""
    rows = []
    for count in _CHOICES:
        if geometry.heads % count == 0:
            told = plan(geometry, device, demand, replace(setting, tensor_parallel=count))
            names = ("kv_capacity_tokens", "predicted_saturation", "ceilings")
            rows.append({"tensor_parallel": count, **{name: told[name] for name in names}})
    return rows


def fewest_devices(
    geometry: Geometry, device: Device, demand: Demand, setting: Setting, *, headroom: float = 0.0
) -> int | None:
    """The fewest devices whose memory holds weights, overhead and the KV cache of the whole demand.

    Args:
        headroom: of what is in use, left free beside it.

    Returns:
        None where 64 are too few, or a request is beyond the model's context.
    """
    quantised, dtype = _as_loaded(geometry, setting.dtype)
    if demand.tokens > geometry.context:
        return None
    for count in range(1, _MOST_DEVICES + 1):
        shared = replace(setting, tensor_parallel=count)
        pool = kv_pool(quantised, dtype=setting.kv_dtype, tensor_parallel=count, block_size=setting.block_size)
        memory = _memory(quantised, dtype, device, shared)
        used = memory["weight_bytes_per_gpu"] + memory["overhead_bytes_per_gpu"]
        free = math.floor(memory["budget_bytes_per_gpu"] / (1 + headroom)) - used
        held = predicted_saturation(pool.tokens(free), demand.tokens, pool.block_size, pool.groups)
        if held >= demand.concurrency:
            return count
    return None


def _as_loaded(geometry: Geometry, dtype: str) -> tuple[Geometry, str]:
    """The geometry with what `dtype` quantises, and the dtype of the rest. A quantised checkpoint stays what it is."""
    rest, each = WEIGHTS[dtype]
    return (replace(geometry, quantised_bytes=each) if each and geometry.quantised_bytes is None else geometry), rest


def _memory(geometry: Geometry, dtype: str, device: Device, setting: Setting) -> dict[str, Any]:
    """One device's memory, term by term (bytes)."""
    overhead = cuda_overhead_terms(geometry.vocabulary, setting.max_num_seqs, setting.tensor_parallel)
    weights = weight_bytes(geometry, dtype) // setting.tensor_parallel
    budget = int(device.memory * setting.share)
    return {
        "budget_bytes_per_gpu": budget,
        "weight_bytes_per_gpu": weights,
        "overhead_bytes_per_gpu": sum(overhead.values()),
        **{f"{name}_bytes_per_gpu": size for name, size in overhead.items()},
        "kv_cache_bytes_per_gpu": budget - weights - sum(overhead.values()),
    }


def _rule_of_thumb(geometry: Geometry, dtype: str, device: Device, demand: Demand, setting: Setting) -> dict[str, Any]:
    """Weights, KV cache of the demand, activations of 20 % of the weights and a framework of 7.5 % of each device, over its memory."""
    weights = weight_bytes(geometry, dtype)
    kv = demand.concurrency * kv_bytes_of_sequence(geometry, demand.tokens, setting.kv_dtype)
    activations = round(_ACTIVATIONS * weights)
    total = weights + kv + activations
    usable = (1 - _FRAMEWORK) * device.memory
    return {
        "activation_bytes": activations,
        "kv_cache_bytes": kv,
        "framework_bytes_per_gpu": round(_FRAMEWORK * device.memory),
        "min_gpus": math.ceil(total / usable),
        "gpus_with_headroom": math.ceil(total * (1 + HEADROOM) / usable),
    }


def _ceilings(
    geometry: Geometry, dtype: str, device: Device, demand: Demand, setting: Setting, saturation: float | None
) -> dict[str, Any]:
    """What the devices' bandwidth and FLOP/s allow at most (tokens/s, s)."""
    idle = (
        geometry.parameters - geometry.active_parameters
    )  # experts that a token does not pass through, all of them linear layers
    active = replace(geometry, parameters=geometry.active_parameters, linear_parameters=geometry.linear_parameters - idle)
    roofline = Roofline(
        geometry=geometry,
        weights=weight_bytes(geometry, dtype),
        active_weights=weight_bytes(active, dtype),
        kv_dtype=setting.kv_dtype,
        bandwidth=device.bandwidth * setting.tensor_parallel,
        flops=device.flops(fp8=geometry.quantised_bytes == 1) * setting.tensor_parallel,
    )
    middle = demand.prompt + demand.output / 2
    alone = roofline.decode(1, middle)
    prefill = roofline.prefill(demand.prompt)
    full = roofline.decode(saturation, middle) if saturation and saturation >= 1 else None
    return {
        "ridge_flop_per_byte": roofline.ridge,
        "prefill_tokens_per_s": prefill,
        "ttft_s": demand.prompt / prefill,
        "decode_tokens_per_s": roofline.decode(),
        "decode_tokens_per_s_at_context": alone,
        "tpot_s": 1 / alone,
        "decode_tokens_per_s_at_saturation": full,
    }

"""What a model takes of a GPU before anything is spent: memory term by term, the load that it holds, its speed's ceilings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.models.accelerators import Accelerator
from bench.models.geometry import (
    DTYPE_BYTES,
    Geometry,
    kv_bytes_of_sequence,
    kv_bytes_per_token,
    state_bytes_per_sequence,
    weight_bytes,
)
from bench.servers.demand import WEIGHTS, Demand, Setting, computes_in_fp8
from bench.servers.kind import OnGpu
from bench.servers.memory import KvPool, kv_pool, predicted_saturation
from bench.servers.remarks import notes, why_not
from bench.servers.roofline import Roofline
from bench.servers.stages import COUNTS, tensor_parallel_sizes
from bench.servers.vllm import VLLM
from bench.servers.vllm_memory import kept

# share of the memory in use that is left free; source: the texts that docs/explanation/published-numbers.md checks (30 to 50 %)
HEADROOM = 0.3
_ONE_NODE = 8  # most GPUs of a node; convention
_ACTIVATIONS = 0.2  # activations ÷ weights; source: docs/explanation/published-numbers.md, "The rule of thumb for GPUs"
# share of a device that the framework takes; source: docs/explanation/published-numbers.md, "The rule of thumb for GPUs"
_FRAMEWORK = 0.075


_CEILINGS = (
    *(
        "ridge_flop_per_byte",
        "prefill_tokens_per_s",
        "ttft_s",
        "decode_tokens_per_s",
        "decode_tokens_per_s_at_context",
        "tpot_s",
    ),
    "decode_tokens_per_s_at_saturation",
)


@dataclass(frozen=True)
class _Placed:
    """A model as loaded, on `setting.tensor_parallel` devices.

    Attributes:
        geometry: with what the loaded dtype quantises. dtype: of the rest. fp8: whether the linear layers are FP8.
        memory: one device's, term by term (bytes).
    """

    geometry: Geometry
    dtype: str
    fp8: bool
    device: Accelerator
    setting: Setting
    pool: KvPool
    memory: Mapping[str, int]

    def requests(self, tokens: int, kv_bytes: int) -> float:
        """Requests of `tokens` that `kv_bytes` of a device hold at once."""
        return predicted_saturation(self.pool.tokens(kv_bytes), tokens, self.pool.block_size, self.pool.groups)


def plan(geometry: Geometry, device: Accelerator, demand: Demand, setting: Setting) -> dict[str, Any]:
    """The plan of a model on `setting.tensor_parallel` devices, as plain data.

    Returns:
        Bytes and tokens, of all devices together unless a name says `_per_gpu`. `kv_capacity_tokens` and `predicted_saturation` are
        null where there is no answer, and `why` explains that, or why the answer is below one request. Where the weights are not known,
        whatever follows from them is null. `state_bytes_per_sequence` is what layers without a growing cache keep; it is part of
        `kv_bytes_per_request`. `min_gpus` is of any count,
        `min_tensor_parallel` of those that divide the heads; so are `gpus_with_headroom` and `tensor_parallel_with_headroom`. In
        `terms`, weights, activations, overhead and KV cache add up to the budget; a negative KV cache is what is missing.
        `rule_of_thumb` is the estimate that docs/explanation/published-numbers.md checks.
    """
    placed = _placed(geometry, device, setting)
    memory, pool, loaded = placed.memory, placed.pool, placed.geometry
    sizes = tensor_parallel_sizes(geometry)
    slots = pool.tokens(memory["kv_cache_bytes_per_gpu"]) if setting.tensor_parallel in sizes else 0
    fits = slots > 0 and demand.tokens <= geometry.context and geometry.weighed
    held = placed.requests(demand.tokens, memory["kv_cache_bytes_per_gpu"]) if fits else None
    dealt = _fewest(geometry, device, demand, setting, sizes)
    capacity = slots // sum(count for _, count in pool.groups) if slots and geometry.weighed else None
    planned = {
        "weight_bytes": weight_bytes(loaded, placed.dtype),
        "kv_bytes_per_token": kv_bytes_per_token(loaded, setting.kv_dtype),
        "state_bytes_per_sequence": state_bytes_per_sequence(loaded, placed.dtype),
        "kv_bytes_per_request": kv_bytes_of_sequence(loaded, demand.tokens, setting.kv_dtype, placed.dtype),
        "kv_capacity_tokens": capacity,
        "predicted_saturation": held,
        "min_gpus": _fewest(geometry, device, demand, setting, COUNTS),
        "gpus_with_headroom": _fewest(geometry, device, demand, setting, COUNTS, headroom=HEADROOM),
        "tensor_parallel_with_headroom": _fewest(geometry, device, demand, setting, sizes, headroom=HEADROOM),
        "min_tensor_parallel": dealt,
        "tensor_parallel_sizes": sizes,
        "why": why_not(geometry, demand, setting, memory, sizes, held, dealt),
        "notes": notes(geometry, device, demand, setting, held, capacity),
        "terms": {
            "device_memory_bytes": device.memory,
            "share": setting.share,
            **memory,
            "kv_bytes_per_token_per_gpu": pool.bytes_per_token,
            "block_size": pool.block_size,
            "headroom": HEADROOM,
        },
        "rule_of_thumb": _rule_of_thumb(placed, demand),
        "ceilings": _ceilings(placed, demand, held),
    }
    return planned if geometry.weighed else _without_weights(planned)


def _without_weights(planned: dict[str, Any]) -> dict[str, Any]:
    terms = planned["terms"] | {"weight_bytes_per_gpu": None, "kv_cache_bytes_per_gpu": None}
    return planned | {"weight_bytes": None, "terms": terms, "rule_of_thumb": dict.fromkeys(planned["rule_of_thumb"])}


def choices(geometry: Geometry, device: Accelerator, demand: Demand, setting: Setting) -> list[dict[str, Any]]:
    """Each tensor-parallel size of up to 8 devices that divides the heads: what it holds, and how fast it could be."""
    names = ("kv_capacity_tokens", "predicted_saturation", "why", "ceilings")
    rows = []
    for count in tensor_parallel_sizes(geometry):
        if count <= _ONE_NODE:
            planned = plan(geometry, device, demand, replace(setting, tensor_parallel=count))
            rows.append({"tensor_parallel": count, **{name: planned[name] for name in names}})
    return rows


def _fewest(
    geometry: Geometry, device: Accelerator, demand: Demand, setting: Setting, counts: Sequence[int], *, headroom: float = 0.0
) -> int | None:
    """The first of `counts` devices whose memory holds weights, overhead and the KV cache of the whole demand.

    Args:
        headroom: of what is in use, left free beside it.

    Returns:
        None where none of them does, or a request is beyond the model's context.
    """
    if demand.tokens > geometry.context or not geometry.weighed:
        return None
    for count in counts:
        placed = _placed(geometry, device, replace(setting, tensor_parallel=count))
        budget = placed.memory["budget_bytes_per_gpu"]
        free = placed.memory["kv_cache_bytes_per_gpu"] - budget + math.floor(budget / (1 + headroom))
        if placed.requests(demand.tokens, free) >= demand.concurrency:
            return count
    return None


def _placed(geometry: Geometry, device: Accelerator, setting: Setting) -> _Placed:
    """A quantised checkpoint stays what it is."""
    rest, each = WEIGHTS[setting.dtype]
    loaded = geometry.quantised(each) if each and geometry.quantised_bytes is None else geometry
    on = OnGpu(device.memory, DTYPE_BYTES[rest], setting.max_num_seqs, tensor_parallel=setting.tensor_parallel)
    engine = kept(geometry, on)
    weights = weight_bytes(loaded, rest) // setting.tensor_parallel + VLLM().gpu_padding(loaded, setting.tensor_parallel)
    budget = int(device.memory * setting.share)
    memory = {
        "budget_bytes_per_gpu": budget,
        "weight_bytes_per_gpu": weights,
        "activation_bytes_per_gpu": engine["activation"],
        "overhead_bytes_per_gpu": sum(engine.values()) - engine["activation"],
        "kv_cache_bytes_per_gpu": budget - weights - sum(engine.values()),
    }
    pool = kv_pool(
        loaded,
        dtype=setting.kv_dtype,
        tensor_parallel=setting.tensor_parallel,
        block_size=setting.block_size,
        state_dtype=rest,
    )
    return _Placed(loaded, rest, computes_in_fp8(geometry, setting), device, setting, pool, memory)


def _rule_of_thumb(placed: _Placed, demand: Demand) -> dict[str, Any]:
    """Weights, KV cache, activations of 20 % of the weights and 7.5 % of each device; then 30 % more GPUs.

    Source: docs/explanation/published-numbers.md, "The rule of thumb for GPUs".
    """
    weights = weight_bytes(placed.geometry, placed.dtype)
    kv = demand.concurrency * kv_bytes_of_sequence(placed.geometry, demand.tokens, placed.setting.kv_dtype, placed.dtype)
    activations = round(_ACTIVATIONS * weights)
    framework = round(_FRAMEWORK * placed.device.memory)
    gpus = math.ceil((weights + kv + activations) / (placed.device.memory - framework))
    return {
        "weight_bytes": weights,
        "kv_cache_bytes": kv,
        "activation_bytes": activations,
        "framework_bytes_per_gpu": framework,
        "min_gpus": gpus,
        "gpus_with_headroom": math.ceil(gpus * (1 + HEADROOM)),
    }


def roofline_of(geometry: Geometry, device: Accelerator, setting: Setting) -> Roofline:
    """The ceilings of `setting.tensor_parallel` devices with a model whose weights are known."""
    return _roofline(_placed(geometry, device, setting))


def _roofline(placed: _Placed) -> Roofline:
    geometry, setting, device = placed.geometry, placed.setting, placed.device
    count = setting.tensor_parallel
    return Roofline(
        geometry=geometry,
        weights=weight_bytes(geometry, placed.dtype),
        active_weights=weight_bytes(geometry, placed.dtype, active=True),
        kv_dtype=setting.kv_dtype,
        kv_copies=max(1, count / geometry.kv_heads) if geometry.kv_heads else 1,
        bandwidth=device.bandwidth * count,
        flops=device.flops(fp8=placed.fp8) * count,
    )


def _ceilings(placed: _Placed, demand: Demand, saturation: float | None) -> dict[str, Any]:
    """What the devices' bandwidth and FLOP/s allow at most (tokens/s, s)."""
    if not placed.geometry.weighed:
        return dict.fromkeys(_CEILINGS)
    roofline = _roofline(placed)
    middle = demand.prompt + demand.output / 2
    alone = roofline.decode(1, middle)
    together = min(saturation, placed.setting.max_num_seqs) if saturation and saturation >= 1 else None
    prefill, first = roofline.prefill(demand.prompt), roofline.first_token(demand.prompt)
    many = roofline.decode(together, middle) if together else None
    return dict(zip(_CEILINGS, (roofline.ridge, prefill, first, roofline.decode(), alone, 1 / alone, many), strict=True))

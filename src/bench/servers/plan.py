"""What a model takes of a GPU before anything is spent: memory term by term, the load that it holds, its speed's ceilings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.errors import shown_gib
from bench.models.catalogue import Accelerator, decoder_part
from bench.models.geometry import (
    DTYPE_BYTES,
    Geometry,
    kv_bytes_of_sequence,
    kv_bytes_per_token,
    state_bytes_per_sequence,
    weight_bytes,
)
from bench.servers.kind import OnGpu
from bench.servers.memory import KvPool, predicted_saturation
from bench.servers.roofline import Roofline
from bench.servers.stages import COUNTS, ONE_NODE, Parallel, parallel_problem, stages_of, tensor_parallel_sizes
from bench.servers.vllm import VLLM
from bench.servers.vllm_memory import kept

# share of the memory in use that is left free; source: the texts that docs/explanation/memory.md names (30 to 50 %)
HEADROOM = 0.3
_ACTIVATIONS = 0.2  # activations ÷ weights; source: docs/explanation/memory.md, "The rule of thumb for GPUs"
# share of a device that the framework takes; source: docs/explanation/memory.md, "The rule of thumb for GPUs"
_FRAMEWORK = 0.075
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


_CEILINGS = (
    *("ridge_flop_per_byte", "prefill_tokens_per_s", "ttft_s", "decode_tokens_per_s", "decode_tokens_per_s_at_context"),
    *("tpot_s", "decode_tokens_per_s_at_saturation"),
)


@dataclass(frozen=True)
class Placed:
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

    @property
    def roofline(self) -> Roofline:
        """The ceilings of the devices, with a model whose weights are known."""
        geometry, count = self.geometry, self.setting.tensor_parallel
        return Roofline(
            geometry=geometry,
            weights=weight_bytes(geometry, self.dtype),
            active_weights=weight_bytes(geometry, self.dtype, active=True),
            kv_dtype=self.setting.kv_dtype,
            kv_copies=max(1, count / geometry.kv_heads),
            bandwidth=self.device.bandwidth * count,
            flops=self.device.flops(fp8=self.fp8) * count,
        )


def plan(geometry: Geometry, device: Accelerator, demand: Demand, setting: Setting) -> dict[str, Any]:
    """The plan of a model on `setting.tensor_parallel` devices, as plain data.

    Returns:
        Bytes and tokens, of all devices together unless a name says `_per_gpu`. `why` says why no request fits, or fewer than one; then
        there may be no capacity. Where the weights are not known, whatever follows from them is null. `kv_bytes_per_request` includes
        `state_bytes_per_sequence`. `min_gpus` and `gpus_with_headroom` are of any count, `…tensor_parallel…` of those that divide the
        heads. In `terms`, weights, activations, overhead and KV cache add up to the budget; a negative KV cache is what is missing.
    """
    placed = placed_on(geometry, device, setting)
    memory, pool, loaded = placed.memory, placed.pool, placed.geometry
    sizes = tensor_parallel_sizes(geometry)
    slots = pool.tokens(memory["kv_cache_bytes_per_gpu"]) if setting.tensor_parallel in sizes else 0
    fits = slots > 0 and demand.tokens <= geometry.context and geometry.weighed
    held = placed.requests(demand.tokens, memory["kv_cache_bytes_per_gpu"]) if fits else None
    dealt = _fewest(geometry, device, demand, setting, sizes)
    capacity = slots // sum(count for _, count in pool.groups) if slots and geometry.weighed else None
    planned: dict[str, Any] = {
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
        "why": None if held is not None and held >= 1 else _why_not(geometry, placed, demand, held, dealt),
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
    if not geometry.weighed:
        planned["weight_bytes"] = None
        planned["terms"] |= {"weight_bytes_per_gpu": None, "kv_cache_bytes_per_gpu": None}
        planned["rule_of_thumb"] = dict.fromkeys(planned["rule_of_thumb"])
    return planned


def choices(geometry: Geometry, device: Accelerator, demand: Demand, setting: Setting) -> list[dict[str, Any]]:
    """Each tensor-parallel size of up to 8 devices that divides the heads: what it holds, and how fast it could be."""
    names = ("kv_capacity_tokens", "predicted_saturation", "why", "ceilings")
    rows = []
    for count in tensor_parallel_sizes(geometry):
        if count <= ONE_NODE:
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
        placed = placed_on(geometry, device, replace(setting, tensor_parallel=count))
        budget = placed.memory["budget_bytes_per_gpu"]
        free = placed.memory["kv_cache_bytes_per_gpu"] - budget + math.floor(budget / (1 + headroom))
        if placed.requests(demand.tokens, free) >= demand.concurrency:
            return count
    return None


def placed_on(geometry: Geometry, device: Accelerator, setting: Setting) -> Placed:
    """The model as `setting` loads it, on that many devices. A quantised checkpoint stays what it is."""
    rest, each = WEIGHTS[setting.dtype]
    loaded = geometry.quantised(each) if each and geometry.quantised_bytes is None else geometry
    on = OnGpu(device.memory, DTYPE_BYTES[rest], setting.max_num_seqs, tensor_parallel=setting.tensor_parallel)
    engine = kept(geometry, on)
    kinds: Mapping[str, Any] = {"dtype": rest, "kv_dtype": setting.kv_dtype, "block_size": setting.block_size}
    (stage,) = stages_of(loaded, Parallel(setting.tensor_parallel), **kinds)
    weights = stage.weights + VLLM().gpu_padding(loaded, setting.tensor_parallel)
    budget = int(device.memory * setting.share)
    memory = {
        "budget_bytes_per_gpu": budget,
        "weight_bytes_per_gpu": weights,
        "activation_bytes_per_gpu": engine["activation"],
        "overhead_bytes_per_gpu": sum(engine.values()) - engine["activation"],
        "kv_cache_bytes_per_gpu": budget - weights - sum(engine.values()),
    }
    return Placed(loaded, rest, computes_in_fp8(geometry, setting), device, setting, stage.pool, memory)


def _rule_of_thumb(placed: Placed, demand: Demand) -> dict[str, Any]:
    """Weights, KV cache, activations of 20 % of the weights and 7.5 % of each device; then 30 % more GPUs.

    Source: docs/explanation/memory.md, "The rule of thumb for GPUs".
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


def _ceilings(placed: Placed, demand: Demand, saturation: float | None) -> dict[str, Any]:
    """What the devices' bandwidth and FLOP/s allow at most (tokens/s, s); nulls where the weights are not known."""
    if not placed.geometry.weighed:
        return dict.fromkeys(_CEILINGS)
    roofline, middle = placed.roofline, demand.prompt + demand.output / 2
    alone = roofline.decode(1, middle)
    together = min(saturation, placed.setting.max_num_seqs) if saturation and saturation >= 1 else None
    prefill, first = roofline.prefill(demand.prompt), roofline.first_token(demand.prompt)
    many = roofline.decode(together, middle) if together else None
    return dict(zip(_CEILINGS, (roofline.ridge, prefill, first, roofline.decode(), alone, 1 / alone, many), strict=True))


def _why_not(geometry: Geometry, placed: Placed, demand: Demand, held: float | None, dealt: int | None) -> str:
    """Why these GPUs cannot hold one request of the demand, and how to fix it.

    Args:
        held: requests that the KV cache holds at once. dealt: the fewest GPUs sharing layers that hold the demand.
    """
    if not geometry.weighed:
        return f"{weights_unknown(geometry)} Name the checkpoint's folder or its id on the hub, or give --parameters."
    if demand.tokens > geometry.context:
        return (
            f"a request of {demand.prompt:,} + {demand.output:,} tokens exceeds the model's context of {geometry.context:,}. "
            "Shorten it."
        )
    if problem := parallel_problem(geometry, Parallel(placed.setting.tensor_parallel), "--tensor-parallel"):
        return problem
    memory = placed.memory
    engine = memory["activation_bytes_per_gpu"] + memory["overhead_bytes_per_gpu"]
    taken = f"weights {shown_gib(memory['weight_bytes_per_gpu'])} + activations and overhead {shown_gib(engine)} GiB"
    budget = f"the {shown_gib(memory['budget_bytes_per_gpu'])} GiB that the engine may take of each GPU"
    left = f"{shown_gib(memory['kv_cache_bytes_per_gpu'])} of {budget}: the KV cache of {held or 0:.2g} requests"
    found = f"{taken} are more than {budget}" if held is None else f"{taken} leave {left}"
    most = tensor_parallel_sizes(geometry)[-1]
    more = f"--tensor-parallel {dealt} holds" if dealt else f"No tensor parallelism of up to {most} holds"
    return f"{found}. {more} the demand; fewer bits (--dtype, --kv-dtype) and fewer sequences (--max-num-seqs) take less."


def weights_unknown(geometry: Geometry) -> str:
    """Why the weights are not known."""
    if geometry.parameters is not None:
        return "the weights are not known: they are quantised, and only the heads of their *.safetensors say in which parts."
    return "the weights are not known: neither *.safetensors nor the catalogue say, and only a plain dense decoder's can be counted."


def notes(
    geometry: Geometry, device: Accelerator, demand: Demand, setting: Setting, held: float | None, capacity: int | None
) -> list[str]:
    """What of the plan rests on an assumption, or is limited by something other than memory.

    Args:
        held: requests that the KV cache holds at once. capacity: its tokens.
    """
    found = [f"the weights are estimated: {geometry.estimated}."] if geometry.estimated else []
    if capacity is not None and capacity < geometry.context and all(window is None for window in geometry.windows):
        found.append(
            f"vLLM starts only where one request of the whole context ({geometry.context:,} tokens) fits: give it --max-model-len "
            f"{capacity} or less."
        )
    if geometry.quantised_bytes is not None and setting.dtype in ("fp8", "int8", "int4"):
        found.append(f"the checkpoint is quantised already and keeps its own type; --dtype {setting.dtype} changes nothing.")
    if device.fp8_tflops is None and computes_in_fp8(geometry, setting):
        found.append("the device has no FP8 arithmetic: FP8 weights take half the memory, and are multiplied in 16 bit.")
    if max(demand.concurrency, held or 0) > setting.max_num_seqs:
        found.append(f"at most {setting.max_num_seqs} sequences run in a step (--max-num-seqs): the KV cache does not fill up.")
    return found

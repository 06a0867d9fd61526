"""A plan in words: why there is no answer, and what its numbers leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.errors import shown_gib
from bench.models.accelerators import Accelerator
from bench.models.geometry import Geometry
from bench.servers.demand import Demand, Setting, computes_in_fp8


def why_not(
    geometry: Geometry,
    demand: Demand,
    setting: Setting,
    memory: Mapping[str, int],
    sizes: Sequence[int],
    held: float | None,
    dealt: int | None,
) -> str | None:
    """Why these GPUs cannot hold one request of the demand, and how to fix it; None where they can.

    Args:
        memory: one GPU's, term by term (bytes). sizes: counts of GPUs that can share a layer. held: requests that the KV cache
        holds at once. dealt: fewest of `sizes` that hold the demand.
    """
    count = setting.tensor_parallel
    if not geometry.weighed:
        return f"{weights_unknown(geometry)} Name the checkpoint's folder or its id on the hub, or give --parameters."
    if demand.tokens > geometry.context:
        return (
            f"a request of {demand.prompt:,} + {demand.output:,} tokens is beyond the model's context of {geometry.context:,}. "
            "Shorten it."
        )
    if count not in sizes:
        return (
            f"{count} GPUs cannot share {geometry.heads} query heads, {geometry.kv_heads} KV heads, an MLP of "
            f"{geometry.intermediate_size:,} and a vocabulary of {geometry.vocabulary:,} evenly. "
            f"--tensor-parallel may be {', '.join(map(str, sizes))}."
        )
    if held is not None and held >= 1:
        return None
    engine = memory["activation_bytes_per_gpu"] + memory["overhead_bytes_per_gpu"]
    taken = f"weights {shown_gib(memory['weight_bytes_per_gpu'])} + activations and overhead {shown_gib(engine)}"
    budget = f"the {shown_gib(memory['budget_bytes_per_gpu'])} GiB that the engine may take of each GPU"
    if held is None:
        found = f"{taken} GiB are more than {budget}."
    else:
        found = (
            f"{taken} GiB leave {shown_gib(memory['kv_cache_bytes_per_gpu'])} of {budget}: the KV cache of {held:.2g} requests."
        )
    more = (
        f"--tensor-parallel {dealt} holds the demand"
        if dealt
        else f"No tensor parallelism of up to {sizes[-1]} holds the demand"
    )
    return f"{found} {more}; fewer bits (--dtype, --kv-dtype) and fewer sequences (--max-num-seqs) take less."


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
    if setting.dtype == "float32":
        found.append("the arithmetic of float32 is slower than the 16 bit FLOP/s of which the ceilings are.")
    if demand.concurrency > setting.max_num_seqs:
        found.append(
            f"{demand.concurrency:,} requests are held, but at most {setting.max_num_seqs} run in a step; raise --max-num-seqs, or "
            "count the others as waiting."
        )
    elif held is not None and held > setting.max_num_seqs:
        # vLLM's default: EngineArgs.get_batch_defaults (0.32).
        found.append(
            f"at most {setting.max_num_seqs} sequences run in a step (--max-num-seqs; a vLLM server that is given none takes 1,024 on "
            "GPUs of 70 GiB or more but A100s, and 256 on others): the KV cache does not fill up."
        )
    return found

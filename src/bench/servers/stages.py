"""What one device holds where a model is dealt out: layers over pipeline stages, their matrices over the devices of a stage."""

from __future__ import annotations

from dataclasses import dataclass

from bench.models.geometry import DTYPE_BYTES, Geometry, weight_bytes
from bench.servers.memory import KvPool, kv_pool

COUNTS = range(1, 65)  # GPUs that a model may be divided over; convention
ONE_NODE = 8  # most GPUs of a node; convention
_VOCABULARY_PADDING = 64  # rows to a multiple of which vLLM pads a vocabulary; source: vLLM's DEFAULT_VOCAB_PADDING_SIZE


@dataclass(frozen=True)
class Parallel:
    """Over how many devices a model is dealt out.

    Attributes:
        tensor: devices that share a layer. pipeline: stages that share the layers. data: engines that share the requests.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1


@dataclass(frozen=True)
class Stage:
    """One device of a pipeline stage: bytes of its weights, and how its KV cache is cut into blocks."""

    weights: int
    pool: KvPool


def layers_of_stages(layers: int, stages: int) -> list[range]:
    """The layers of each stage. What does not divide goes, one layer each, to the stages before the last, from the back.

    Source: vLLM's `get_pp_indices` (0.32): the last stage has the output layer already.
    """
    counts = [layers // stages] * stages
    for i in range(layers % stages):
        counts[-2 - i] += 1
    starts = [sum(counts[:i]) for i in range(stages)]
    return [range(start, start + count) for start, count in zip(starts, counts, strict=True)]


def stages_of(geometry: Geometry, parallel: Parallel, *, dtype: str, kv_dtype: str, block_size: int = 16) -> list[Stage]:
    """What a device of each stage holds.

    The first stage has the embeddings and the last the output layer, or a copy of the embeddings where they are one; all else is dealt
    out as the layers are, evenly. Engines of data parallelism hold all weights but those of experts, which they share.

    Args:
        dtype: of what is not quantised.

    Source: vLLM 0.32: `get_pp_indices`, the models' constructors, `FusedMoEParallelConfig`.
    """
    whole = weight_bytes(geometry, dtype)
    table = min(geometry.vocabulary * geometry.hidden_size * min(DTYPE_BYTES[dtype], 2 if geometry.stored else 4), whole // 2)
    tables = table * (1 if geometry.tied else 2)
    experts = geometry.experts.parameters / geometry.parameters if geometry.experts and geometry.parameters else 0.0
    found = []
    stages = layers_of_stages(geometry.layers, parallel.pipeline)
    alone = len(stages) == 1
    for layers in stages:
        ends = tables if alone else table * ((layers is stages[0]) + (layers is stages[-1]))
        routed = experts * whole * len(layers) / geometry.layers
        size = round((whole - tables) * len(layers) / geometry.layers + ends - routed * (1 - 1 / parallel.data))
        pool = kv_pool(
            geometry,
            dtype=kv_dtype,
            tensor_parallel=parallel.tensor,
            block_size=block_size,
            layers=None if alone else layers,
            state_dtype=dtype,
        )
        found.append(Stage(size // parallel.tensor, pool))
    return found


def tensor_parallel_sizes(geometry: Geometry) -> list[int]:
    """Counts of devices, up to 64, among which one layer can be dealt out.

    The count divides the query heads, the width of a dense MLP and the vocabulary, padded to a multiple of 64. It divides the KV heads,
    or is a multiple of them, and each is held more than once. A latent vector is one head, which every device holds.

    Source: vLLM refuses other counts (`verify_with_parallel_config` for query heads, the models' assertions for KV heads, `divide` in
    `linear.py` and `vocab_parallel_embedding.py` for the others; 0.32).
    """
    heads, kv_heads = geometry.heads, geometry.kv_heads
    vocabulary = -(-geometry.vocabulary // _VOCABULARY_PADDING) * _VOCABULARY_PADDING
    inner = [geometry.intermediate_size] if geometry.dense_mlp else []
    shared = [vocabulary, heads, *inner]
    return [n for n in COUNTS if not any(size % n for size in shared) and (kv_heads % n == 0 or n % kv_heads == 0)]


def parallel_problem(geometry: Geometry, parallel: Parallel, key: str = "tensor_parallel") -> str | None:
    """Why the model cannot be dealt out so, with the key and the counts that would do; None where it can.

    Args:
        key: what the count of tensor parallelism is called where it is stated.
    """
    sizes = tensor_parallel_sizes(geometry)
    if parallel.tensor not in sizes:
        return (
            f"{key} is {parallel.tensor}: so many devices cannot share {geometry.heads} query heads, {geometry.kv_heads} KV "
            f"heads, an MLP of {geometry.intermediate_size:,} and a vocabulary of {geometry.vocabulary:,} evenly. "
            f"It may be {', '.join(map(str, sizes))}."
        )
    if parallel.pipeline > geometry.layers:
        return (
            f"pipeline_parallel is {parallel.pipeline}: each stage needs a layer, and the model has {geometry.layers}. "
            f"It may be 1 to {geometry.layers}."
        )
    return None

"""What vLLM keeps of a GPU beside weights and KV cache, by its version. How it was found: docs/explanation/memory.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.servers.kind import OnGpu

if TYPE_CHECKING:
    from bench.models.geometry import Geometry

_GIB = 2**30
_VOCABULARY = 64  # the output layer's rows are padded to a multiple of it; source: vLLM's VocabParallelEmbedding
_HIDDEN = 8.5  # bytes × hidden size that a token takes in a layer's MLP, of 16 bit; fitted: docs/explanation/memory.md
_GATED = 6  # bytes × width that it takes there: gate, up, and their product, of 16 bit; derived
# 0.9 of what nvidia-smi reports and vLLM does not see (0.45 to 0.75 GiB); source: the logs of benchmarks.gpu_memory
_DRIVER = int(0.45 * _GIB)
_BUFFERS = int(0.05 * _GIB)  # what sampling takes beside logits and hidden states; fitted: docs/explanation/memory.md
# (from GiB on, tokens): those of a step by default; source: vLLM 0.32, EngineArgs.get_batch_defaults, which gives an A100 fewer
_STEP_TOKENS = ((160, 16_384), (70, 8192), (0, 2048))
_LARGE = 70  # GiB from which GPUs are taken to have fast links, for which libraries keep memory; convention: an H100's
_FULL_GRAPHS = 512  # most sequences for which a graph is captured; source: vLLM 0.32, VllmConfig._set_cudagraph_sizes


@dataclass(frozen=True)
class _Kept:
    """What a version keeps.

    Attributes:
        since: the first such version. sampler: bytes × vocabulary × max_num_seqs at the peak of sampling, of 16-bit logits.
        libraries: what is not torch's (GiB). exchange: further GiB of it on each of several GPUs of 70 GiB or more that share layers.
        experts: whether the space of routed experts stays beside sampling, and is not free again after a layer.
        graph: GiB of one layer in one CUDA graph, where graphs are taken off the KV cache's budget.
        dense: whether that is so for models without routed experts alone, which had the version's new runner first.
    """

    since: tuple[int, int]
    sampler: float
    libraries: float
    exchange: float
    experts: bool = True
    graph: float = 0.0
    dense: bool = False


# Until 0.16 the sampler sorted all logits (values, indices, probabilities); then it kept a float32 copy, probabilities and noise. The
# second model runner, which dense models have since 0.25 and all since 0.29, profiles without all that. From 0.33 it profiles sampling
# with all settings; no log shows it, so the first runner's value stands in. Of its 0.55 GiB of libraries 0.3 are for what torch.compile
# leaves behind: up to 0.75 on a first start, and nothing once its cache is filled.
# What each was fitted to: docs/explanation/memory.md; the first row: tests/models/test_capacity.py.
_VERSIONS = (
    _Kept((0, 0), 37.7, 2.39, 0.52, experts=False),
    _Kept((0, 10), 38.3, 0.13, 0.42, experts=False),
    _Kept((0, 13), 38.3, 0.13, 0.42),
    _Kept((0, 17), 14.5, 0.13, 0.42),
    _Kept((0, 18), 14.5, 0.25, 1.85),
    _Kept((0, 20), 14.5, 0.25, 1.85, graph=0.00045),
    _Kept((0, 25), 4.6, 0.55, 1.85, dense=True),
    _Kept((0, 29), 4.6, 0.55, 1.85, graph=0.0003),
    _Kept((0, 33), 14.5, 0.55, 1.85, graph=0.0003),
)


def kept(geometry: Geometry, on: OnGpu) -> dict[str, int]:
    """What it keeps on each GPU, by what it is for (bytes).

    `activation`: the peak of its profiling run, which is either a step's in a layer's MLP or sampling's after it, and the space of
    routed experts. `driver`: what it does not see of the memory. `runtime`: libraries. `parallel`: their exchange, where GPUs share
    layers. `graphs`: CUDA graphs, in versions that take them off the KV cache's budget.

    Of pipeline stages, each is taken to keep all of it, though the last one alone samples: their KV cache comes out too small rather
    than too large.
    """
    version, memory = _version(on.version, dense=geometry.experts is None), 80 * _GIB if on.memory is None else on.memory
    tokens = on.step_tokens or next(tokens for least, tokens in _STEP_TOKENS if least * _GIB <= memory)
    each = on.bytes_each / 2  # 16-bit numbers
    gated = geometry.intermediate_size / on.tensor_parallel if geometry.dense_mlp else 0
    mlp = tokens * each * (_GATED * gated + _HIDDEN * geometry.hidden_size)
    experts = 0.0
    if geometry.experts and not geometry.mxfp4_bytes:
        wide = 2 * geometry.experts.width / on.tensor_parallel + geometry.hidden_size
        experts = tokens * on.bytes_each * geometry.experts.used * wide
    logits = -(-geometry.vocabulary // _VOCABULARY) * _VOCABULARY * on.max_num_seqs
    sampling = logits * (version.sampler + on.bytes_each - 2)
    if version is not _VERSIONS[0]:  # of the oldest only sums are known, which are met as well without
        sampling += tokens * on.bytes_each * geometry.hidden_size + _BUFFERS
    if version.experts:
        sampling += experts
    shares = on.tensor_parallel > 1 and memory >= _LARGE * _GIB
    graphs = version.graph * _GIB * geometry.layers * _graphs(on.max_num_seqs) if on.graphs else 0
    return {
        "activation": round(max(mlp + experts, sampling)),
        "driver": _DRIVER,
        "runtime": round(version.libraries * _GIB),
        "parallel": round(version.exchange * _GIB) if shares else 0,
        "graphs": round(graphs),
    }


def _version(version: str | None, *, dense: bool) -> _Kept:
    """What a version keeps; of an unknown one, or a build that names none (`0.1.dev…`), what the newest does."""
    found = re.match(r"v?(\d+)\.(\d+)(?!\d|\.dev)", version or "")
    if found is None:
        return _VERSIONS[-1]
    number = int(found[1]), int(found[2])
    return next(each for each in reversed(_VERSIONS) if each.since <= number and (dense or not each.dense))


def _graphs(max_num_seqs: int) -> int:
    """CUDA graphs that are captured: of 1, 2, 4, each eighth sequence up to 256, and each sixteenth beyond."""
    most = min(_FULL_GRAPHS, 2 * max_num_seqs)
    return sum(size <= most for size in (1, 2, 4, *range(8, 256, 8), *range(256, _FULL_GRAPHS + 1, 16)))

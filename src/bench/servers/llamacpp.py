"""llama.cpp: how it is started, how it admits requests, and what it calls its metrics.

It serves as many requests at once as it has slots; others wait, in the order of their arrival. A slot is an equal part of the KV
cache, which a request holds from its first token to its last. So a request longer than a slot cannot be served, a shorter one leaves
the rest of its slot unused, and nothing is ever preempted. In the terms of a paged cache, a slot is a block that one request fills.

Names: b11549, as the wheel xllamacpp 2026.10.11549 has it, tools/server. No histograms, no preemptions, and no KV usage: builds before
2025 had kv_cache_usage_ratio. Prompt tokens are those computed; those found in a slot's cache have a counter of their own since August
2026, and the queries, which are the sum of both, none. Generated and drafted tokens count when their request is done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError, shown_size
from bench.runs.deployment import KvFacts
from bench.runs.launch import MemoryPlan, Settings
from bench.servers.kind import Ask, Flag, Labelled, Managed, Production, names_of

if TYPE_CHECKING:
    from bench.models.geometry import Geometry
    from bench.models.model import Model
    from bench.servers.deployment import Deployment, Engine
    from bench.servers.spec import DeploymentSpec

_CACHE_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_QUANTISED = ("q8_0", "q4_0")  # types of a KV cache alone, in blocks
_PADDING = 256  # a slot's tokens are a multiple of it: llama.cpp rounds them up, and would take more memory than it was given
# Every open connection holds a thread. With the default, slots + 4 at first, the scraper waited for seconds behind 60 requests.
_HTTP_THREADS = 512


class LlamaCpp(Managed):
    name = "llama.cpp"
    title = "llama.cpp"
    prefix = "llamacpp:"
    server = (str(Path(__file__).with_name("llama_server.py")),)  # it has the flags of the command `llama-server`
    packages = ("xllamacpp",)
    planned_by = {
        **dict.fromkeys(("parallel", "np"), "max_num_seqs"),
        **dict.fromkeys(("ctx-size", "c", "kv-unified"), "kv_cache_memory"),
        **dict.fromkeys(("cache-type-k", "cache-type-v"), "kv_cache_dtype"),
    }
    variables = ("LLAMA_", "GGML_")
    slots = True
    gguf = True
    production = Production(
        command=("llama-server",),
        entrypoint=("/app/llama-server",),
        port=8080,
        named="alias",
        left_out={"seed": "the benchmark's, so that runs repeat"},
    )
    cpu_overhead = int(0.2 * 2**30)  # resident beside weights and KV cache, measured with the models of config/config.yaml
    metrics = names_of("llama.cpp", "llamacpp:")

    def info(self, ask: Ask) -> dict[str, Any] | None:
        """From /props and /slots. The wheel's build, `b0-unknown`, does not know its version."""
        props = ask("props")
        if not isinstance(props, dict) or "total_slots" not in props:
            return None
        build = props.get("build_info")
        slots = ask("slots")
        return {
            "version": build if isinstance(build, str) and not build.startswith("b0-") else None,
            "props": props,
            "slots": slots if isinstance(slots, list) else [],
        }

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        """Slots as blocks. It never reports whether prompts share prefixes."""
        props, slots = info.get("props", {}), [slot for slot in info.get("slots", ()) if isinstance(slot, dict)]
        defaults = props.get("default_generation_settings")
        sizes = {slot.get("n_ctx") for slot in slots} or {defaults.get("n_ctx") if isinstance(defaults, dict) else None}
        number, size = props.get("total_slots"), sizes.pop() if len(sizes) == 1 else None
        number, size = (value if isinstance(value, int) else None for value in (number, size))
        return KvFacts(engines=1, kv_blocks=number, block_size=size, kv_tokens=number * size if number and size else None)

    def refused(self, deployment: Deployment, engine: Engine, model: Model, geometry: Geometry | None) -> str | None:
        d = deployment
        windows = geometry is not None and any(window is not None for window in geometry.windows)
        wrong = (
            (d.workers > 1, "tensor_parallel: llama.cpp is run as one process; remove the three kinds of parallelism"),
            (engine.backend != "cpu", "engine: llama.cpp is run on CPUs here; remove `backend`, or use `source: external`"),
            (d.block_size is not None, "block_size: llama.cpp cuts its KV cache into slots, not into blocks; remove it"),
            (d.kv_cache_dtype == "fp8", "kv_cache_dtype: llama.cpp has no fp8 KV cache; give q8_0 or q4_0, or remove it"),
            (
                d.kv_cache_dtype in _QUANTISED and (d.dtype not in ("auto", "float16") or (d.dtype == "auto" and model.synthetic)),
                f"kv_cache_dtype: a {d.kv_cache_dtype} KV cache goes with float16; give `dtype: float16`",
            ),
            (
                d.kv_cache_dtype in _QUANTISED and geometry is not None and geometry.head_dim % 32,
                f"kv_cache_dtype: {d.kv_cache_dtype} has blocks of 32 numbers, which do not divide the heads of {d.model}; remove it",
            ),
            (d.kv_cache_memory is None, "kv_cache_memory: give it; llama.cpp would take the model's whole context for every slot"),
            (
                not (model.synthetic or model.gguf),
                "model: llama.cpp reads a GGUF file; give it as `path`, or `config` or `catalogue` alone for random weights",
            ),
            (
                geometry is not None and (geometry.latent or windows),
                f"model: the KV cache of {d.model} (latent attention or sliding windows) cannot be planned for llama.cpp",
            ),
        )  # fmt: skip
        return next((what for is_wrong, what in wrong if is_wrong), None)

    def dtype(self, spec: DeploymentSpec) -> str:
        """The type of random weights and the KV cache; of a GGUF file, whose weights have types of their own, of the KV cache alone."""
        given = spec.deployment.dtype
        return given if given != "auto" else "float32" if spec.model.synthetic else "float16"

    def block_size(self, spec: DeploymentSpec, geometry: Geometry | None) -> int:
        """1, as if there were no blocks; `cut` makes slots."""
        return 1

    def cut(self, plan: MemoryPlan, spec: DeploymentSpec, context: int) -> MemoryPlan:
        """Into `max_num_seqs` slots of a multiple of 256 tokens, no more than the model's context, to which llama.cpp would cut one.

        Raises:
            BenchError: the memory does not hold so many slots.
        """
        d, each = spec.deployment, plan.kv_bytes_per_token or 0
        memory = d.kv_cache_memory or 0
        held = memory // each
        own = held // d.max_num_seqs // _PADDING * _PADDING
        if own == 0:
            lower = f", or lower max_num_seqs to {held // _PADDING} or less" if held >= _PADDING else ""
            raise BenchError(
                f"deployments.{spec.name}: {d.max_num_seqs} slots (max_num_seqs) of {_PADDING} tokens, the fewest that llama.cpp "
                f"makes, take {shown_size(d.max_num_seqs * _PADDING * each)} of KV cache at {each:,} bytes a token; kv_cache_memory "
                f"is {shown_size(memory)}. Raise it{lower}."
            )
        slot = min(own, -(-context // _PADDING) * _PADDING)
        return replace(plan, block_size=slot, kv_tokens=d.max_num_seqs * slot, kv_groups=((None, 1),))

    def flags(self, spec: DeploymentSpec, plan: MemoryPlan | None, longest: int | None) -> dict[str, Flag]:
        """Flags that `llama_server.py` and `llama-server` both take."""
        d = spec.deployment
        cache_type = _CACHE_TYPES[self.dtype(spec)] if d.kv_cache_dtype == "auto" else d.kv_cache_dtype
        return {
            "alias": spec.served_name,
            "host": "127.0.0.1",
            "port": "{port}",
            "parallel": d.max_num_seqs,
            "ctx-size": (plan and plan.kv_tokens) or 0,
            "threads": d.cores or 1,
            "threads-http": _HTTP_THREADS,
            "cache-type-k": cache_type,
            "cache-type-v": cache_type,
            # Its kernel for float32 takes three times as long as none: 118 ms against 37 ms for a step of 32 requests.
            "flash-attn": "off" if cache_type == "f32" else "on",
            "cache-prompt": d.prefix_caching,
            "cache-ram": 0,  # no second cache, outside of kv_cache_memory
            "metrics": True,
        }

    def settings(self, flags: Mapping[str, Flag], plan: MemoryPlan | None) -> Settings:
        """A slot is its longest sequence, and its block."""
        caching, dtypes = flags.get("cache-prompt"), {short: name for name, short in _CACHE_TYPES.items()}
        cache = str(flags.get("cache-type-k"))
        dtype = "float16" if cache in _QUANTISED else dtypes.get(cache)
        return Settings(
            max_num_seqs=int(flags["parallel"]),
            max_model_len=plan.block_size if plan else None,
            block_size=plan.block_size if plan else None,
            dtype=dtype,
            kv_cache_dtype=cache if cache in _QUANTISED else dtype,
            prefix_caching=caching if isinstance(caching, bool) else None,
            slots=True,
        )

    def pinned(self, groups: Sequence[Sequence[int]]) -> tuple[list[str], dict[str, str]]:
        """The whole server is pinned: its own `--cpu-range` does not pin a single thread."""
        return ["taskset", "--cpu-list", ",".join(map(str, groups[0]))], {}

    def image(self, version: str, device: str) -> str | None:
        """An image of GitHub's registry, by build: `b11549-1a2b3c4` of a server, `2026.10.11549` of the wheel. Not every build has one.

        Source: llama.cpp's docs/docker.md.
        """
        build = re.fullmatch(r"b(\d+)(?:-.*)?|\d{4}\.\d{1,2}\.(\d+)", version)
        return f"ghcr.io/ggml-org/llama.cpp:server-b{build[1] or build[2]}" if build else None

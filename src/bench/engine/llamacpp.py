"""llama.cpp as an engine: its command line, how it admits requests, and what a running server says of its KV cache.

It serves as many requests at once as it has slots; others wait, in the order of their arrival. A slot is an equal part of the KV
cache, which a request holds from its first token to its last. So a request longer than a slot cannot be served, a shorter one leaves
the rest of its slot unused, and nothing is ever preempted. In the terms of a paged cache, a slot is a block that one request fills.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.models import Geometry, kv_bytes_per_token
from bench.study import DeploymentSpec

__all__ = ["SERVER", "kv_facts", "launch_arguments", "pinned", "refuse_unsupported", "slot_tokens", "version"]

# What the Python of an environment with the wheel `xllamacpp` runs. It has the flags of the command `llama-server`.
SERVER = Path(__file__).with_name("llama_server.py")

_CACHE_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_PADDING = 256  # a slot's tokens are a multiple of it: llama.cpp rounds them up, and would take more memory than it was given
# Every open connection holds a thread. With the default, slots + 4 at first, the scraper waited for seconds behind 60 requests.
_HTTP_THREADS = 512


def refuse_unsupported(spec: DeploymentSpec, geometry: Geometry) -> None:
    """Refuse what this engine does not do, or would do differently than the key says.

    Raises:
        BenchError: it names the key, and what to do.
    """
    d, where = spec.deployment, f"deployments.{spec.name}"
    if d.workers > 1:
        raise BenchError(
            f"{where}: llama.cpp is run as one process; remove tensor_parallel, pipeline_parallel and data_parallel."
        )
    if spec.engine.device != "cpu":
        raise BenchError(
            f"{where}: llama.cpp is run on CPUs here; remove engines.{d.engine}.device, or use `source: external`."
        )
    if d.block_size is not None:
        raise BenchError(f"{where}.block_size: llama.cpp cuts its KV cache into slots, not into blocks; remove it.")
    if d.kv_cache_dtype != "auto":
        raise BenchError(f"{where}.kv_cache_dtype: llama.cpp has no {d.kv_cache_dtype} KV cache; remove it.")
    if d.kv_cache_memory is None:
        raise BenchError(f"{where}: give kv_cache_memory; llama.cpp would take the model's whole context for every slot.")
    if geometry.latent or any(window is not None for window in geometry.windows):
        raise BenchError(
            f"{where}: the KV cache of {spec.deployment.model} (latent attention or sliding windows) cannot be planned for llama.cpp."
        )


def slot_tokens(spec: DeploymentSpec, geometry: Geometry) -> int:
    """Tokens of one slot, prompt and output together: what `kv_cache_memory` holds over `max_num_seqs` slots, in steps of 256.

    No more than the model's context, to which llama.cpp would cut a slot.

    Raises:
        BenchError: the memory does not hold so many slots.
    """
    d = spec.deployment
    assert d.kv_cache_memory is not None
    each = kv_bytes_per_token(geometry, _dtype(spec))
    held = d.kv_cache_memory // each
    own = held // d.max_num_seqs // _PADDING * _PADDING
    if own == 0:
        needed = d.max_num_seqs * _PADDING * each
        raise BenchError(
            f"deployments.{spec.name}: {d.max_num_seqs} slots (max_num_seqs) of {_PADDING} tokens, the fewest that llama.cpp makes, "
            f"take {needed / 2**20:,.0f} MiB of KV cache at {each:,} bytes a token; kv_cache_memory is "
            f"{d.kv_cache_memory / 2**20:,.0f} MiB. Raise it, or lower max_num_seqs to {held // _PADDING} or less."
        )
    return min(own, -(-geometry.context // _PADDING) * _PADDING)


def launch_arguments(spec: DeploymentSpec, geometry: Geometry, model: Path) -> list[str]:
    """The server's arguments after its command, for `SERVER` and `llama-server` alike, with `{port}` to be filled in.

    Args:
        model: the GGUF file.

    Raises:
        BenchError: as `refuse_unsupported` and `slot_tokens`.
    """
    refuse_unsupported(spec, geometry)
    d = spec.deployment
    cache_type = _CACHE_TYPES[_dtype(spec)]
    flags: dict[str, str | int | float | bool] = {
        "model": str(model),
        "alias": spec.served_name,
        "host": "127.0.0.1",
        "port": "{port}",
        "parallel": d.max_num_seqs,
        "ctx-size": d.max_num_seqs * slot_tokens(spec, geometry),
        "threads": d.cores,
        "threads-http": _HTTP_THREADS,
        "cache-type-k": cache_type,
        "cache-type-v": cache_type,
        # Its kernel for float32 takes three times as long as none: 118 ms against 37 ms for a step of 32 requests.
        "flash-attn": "off" if cache_type == "f32" else "on",
        "cache-prompt": d.prefix_caching,
        "cache-ram": 0,  # no second cache, outside of kv_cache_memory
        "metrics": True,
    }
    argv: list[str] = []
    for key, value in {**flags, **d.flags}.items():
        if isinstance(value, bool):
            argv.append(f"--{key}" if value else f"--no-{key}")
        else:
            argv += [f"--{key}", str(value)]
    return argv


def pinned(cores: int) -> list[str]:
    """What to put before the command so that the whole server runs on the first `cores` cores that this process may use.

    All of it, since llama.cpp's own `--cpu-range` does not pin a single thread. With one core in all there is nothing to pin.

    Raises:
        BenchError: there are fewer.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if cores > len(allowed):
        raise BenchError(f"`cores` is {cores}, and this process may use {len(allowed)}. Lower it, or give the job more.")
    return [] if len(allowed) == 1 else ["taskset", "--cpu-list", ",".join(map(str, allowed[:cores]))]


def kv_facts(props: Mapping[str, Any], slots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The KV cache as a running server tells it; null where it does not.

    Args:
        props, slots: its answers at /props and /slots.

    Returns:
        `engines`, `kv_blocks` (slots), `block_size` (tokens of a slot), `kv_tokens` and `prefix_caching`, which it never tells; and
        `cache_config`, as it is here for every engine.
    """
    sizes = {slot.get("n_ctx") for slot in slots} or {props.get("default_generation_settings", {}).get("n_ctx")}
    count, size = props.get("total_slots"), sizes.pop() if len(sizes) == 1 else None
    return {
        "engines": 1,
        "kv_blocks": count,
        "block_size": size,
        "kv_tokens": count * size if isinstance(count, int) and isinstance(size, int) else None,
        "prefix_caching": None,
        "cache_config": {},
    }


def version(props: Mapping[str, Any], packages: Sequence[str]) -> str | None:
    """The build that serves, such as `b11549-1a2b3c4`; of the wheel, which does not know its own, the wheel's version.

    Args:
        props: the server's answer at /props. packages: of the engine's environment, such as `xllamacpp==2026.10.11549`.
    """
    build = props.get("build_info")
    if isinstance(build, str) and not build.startswith("b0-"):
        return build
    return next((pin.partition("==")[2] for pin in packages if pin.startswith("xllamacpp==")), None)


def _dtype(spec: DeploymentSpec) -> str:
    given = spec.deployment.dtype
    return "float32" if given == "auto" else given

"""What was really running: read from the server and the machine, kept beside the runs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import requests

from bench.http import get
from bench.runs.deployment import Hardware
from bench.runs.environment import for_a_server, recorded, without_secrets
from bench.servers.engines import ENGINES, MANAGED
from bench.servers.spec import DeploymentSpec

# Of every engine, CUDA, PyTorch and what they build on.
_PREFIXES = (
    *(prefix for kind in MANAGED.values() for prefix in kind.variables),
    *("HF_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TRITON_"),
    *("CUDA_", "NCCL_", "NVIDIA_TF32_", "CUBLAS_", "GLOO_", "UCX_", "OMP_", "KMP_", "MKL_"),
)
_NAMES = ("LD_PRELOAD",)  # another allocator is a usual setting of vLLM's CPU build


def server_info(base_url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a server reports of itself, its `version` at least; empty where it reports nothing. Each engine has its own path."""

    def ask(path: str) -> Any:
        try:
            return get(f"{base_url}/{path}", headers=headers).json()
        except (requests.RequestException, ValueError):
            return None

    found = next((info for kind in ENGINES if (info := kind.info(ask)) is not None), {})
    return {**found, "version": _printable(found["version"])} if isinstance(found.get("version"), str) else found


def _printable(version: str) -> str:
    return re.sub(r"[^ -~]", "?", without_secrets(version.encode(errors="replace")).decode())[:100]


def hardware() -> Hardware:
    """This machine."""
    named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return Hardware(
        cpu=named[1] if named else platform.machine(),
        cores=os.cpu_count(),
        cores_allowed=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        gpus=tuple(_gpus()),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
    )


def _gpus() -> list[dict[str, str]]:
    if shutil.which("nvidia-smi") is None:
        return []
    keys = ("name", "memory.total", "driver_version", "power.limit")
    listed = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(keys)}", "--format=csv,noheader"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if listed.returncode:
        return []
    return [dict(zip(keys, line.split(", "), strict=False)) for line in listed.stdout.splitlines()]


def inherited(spec: DeploymentSpec, own: Mapping[str, str], exported: Mapping[str, str]) -> dict[str, str] | None:
    """What a record keeps of the variables that can change what the server does, and that Saturate did not set.

    Args:
        own: what Saturate gives the server, which overrides what is exported. exported: this process's environment.

    Returns:
        By name what `bench.runs.environment.recorded` keeps; None for a server that is not started here.
    """
    if spec.engine.source == "external":
        return None
    names = {name for name in for_a_server(exported) if name.startswith(_PREFIXES) or name in _NAMES} - own.keys()
    return recorded({name: exported[name] for name in names})

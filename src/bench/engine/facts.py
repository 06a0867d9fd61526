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

from bench.engine.server import Server
from bench.http import get
from bench.study.environment import redacted, redacted_command

__all__ = ["gather_facts", "hardware", "server_info"]


def gather_facts(server: Server, log: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a server that is ready: version, command line, memory, time to ready, hardware.

    Args:
        info: what it says of itself.
    """
    words = log.read_text(errors="replace") if log.exists() else ""
    weights = re.findall(r"[Mm]odel loading took ([\d.]+) GiB", words)
    return {
        "engine_version": info.get("version"),
        "managed": server.managed,
        "command": redacted_command(server.argv),
        "environment": redacted(server.environment),
        "ready_s": round(server.ready_s, 3),
        "weight_gib": float(weights[-1]) if weights else None,
        "hardware": hardware(),
    }


def server_info(base_url: str) -> dict[str, Any]:
    """What a server says of itself, its `version` at least; empty where it says nothing.

    vLLM is asked at /version, SGLang at /server_info (/get_server_info before 0.5.6), TGI at /info.
    """
    for path in ("version", "server_info", "get_server_info", "info"):
        try:
            content = get(f"{base_url}/{path}").json()
        except (requests.RequestException, ValueError):
            continue
        if isinstance(content, dict) and isinstance(content.get("version"), str):
            return content
    return {}


def hardware() -> dict[str, Any]:
    """This machine: processor, cores, memory, GPUs with their driver, kernel, Python."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": _gpus(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    try:
        match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return match[1] if match else platform.machine()
    except OSError:
        return platform.processor() or platform.machine()


def _gpus() -> list[dict[str, str]]:
    if shutil.which("nvidia-smi") is None:
        return []
    keys = ("name", "memory.total", "driver_version", "power.limit")
    told = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(keys)}", "--format=csv,noheader"], capture_output=True, text=True
    )
    if told.returncode:
        return []
    return [dict(zip(keys, line.split(", "), strict=False)) for line in told.stdout.splitlines()]

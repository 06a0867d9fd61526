"""What was really running: read from the server and the machine, kept beside the runs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil
import requests
from prometheus_client.parser import text_string_to_metric_families

from bench.engine.server import Server
from bench.http import get

__all__ = ["gather_facts", "hardware"]


def gather_facts(server: Server, log: Path) -> dict[str, Any]:
    """Facts of a server that is ready: version, command line, KV capacity, memory, time to ready, hardware."""
    cache = _cache_config(server.base_url)
    blocks, block_size = _integer(cache.get("num_gpu_blocks")), _integer(cache.get("block_size"))
    words = log.read_text(errors="replace") if log.exists() else ""
    weights = re.findall(r"[Mm]odel loading took ([\d.]+) GiB", words)
    return {
        "engine_version": _version(server.base_url),
        "managed": server.managed,
        "command": server.argv,
        "environment": server.environment,
        "ready_s": round(server.ready_s, 3),
        "kv_blocks": blocks,
        "block_size": block_size,
        "kv_tokens": blocks * block_size if blocks and block_size else None,
        "weight_gib": float(weights[-1]) if weights else None,
        "cache_config": cache,
        "hardware": hardware(),
    }


def _version(base_url: str) -> str | None:
    try:
        answer = get(f"{base_url}/version")
        return str(answer.json()["version"])
    except (requests.RequestException, ValueError, KeyError):
        return None  # not a vLLM server


def _cache_config(base_url: str) -> dict[str, str]:
    """The labels of vLLM's cache_config_info; empty where the server has none."""
    try:
        text = get(f"{base_url}/metrics").text
        for family in text_string_to_metric_families(text):
            if family.name == "vllm:cache_config_info" and family.samples:
                return dict(family.samples[0].labels)
    except (requests.RequestException, ValueError):
        pass
    return {}


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


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
    return [dict(zip(keys, line.split(", "), strict=False)) for line in told.stdout.splitlines()]

"""Which GPUs a server takes, and how much memory one has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from bench.servers.spec import DeploymentSpec


def gpu_names(spec: DeploymentSpec, environment: Mapping[str, str], *, every: bool = False) -> list[str]:
    """The GPUs that a server of ours takes of this machine, as NVML knows them: indices, or UUIDs where the environment names those.

    vLLM takes the first ones that CUDA_VISIBLE_DEVICES shows, or the machine's first ones. An index is taken as NVML counts, by the PCI
    bus; CUDA counts so too with CUDA_DEVICE_ORDER=PCI_BUS_ID, or where the GPUs are alike.

    Args:
        environment: of the server's process. every: all that CUDA_VISIBLE_DEVICES shows, also those that the server leaves.
    """
    count = spec.gpus or 0
    shown = shown_gpus(environment)
    if shown is None:
        return [str(index) for index in range(count)]
    return shown[: None if every else count]


def shown_gpus(environment: Mapping[str, str]) -> list[str] | None:
    """The entries of CUDA_VISIBLE_DEVICES; None if it is not set. As in CUDA, those after one that names nothing are hidden."""
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return None
    return list(takewhile(lambda entry: entry not in ("", "-1"), (part.strip() for part in shown.split(","))))


def least_memory(environment: Mapping[str, str]) -> int | None:
    """Memory of the smallest device that CUDA shows here (bytes); None without a device, or if the driver does not answer.

    On a GPU in MIG mode CUDA computes on instances alone, each with memory of its own, while nvidia-smi goes on to report the whole.

    Args:
        environment: of the server's process.
    """
    try:
        import pynvml  # noqa: PLC0415 - only where there are GPUs

        pynvml.nvmlInit()
    except Exception:  # without the binding, the driver's library, or a driver that answers
        return None
    try:
        shown = shown_gpus(environment)
        return min((memory for index, uuid, memory in _devices(pynvml) if _is_shown(index, uuid, shown)), default=None)
    except pynvml.NVMLError:
        return None


def _is_shown(index: int, uuid: str, shown: list[str] | None) -> bool:
    return shown is None or any(entry == str(index) or (not entry.isdigit() and uuid.startswith(entry)) for entry in shown)


def _devices(nvml: Any) -> Iterator[tuple[int, str, int]]:
    """Each device that CUDA can compute on: its GPU's index, its own UUID, and its memory (bytes)."""
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        if not _in_mig_mode(nvml, gpu):
            yield index, nvml.nvmlDeviceGetUUID(gpu), nvml.nvmlDeviceGetMemoryInfo(gpu).total
            continue
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
            except nvml.NVMLError:  # a place that holds no instance
                continue
            yield index, nvml.nvmlDeviceGetUUID(instance), nvml.nvmlDeviceGetMemoryInfo(instance).total


def _in_mig_mode(nvml: Any, gpu: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(gpu)[0])
    except nvml.NVMLError:  # it cannot be divided
        return False

"""Which GPUs a server takes, and how much memory one has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from bench.servers.spec import DeploymentSpec


def gpu_names(spec: DeploymentSpec, environment: Mapping[str, str]) -> list[str]:
    """The GPUs that a server of ours takes of this machine, as NVML knows them: indices, or UUIDs where the environment names those.

    vLLM takes the first ones that CUDA_VISIBLE_DEVICES shows, or the machine's first ones. An index is taken as NVML counts, by the PCI
    bus; CUDA counts so too with CUDA_DEVICE_ORDER=PCI_BUS_ID, or where the GPUs are alike.

    Args:
        environment: of the server's process.
    """
    count, shown = spec.gpus or 0, shown_gpus(environment)
    return [str(index) for index in range(count)] if shown is None else shown[:count]


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
    shown = shown_gpus(environment)
    try:
        nvml = load_nvml()
        return min(
            (
                nvml.nvmlDeviceGetMemoryInfo(each.handle).total
                for each in _devices(nvml)
                if shown is None or any(_is(each, entry) for entry in shown)
            ),
            default=None,
        )
    except Exception:  # without the binding, the driver's library, or a driver that answers
        return None


def _is(gpu: Gpu, entry: str) -> bool:
    """By its index, of an instance its whole GPU's, or by the beginning of its UUID."""
    return entry == str(gpu.index) or (not entry.isdigit() and gpu.uuid.startswith(entry))


def _devices(nvml: Any) -> Iterator[Gpu]:
    """Each device that CUDA can compute on."""
    for gpu in _whole(nvml):
        try:
            divided = bool(nvml.nvmlDeviceGetMigMode(gpu.handle)[0])
        except nvml.NVMLError:  # it cannot be divided
            divided = False
        yield from _instances(nvml, [gpu]) if divided else [gpu]


class NvmlError(Exception):
    """NVML cannot be used here, or has no such GPU; the message names it."""


class MissingGpuError(NvmlError):
    """NVML works, and finds no such GPU."""


@dataclass(frozen=True)
class Gpu:
    """A GPU or MIG instance: NVML's handle, its index (an instance's whole GPU's), its UUID, and its labels in an exposition."""

    handle: Any
    index: int | None
    uuid: str
    labels: str


def load_nvml() -> Any:
    try:
        import pynvml  # noqa: PLC0415 - only where GPUs are looked at
    except ImportError as error:
        raise NvmlError(f"NVML cannot be loaded ({error}); install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML cannot be loaded ({error}); it comes with NVIDIA's driver") from None
    return pynvml


def find_gpus(nvml: Any, wanted: Sequence[str]) -> list[Gpu]:
    """All GPUs of the machine where none is named."""
    try:
        whole = list(_whole(nvml))
    except nvml.NVMLError as error:
        raise NvmlError(f"NVML counts no GPUs ({error})") from None
    if not whole:
        raise MissingGpuError("NVML finds no GPU on this machine")
    if not wanted:
        return whole
    there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in whole)
    gpus = []
    for name in wanted:
        known = list(_instances(nvml, whole)) if name.startswith("MIG-") else whole
        found = [gpu for gpu in known if _is(gpu, name)]
        if len(found) != 1:
            raise MissingGpuError(f"GPU {name}: {len(found) or 'none'} of that name; NVML finds {there}")
        gpus += found
    return gpus


def _whole(nvml: Any) -> Iterator[Gpu]:
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            labels = {"gpu": str(index), "UUID": nvml.nvmlDeviceGetUUID(handle), "modelName": nvml.nvmlDeviceGetName(handle)}
        except nvml.NVMLError:  # one that is lost, or that this container may not see
            continue
        yield Gpu(handle, index, labels["UUID"], ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()))


def _instances(nvml: Any, whole: Sequence[Gpu]) -> Iterator[Gpu]:
    """As with DCGM, an instance's labels are the whole GPU's, with the instance's number."""
    for gpu in whole:
        try:
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
        except nvml.NVMLError:  # no GPU that can be divided
            continue
        for i in range(most):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, i)
                uuid, number = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetGpuInstanceId(handle)
            except nvml.NVMLError:  # a place that holds no instance
                continue
            yield Gpu(handle, gpu.index, uuid, f'{gpu.labels},GPU_I_ID="{number}"')


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")

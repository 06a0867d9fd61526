"""This machine's GPUs through NVML, worded as the DCGM exporter words them: what the scraper reads at an `nvml:` endpoint.

`nvml:` is every GPU of the machine, `nvml:0,1` those two, by NVML's index (the order of the PCI bus); a UUID, or its beginning, and
the UUID of a MIG instance do as well, as they do in CUDA_VISIBLE_DEVICES. No CUDA context is made. NVML is loaded at the first look,
never on import.

Source: NVML's API reference, and nvidia-ml-py, NVIDIA's own binding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.servers.gpu_metrics import DEVICE_METRICS
from bench.servers.gpus import Gpu, NvmlError, find_gpus, load_nvml

_SCHEME = "nvml:"
_COUNTERS = ("gpu_energy_j",)


def nvml_endpoint(gpus: Sequence[str]) -> str:
    """The endpoint of these GPUs: indices, or UUIDs of GPUs or MIG instances."""
    return _SCHEME + ",".join(gpus)


def nvml_problem(endpoint: str, kind: type[NvmlError] = NvmlError) -> str | None:
    """Why the GPUs of `endpoint` cannot be read on this machine; None where they can, or it is a problem of another kind."""
    try:
        GpuReader(endpoint).read()
    except NvmlError as error:
        return str(error) if isinstance(error, kind) else None
    return None


class GpuReader:
    """The GPUs of one `nvml:` endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._wanted = [part.strip() for part in endpoint.removeprefix(_SCHEME).split(",") if part.strip()]
        self._nvml: Any = None
        self._gpus: list[Gpu] = []

    def read(self) -> bytes:
        """What the GPUs report now, as an exposition. What one does not report is left out, never 0.

        Raises:
            NvmlError: NVML cannot be loaded, there is no such GPU, or one of them reports nothing at all.
        """
        if not self._gpus:
            self._nvml = self._nvml or load_nvml()
            self._gpus = find_gpus(self._nvml, self._wanted)
        looked = [(gpu, _look(self._nvml, gpu)) for gpu in self._gpus]
        lines = []
        for ours, ((name, _), *_) in DEVICE_METRICS.items():
            lines.append(f"# TYPE {name} {'counter' if ours in _COUNTERS else 'gauge'}\n")
            lines += [f"{name}{{{gpu.labels}}} {values[ours]!r}\n" for gpu, values in looked if ours in values]
        return "".join(lines).encode()


def _look(nvml: Any, gpu: Gpu) -> dict[str, float]:
    """By our names, in the units of the exposition."""
    reported: dict[str, float] = {}
    refusal: Exception | None = None
    for look in _LOOKS:
        try:
            reported |= look(nvml, gpu.handle)
        except nvml.NVMLError as error:  # this GPU, driver or instance does not report it
            refusal = error
    if not reported:
        raise NvmlError(f"{gpu.uuid} reports nothing: {refusal}")
    return reported


def _utilisation(nvml: Any, handle: Any) -> dict[str, float]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"gpu_utilisation": rates.gpu, "gpu_memory_utilisation": rates.memory}


def _memory(nvml: Any, handle: Any) -> dict[str, float]:
    """In MiB. The second version separates what the driver reserves, as DCGM and nvidia-smi do; drivers before 510 lack it."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"gpu_memory_bytes": memory.used / 2**20, "gpu_memory_free_bytes": memory.free / 2**20}


_LOOKS: tuple[Callable[[Any, Any], dict[str, float]], ...] = (
    lambda nvml, gpu: {"gpu_energy_j": nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)},  # mJ
    lambda nvml, gpu: {"gpu_power_w": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000},  # of mW
    _utilisation,
    _memory,
    lambda nvml, gpu: {"gpu_sm_clock_hz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)},  # MHz
    lambda nvml, gpu: {"gpu_temperature_c": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)},
)

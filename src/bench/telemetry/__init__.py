"""The server's own account of itself: what it exposes, scraped beside the load; and what the GPUs under it report."""

from bench.telemetry.catalogue import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    MEANS,
    SHARES,
    Catalogue,
    exposition_names,
    find_catalogue,
    of_other_versions,
)
from bench.telemetry.devices import DEVICE_METRICS, DEVICE_NAMES, NO_VALUE, is_nvml
from bench.telemetry.nvml import NvmlError, gpu_uuids, gpus_missing, nvml_endpoint, nvml_problem
from bench.telemetry.series import apart

__all__ = [
    "COUNTERS",
    "DEVICE_METRICS",
    "DEVICE_NAMES",
    "GAUGES",
    "HISTOGRAMS",
    "MEANS",
    "NO_VALUE",
    "SHARES",
    "Catalogue",
    "NvmlError",
    "apart",
    "exposition_names",
    "find_catalogue",
    "gpu_uuids",
    "gpus_missing",
    "is_nvml",
    "nvml_endpoint",
    "nvml_problem",
    "of_other_versions",
]

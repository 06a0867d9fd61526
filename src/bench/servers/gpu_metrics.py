"""What a GPU reports, by the names of NVIDIA's DCGM exporter: from ours to the exposition's, and the factor between the units.

Our own look at NVML (`bench.measure.nvml`) is written under the first name of each, so that both are read by the same code.

Source: the exporter's `etc/default-counters.csv`, up to 4.8; 4.9 renamed its metrics and changed their units (MHz to Hz, mJ to J,
percent to a ratio, MiB to bytes: its release notes, and DCGM 4.7's field identifiers). What NVML reports: its API reference.
"""

from __future__ import annotations

# Ours: (the exposition's name, what its value is multiplied by to become ours).
DEVICE_METRICS = {
    "gpu_utilisation": (("DCGM_FI_DEV_GPU_UTIL", 0.01), ("DCGM_FI_DEV_GPU_UTIL_RATIO", 1.0)),
    "gpu_memory_utilisation": (("DCGM_FI_DEV_MEM_COPY_UTIL", 0.01), ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", 1.0)),
    "gpu_memory_bytes": (("DCGM_FI_DEV_FB_USED", 2.0**20), ("DCGM_FI_DEV_FB_USED_BYTES", 1.0)),
    "gpu_memory_free_bytes": (("DCGM_FI_DEV_FB_FREE", 2.0**20), ("DCGM_FI_DEV_FB_FREE_BYTES", 1.0)),
    "gpu_power_w": (("DCGM_FI_DEV_POWER_USAGE", 1.0), ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1.0)),
    "gpu_energy_j": (("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0.001), ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1.0)),
    "gpu_sm_clock_hz": (("DCGM_FI_DEV_SM_CLOCK", 1e6), ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1.0)),
    "gpu_temperature_c": (("DCGM_FI_DEV_GPU_TEMP", 1.0), ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1.0)),
}
# The exposition's: (ours, the factor). The reference parser ends a counter's name in `_total`, whether the exporter did or not.
DEVICE_NAMES = {
    each: (ours, factor) for ours, names in DEVICE_METRICS.items() for name, factor in names for each in (name, f"{name}_total")
}
# number from which on DCGM means none: DCGM_FP64_BLANK, and DCGM_INT64_BLANK beyond it; source: dcgm_structs.h
NO_VALUE = 2.0**47


def is_nvml(endpoint: str) -> bool:
    """Whether an endpoint means this machine's own GPUs, as NVML reports them, and not an address."""
    return endpoint.startswith("nvml:")

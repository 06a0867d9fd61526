"""Which GPUs a server takes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from bench.study import DeploymentSpec

__all__ = ["gpu_names"]


def gpu_names(spec: DeploymentSpec, environment: Mapping[str, str], *, every: bool = False) -> list[str]:
    """The GPUs that a server of ours takes of this machine, as NVML knows them: indices, or UUIDs where the environment names those.

    vLLM takes the first ones that CUDA_VISIBLE_DEVICES shows, or the machine's first ones. An index is taken as NVML counts, by the PCI
    bus; CUDA counts so too with CUDA_DEVICE_ORDER=PCI_BUS_ID, or where the GPUs are alike.

    Args:
        environment: of the server's process. every: all that CUDA_VISIBLE_DEVICES shows, also those that the server leaves.
    """
    count = (spec.gpus or 0) // spec.deployment.nodes
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return [str(index) for index in range(count)]
    # As in CUDA, what follows an entry that is none is hidden.
    entries = takewhile(lambda entry: entry not in ("", "-1"), (part.strip() for part in shown.split(",")))
    return list(entries)[: None if every else count]

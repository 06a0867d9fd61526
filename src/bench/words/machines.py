"""Machines in words."""

from __future__ import annotations

from collections import Counter

from bench.records.deployment import Hardware

__all__ = ["in_short"]


def in_short(machine: Hardware) -> str:
    """The machine, such as `Xeon, 2 cores, 2 × NVIDIA H100`."""
    gpus = Counter(gpu["name"] for gpu in machine.gpus)
    return ", ".join([machine.cpu, f"{machine.cores} cores", *(f"{count} × {name}" for name, count in gpus.items())])

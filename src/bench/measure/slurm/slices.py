"""Which of a cluster's types of GPU are slices of one (NVIDIA's MIG): devices with a part of its memory, cores and bandwidth."""

from __future__ import annotations

import re

# NVIDIA's profiles are `3g.40gb`, `1g.10gb+me`, `1c.3g.20gb`. SLURM puts one after the GPU's name (AutoDetect=nvml:
# `nvidia_h100_80gb_hbm3_3g.40gb`), and sites write it with other separators.
_PROFILE = re.compile(r"(?<![a-z0-9])(?:\d+c[._-])?\d+g[._-]\d+gb(?![a-z0-9])")
_WORD = re.compile(r"(?<![a-z])mig(?![a-z])")


def profile_of(kind: str) -> str | None:
    """The profile in a type's name, as `3g.40gb`; None for a whole GPU, and for a slice whose name does not say it."""
    found = _PROFILE.search(kind.lower())
    return re.sub(r"[_-]", ".", found[0]) if found else None


def is_slice(kind: str) -> bool:
    """Whether a type's name says that it is a slice."""
    return profile_of(kind) is not None or _WORD.search(kind.lower()) is not None

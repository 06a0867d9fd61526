"""What a SLURM cluster calls the GPUs of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bench.measure.slurm.partitions import Partition
from bench.measure.slurm.slices import is_slice, profile_of


def gpu_types(accelerator: str, known: Sequence[Partition], catalogue: Iterable[str]) -> list[str]:
    """The cluster's types that may be `accelerator`: `nvidia_h100_80gb_hbm3` for h100, but not `h100_nvl`, which is another one.

    A MIG slice is only the accelerator that names its profile, as an entry `h100-3g.40gb` of one's own hardware does.

    Args:
        catalogue: the names of all accelerators.
    """
    names = {name: _words(name) for name in catalogue}
    return [kind for kind in sorted({kind for part in known for kind in part.gpu_types}) if accelerator in _called(kind, names)]


def _called(kind: str, names: dict[str, frozenset[str]]) -> set[str]:
    """The accelerators that a type may be: those with the most words of it, or else, as of `a100`, those that say more."""
    words, profile = _words(kind), profile_of(kind)
    if is_slice(kind):
        names = {name: each for name, each in names.items() if profile is not None and profile_of(name) == profile}
    fitting = {name: len(each) for name, each in names.items() if each <= words}
    if fitting:
        return {name for name, count in fitting.items() if count == max(fitting.values())}
    return {name for name, each in names.items() if words <= each}


def _words(name: str) -> frozenset[str]:
    """Words of a name, in lower case; memory as the catalogue writes it."""
    return frozenset(re.sub(r"(\d)gb$", r"\1g", word) for word in re.split(r"[^a-z0-9]+", name.lower()) if word)

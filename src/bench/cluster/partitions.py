"""The partitions of a SLURM cluster, and why none of them can take a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.cluster.ask import slurm
from bench.cluster.needs import Needs
from bench.cluster.slices import is_slice

_COLUMNS = "%P|%a|%l|%c|%m|%G|%T|%D"
_GPUS = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)")  # `gpu:4`, `gpu:h100:4(S:0-1)`; not `vgpu:2`
_GONE = ("down", "drain", "fail", "maint", "power", "unk")


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Nodes of a partition that are alike.

    Attributes:
        name: of the partition. default: whether a job that names none goes there.
        nodes: how many. up: whether jobs start there, on nodes that are in service. minutes: the longest job, None for no limit.
        cores, memory_mb: of one node. gpus: of one node, whole ones. gpu_types: how many of its GPUs, and of their MIG slices, are of
            each type. state: of the nodes, as SLURM calls it.
    """

    name: str
    default: bool = False
    nodes: int = 1
    up: bool
    minutes: float | None
    cores: int
    memory_mb: int
    gpus: int
    gpu_types: Mapping[str, int] = field(default_factory=dict)
    state: str


def partitions(text: str | None = None) -> list[Partition]:
    """The partitions, from `sinfo`.

    Args:
        text: what `sinfo` printed; it is asked without it.

    Raises:
        BenchError: `sinfo` failed.
    """
    if text is None:
        text = slurm(["sinfo", "--exact", "--noheader", f"--format={_COLUMNS}"])
    return [_partition(line) for line in text.splitlines() if line.count("|") == 7]


def _partition(line: str) -> Partition:
    name, available, limit, cores, memory, gres, state, nodes = line.split("|")
    gpus = [(kind, int(count)) for kind, count in _GPUS.findall(gres)]
    return Partition(
        name=name.removesuffix("*"),
        default=name.endswith("*"),
        nodes=_count(nodes),
        up=available == "up" and not state.lower().startswith(_GONE) and not state.endswith("*"),
        minutes=_minutes(limit),
        cores=_count(cores),
        memory_mb=_count(memory),
        gpus=sum(count for kind, count in gpus if not is_slice(kind)),
        gpu_types={kind: count for kind, count in gpus if kind},
        state=state,
    )


def _count(text: str) -> int:
    """Of rows that are not alike, sinfo prints the least and `+`."""
    return int(text.removesuffix("+"))


def _minutes(limit: str) -> float | None:
    """`1-02:30:00`, `2:00:00`, `30:00` or `infinite`."""
    if limit in ("infinite", "n/a"):
        return None
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes, seconds = [0] * (3 - len(parts)) + parts
    return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def refusal(needs: Needs, known: Sequence[Partition], wanted: str | None = None) -> str | None:
    """Why no partition can ever take a job; None where one can, when its nodes are free.

    Args:
        wanted: the only partitions that may take it, as the profile names them.
    """
    asked = [part for part in known if wanted is None or part.name in wanted.split(",")]
    if not asked:
        return f"there is no partition {wanted}; the cluster has {', '.join(sorted({p.name for p in known})) or 'none'}"
    reasons = [(part, _short(needs, part)) for part in asked]
    able = _nodes_of(part for part, short in reasons if not short)
    if max(able.values(), default=0) >= needs.nodes:
        return None
    if able:
        return "; ".join(f"partition {name}: {needs.nodes} nodes needed, it has {has} such" for name, has in able.items())
    return "; ".join(dict.fromkeys(f"partition {part.name}: {', '.join(short)}" for part, short in reasons))


def partition_for(needs: Needs, known: Sequence[Partition]) -> str | None:
    """The first partition that can take a job which the default one cannot; None where the default one can, or none at all."""
    many = _nodes_of(part for part in known if not _short(needs, part))
    able = [name for name, count in many.items() if count >= needs.nodes]
    if any(part.default for part in known if part.name in able):
        return None
    return next(iter(able), None)


def _nodes_of(parts: Iterable[Partition]) -> dict[str, int]:
    """How many nodes some rows have together, by their partition."""
    count: dict[str, int] = {}
    for part in parts:
        count[part.name] = count.get(part.name, 0) + part.nodes
    return count


def _short(needs: Needs, part: Partition) -> list[str]:
    """What a partition lacks."""
    if not part.up:
        return [f"its nodes are {part.state}"]
    slices = [kind for kind in part.gpu_types if is_slice(kind)]
    if needs.gpus and needs.gpu_type is None and slices:
        # SLURM gives any of them to a job that asks for `gpu`.
        return [
            f"its GPUs may be MIG slices ({', '.join(slices)}): name the type in decision.accelerator, or with gpu_model in the profile"
        ]
    gpus = part.gpus if needs.gpu_type is None else part.gpu_types.get(needs.gpu_type, 0)
    kind = "" if needs.gpu_type is None else f" of type {needs.gpu_type}"
    rows = [
        (needs.cores, part.cores, "{needs} cores needed, a node has {has}"),
        (needs.memory_mb, part.memory_mb, "{needs} MB of memory needed, a node has {has}"),
        (needs.gpus, gpus, f"{{needs}} GPUs{kind} needed, a node has {{has}}"),
        (needs.minutes, part.minutes, "{needs} minutes needed, its time limit is {has:g}"),
    ]
    return [
        text.format(needs=needed, has=has)
        for needed, has, text in rows
        if needed is not None and has is not None and needed > has
    ]

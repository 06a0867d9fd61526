"""The partitions of a SLURM cluster, and why none of them can take a job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.errors import BenchError, shown
from bench.measure.slurm.ask import slurm
from bench.measure.slurm.needs import Needs
from bench.measure.slurm.slices import is_slice

_COLUMNS = "%P|%a|%l|%c|%m|%G|%T|%D"
# `gpu:4`, `gpu:h100:4(S:0-1)`, `gpu:h100:no_consume:4`; not `vgpu:2`
_GPUS = re.compile(r"(?:^|,)gpu(?::(?!no_consume)([^:,()]+))?(?::no_consume)?:(\d+[KMGT]?)")
# States in which no job will start before somebody does something, as `NODE STATE CODES` of sinfo(1) has them. A node that is powered
# down starts with its job, and one that reboots or is planned for another job comes back by itself.
_GONE = ("down", "drain", "drng", "fail", "maint", "unk", "inval", "fut", "err", "not_resp")
_FLAGS = "*~#!%$@^-"  # at a state's end; of these `*` (it does not respond) and `$` (it is under maintenance) keep jobs away
_THOUSANDS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Nodes of a partition that are alike.

    Attributes:
        name: of the partition. default: whether a job that names none goes there.
        nodes: how many; 0 where none is there yet, as of workers that start on demand. up: whether jobs start there, on nodes that are
            in service. minutes: the longest job, None for no limit. cores, memory_mb: of one node. Each of the three is None where
            sinfo does not say it, too.
        gpus: of one node, whole ones. gpu_types: how many of its GPUs, and of their MIG slices, are of each type. state: of the nodes,
            or of a partition that is not up, as SLURM calls it.
    """

    name: str
    default: bool = False
    nodes: int = 1
    up: bool
    minutes: float | None
    cores: int | None
    memory_mb: int | None
    gpus: int
    gpu_types: Mapping[str, int] = field(default_factory=dict)
    state: str


def partitions(text: str | None = None) -> list[Partition]:
    """The partitions.

    Args:
        text: what `sinfo` printed; without it, `sinfo` is asked.

    Raises:
        BenchError: `sinfo` failed, or printed something else.
    """
    if text is None:
        text = slurm(["sinfo", "--exact", "--noheader", f"--format={_COLUMNS}"])
    if not (rows := [line for line in text.splitlines() if line.count("|") == _COLUMNS.count("|")]):
        raise BenchError(
            f"sinfo prints no partition, but {shown(text.strip())}. Ask it by hand: sinfo --exact --noheader --format='{_COLUMNS}'"
        )
    return [_partition(row) for row in rows]


def _partition(line: str) -> Partition:
    name, available, limit, cores, memory, gres, state, nodes = (each.strip() for each in line.split("|"))
    gpus = [(kind, _count(count) or 0) for kind, count in _GPUS.findall(gres)]
    types: dict[str, int] = {}
    for kind, count in gpus:
        if kind:
            types[kind] = types.get(kind, 0) + count  # a type stands once for each socket where its cores differ
    count_of_nodes = _count(nodes)
    return Partition(
        name=name.removesuffix("*"),
        default=name.endswith("*"),
        nodes=1 if count_of_nodes is None else count_of_nodes,
        up=available == "up" and not _gone(state),
        minutes=_minutes(limit),
        cores=_count(cores),
        memory_mb=_count(memory),
        gpus=sum(count for kind, count in gpus if not is_slice(kind)),
        gpu_types=types,
        state=state if available == "up" else available,
    )


def _gone(state: str) -> bool:
    """Whether nodes in a state take no job, such as `idle*`, `drained~` or `IDLE+MAINTENANCE`."""
    word = state.rstrip(_FLAGS)
    return any(part.startswith(_GONE) for part in word.lower().split("+")) or any(flag in state[len(word) :] for flag in "*$")


def _count(text: str) -> int | None:
    """`64`, `1K`, or the least of nodes that are not alike, `64+` or `64-128`; None where it is none, such as `N/A` or `UNLIMITED`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:\+|-[\d.]+[KMGT]?)?", text)
    return int(float(found[1]) * _THOUSANDS[found[2]]) if found else None


def _minutes(limit: str) -> float | None:
    """`1-02:30:00`, `1-02`, `2:00:00`, `30:00` or `30`; None without a limit, or where none is known: `infinite`, `n/a`."""
    days, dash, clock = limit.rpartition("-")
    parts = clock.split(":")
    if len(parts) > 3 or not all(re.fullmatch("[0-9]+", part) for part in (*([days] if dash else []), *parts)):
        return None
    numbers = [int(part) for part in parts]
    if not dash and len(numbers) < 3:  # then minutes come first
        numbers.insert(0, 0)
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def refusal(needs: Needs, known: Sequence[Partition], wanted: str | None = None) -> str | None:
    """Why no partition can ever take a job; None where one can, when its nodes are free.

    Args:
        wanted: the only partitions that may take it, as the profile names them; None for the cluster's default.
    """
    default = wanted is None and any(part.default for part in known)
    asked = [part for part in known if (part.default if default else wanted is None or part.name in wanted.split(","))]
    if any(part.up and not part.nodes for part in asked):
        return None  # what its nodes will have is known when there are some
    if not asked:
        return f"there is no partition {wanted}; the cluster has {', '.join(sorted({p.name for p in known})) or 'none'}"
    reasons = [(part, _short(needs, part)) for part in asked]
    if not all(short for _, short in reasons):
        return None
    return "; ".join(dict.fromkeys(f"partition {part.name}: {', '.join(short)}" for part, short in reasons))


def _short(needs: Needs, part: Partition) -> list[str]:
    if not part.up:
        return [f"its nodes are {part.state}"]
    if not part.nodes:
        return ["it has no node"]
    slices = [kind for kind in part.gpu_types if is_slice(kind)]
    if needs.gpus and needs.gpu_type is None and slices:
        # SLURM gives any of them to a job that asks for `gpu`.
        return [f"its GPUs may be MIG slices ({', '.join(slices)}): name the type with gpu_model in the profile"]
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

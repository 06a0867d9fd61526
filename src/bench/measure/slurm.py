"""What a session asks of a SLURM cluster, and whether the cluster can give it. Definitions: the guide to clusters."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.axes import AXES
from bench.bounds import PATIENCE_S
from bench.errors import BenchError, shown
from bench.runs.launch import Launch
from bench.study.plan import Plan
from bench.workloads.schedule import at_least_s, schedule

# Of the client, the scraper and an engine's libraries beside the model: vLLM's process alone holds 2 to 3 GiB.
_BESIDE_BYTES = 6 * 2**30
_CLIENT_CORES = 2
# A closed loop or a burst ends when its answers do, which nobody knows before. Most take seconds; a session that needs longer
# keeps its finished runs and goes on in its next attempt, which gets more time.
_ANSWERED_S, _DRAIN_S = 120.0, 30.0
_BESIDE_LOAD = 1.5  # a search's time, reference loads and what lies between runs included, ÷ that under load
_SHORTEST_MIN = 30
_SINFO = ("sinfo", "--exact", "--noheader", "--format=%P|%a|%l|%c|%m|%G|%T|%D")
# `gpu:4`, `gpu:h100:4(S:0-1)`, `gpu:h100:no_consume:4`; not `vgpu:2`
_GPUS = re.compile(r"(?:^|,)gpu(?::(?!no_consume)([^:,()]+))?(?::no_consume)?:(\d+)")
# A slice of a GPU (NVIDIA's MIG), as SLURM and sites call it: `nvidia_h100_80gb_hbm3_3g.40gb`, `a100-mig`.
_SLICE = re.compile(r"\d+g[._-]\d+gb(?![a-z0-9])|(?<![a-z])mig(?![a-z])", re.IGNORECASE)
# States in which no job will start before somebody does something, of NODE STATE CODES in sinfo(1); a node that is powered down starts.
_GONE = re.compile(r"(^|\+)(down|drain|drng|fail|maint|unk|inval|fut|err|not_resp)|[*$]", re.IGNORECASE)
_THOUSANDS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a session's job needs.

    Attributes:
        cores: for the servers (one a worker where none is pinned) and for the client. memory_mb: None before the model is known.
        minutes: wall time.
    """

    cores: int
    memory_mb: int | None
    gpus: int
    minutes: int


def session_needs(
    plan: Plan, deployment: str, session: int | None = None, *, launch: Launch | None = None, attempt: int = 1
) -> Needs:
    """What a session of a study needs; without its number, what any session of the deployment does, and no time.

    Memory: on a CPU the weights and the KV cache, twice the weights at the most while they are loaded; on GPUs the weights once, which
    pass through the node's memory; and 6 GiB beside. Time: the server's start and each run, an open loop as long as its schedule, any
    other 120 s, and a search's whole budget; from the second attempt on, a multiple.

    Args:
        launch: with the memory plan; without it, `memory_mb` is None. attempt: 1 for the first.
    """
    spec = plan.deployments[deployment]
    d, seconds = spec.deployment, plan.config.measurement.ready_timeout_s
    if session is not None:
        for run in plan.listed_of(deployment, session):
            moments_s = (
                None if AXES[run.workload.axis].held else at_least_s(schedule(run.workload, run.level, run.schedule_seed))
            )
            seconds += _ANSWERED_S if moments_s is None else moments_s + _DRAIN_S
        seconds += sum(_BESIDE_LOAD * search.settings.seconds for search in plan.searches_of(deployment, session))
    return Needs(
        cores=_CLIENT_CORES + (0 if spec.engine.source == "external" else (d.cores or 1) * d.workers * d.replicas),
        memory_mb=None if launch is None else memory_mb(launch, spec.gpus_started),
        gpus=spec.gpus_started,
        minutes=attempt * max(_SHORTEST_MIN, math.ceil(seconds / 60)),
    )


def memory_mb(launch: Launch, gpus: int) -> int:
    """Memory of a session's job, see `session_needs`. Args: gpus: on which its servers start."""
    plan, needed = launch.plan, float(_BESIDE_BYTES)
    if plan is not None and launch.base_url is None:
        ways = launch.replicas * (launch.tensor_parallel or 1) * (launch.pipeline_parallel or 1) * (launch.data_parallel or 1)
        weights = (plan.weight_bytes or 0) * ways  # known of all that are started here
        needed += weights if gpus else 2 * weights + ways * (plan.kv_cache_bytes or 0)
    return math.ceil(needed / 2**20)


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Nodes of a partition that are alike.

    Attributes:
        name: of the partition. default: whether a job that names none goes there. up: whether jobs start there, on nodes in service.
        minutes: the longest job; None for no limit. cores, memory_mb, gpus: of one node; gpu_types: how many of its GPUs are of each
            type. None where sinfo does not say it, as of nodes that start on demand.
    """

    name: str
    default: bool = False
    up: bool = True
    minutes: float | None = None
    cores: int | None = None
    memory_mb: int | None = None
    gpu_types: Mapping[str, int] | None = None

    def gpus(self, model: str | None) -> int | None:
        """GPUs of a node: those of a type, whole ones of any (None), or slices too (an empty text)."""
        if (types := self.gpu_types) is None:
            return None
        if model is None:
            return sum(count for kind, count in types.items() if not _SLICE.search(kind))
        return types.get(model, 0) if model else sum(types.values())


def partitions(text: str | None = None) -> list[Partition]:
    """The partitions. Args: text: what `sinfo` printed; without it, `sinfo` is asked.

    Raises:
        BenchError: `sinfo` failed, or printed something else.
    """
    text = _asked(*_SINFO) if text is None else text
    if not (rows := [line for line in text.splitlines() if line.count("|") == _SINFO[-1].count("|")]):
        raise BenchError(f"sinfo prints no partition, but {shown(text.strip())}. Ask it by hand: {' '.join(_SINFO)}")
    return list(map(_partition, rows))


def _asked(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", None) or str(error)).strip()[:300]
        raise BenchError(f"{command[0]} does not answer: {why}. Start the workflow on a login node of the cluster.") from None
    return done.stdout


def _partition(line: str) -> Partition:
    name, available, limit, cores, memory, gres, state, nodes = (each.strip() for each in line.split("|"))
    types: dict[str, int] = {}
    for kind, count in _GPUS.findall(gres):  # a type stands once for each socket where its cores differ
        types[kind] = types.get(kind, 0) + int(count)
    there = nodes != "0"
    return Partition(
        name=name.removesuffix("*"),
        default=name.endswith("*"),
        up=available == "up" and not _GONE.search(state),
        minutes=_minutes(limit),
        cores=_count(cores) if there else None,
        memory_mb=_count(memory) if there else None,
        gpu_types=types if there else None,
    )


def _count(text: str) -> int | None:
    """`64`, `1K`, or the least of nodes that are not alike, `64+` or `64-128`; None where it is none, such as `N/A` or `UNLIMITED`."""
    found = re.match(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    return int(float(found[1]) * _THOUSANDS[found[2]]) if found else None


def _minutes(limit: str) -> float | None:
    """`1-02:30:00`, `1-02`, `2:00:00`, `30:00` or `30`; None without a limit, or where none is known: `infinite`, `n/a`."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", limit):
        return None
    days, dash, clock = limit.rpartition("-")
    if not dash and clock.count(":") < 2:  # then minutes come first
        clock = f"0:{clock}"
    hours, minutes, seconds = (*map(int, clock.split(":")), 0, 0)[:3]
    return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def refusal(needs: Needs, known: Sequence[Partition], wanted: str | None = None, gpu_model: str | None = None) -> str | None:
    """Why no partition can ever take a job; None where one can, when its nodes are free.

    Args:
        wanted: the partitions that may take it; None: the default one. gpu_model: the type of its GPUs; None: any whole one. Empty
            texts: any, as nobody knows before which it will be.
    """
    names = [] if wanted == "" else wanted.split(",") if wanted else [part.name for part in known if part.default]
    asked = [part for part in known if not names or part.name in names]
    if not asked:
        return f"there is no partition {wanted}; the cluster has {', '.join(sorted({part.name for part in known}))}"
    reasons = [(part, _short(needs, part, gpu_model)) for part in asked]
    if not all(short for _, short in reasons):
        return None
    return "; ".join(dict.fromkeys(f"partition {part.name}: {', '.join(short)}" for part, short in reasons))


def _short(needs: Needs, part: Partition, gpu_model: str | None) -> list[str]:
    if not part.up:
        return ["it is not up"]
    kind = f" of type {gpu_model}" if gpu_model else ""
    rows = [
        (needs.cores, part.cores, "{needs} cores needed, a node has {has}"),
        (needs.memory_mb, part.memory_mb, "{needs} MB of memory needed, a node has {has}"),
        (needs.gpus, part.gpus(gpu_model), f"{{needs}} GPUs{kind} needed, a node has {{has}}"),
        (needs.minutes, part.minutes, "{needs} minutes needed, its time limit is {has:g}"),
    ]
    return [text.format(needs=needed, has=has) for needed, has, text in rows if None not in (needed, has) and needed > has]  # type: ignore[operator] # of numbers


def refuse_untaken(plan: Plan, sessions: Sequence[tuple[str, int]], *, gpu_model: str | None, partition: str | None) -> None:
    """Refuse jobs that would stay pending for ever.

    Args:
        gpu_model, partition: what the profile gives every session; empty where that differs.

    Raises:
        BenchError: no partition can take one of `sessions`, or `sinfo` failed.
    """
    known, refused = partitions(), dict[str, None]()
    for deployment, session in sessions:
        if reason := refusal(session_needs(plan, deployment, session), known, partition, gpu_model):
            refused[f"{deployment}: {reason}"] = None
    if refused:
        raise BenchError(
            "no partition can take these sessions; each is one job. Name another partition in the profile, or change what the "
            "deployment asks for.\n" + "\n".join(refused)
        )


def refuse_wrong_profile(status_command: str | None) -> None:
    """Refuse a profile that asks for the state of jobs where this cluster does not answer: its workflow would wait for ever.

    Args:
        status_command: what the profile asks, `sacct` or `squeue`.

    Raises:
        BenchError: it names the profile that this cluster takes.
    """
    try:
        kind = re.search(r"^AccountingStorageType\s*=\s*(\S+)", _asked("scontrol", "show", "config"), re.MULTILINE)
        _asked("sacct", "--allusers", "--noheader", "--format=JobID")
        accounts = kind is not None and not kind[1].endswith(("/none", "(null)"))
    except BenchError:
        accounts = False
    if accounts != (status_command == "sacct"):
        has, name = ("has", "slurm") if accounts else ("has no", "slurm-no-accounting")
        raise BenchError(f"this cluster {has} job accounting: start with --profile profiles/{name}.")

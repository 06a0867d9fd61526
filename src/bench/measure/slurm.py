"""What a session asks of a SLURM cluster, and whether the cluster can give it. Definitions: the guide to clusters."""

from __future__ import annotations

import getpass
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.axes import AXES
from bench.errors import BenchError, shown
from bench.runs.launch import Launch
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.specs import RunSpec
from bench.workloads.schedule import at_least_s, schedule

_PATIENCE_S = 60  # for an answer of SLURM's programs (s); convention
# Of the client, the scraper and an engine's libraries beside the model: vLLM's process alone holds 2 to 3 GiB.
_BESIDE_BYTES = 6 * 2**30
_CLIENT_CORES = 2
# A closed loop or a burst ends when its answers do, which nobody knows before. Most take seconds; a session that needs longer
# keeps its finished runs and goes on in its next attempt, which gets more time.
_ANSWERED_S, _DRAIN_S = 120.0, 30.0
_BESIDE_LOAD = 1.5  # a search's time, reference loads and what lies between runs included, ÷ that under load
_SHORTEST_MIN = 30
_COLUMNS = "%P|%a|%l|%c|%m|%G|%T|%D"
# `gpu:4`, `gpu:h100:4(S:0-1)`, `gpu:h100:no_consume:4`; not `vgpu:2`
_GPUS = re.compile(r"(?:^|,)gpu(?::(?!no_consume)([^:,()]+))?(?::no_consume)?:(\d+[KMGT]?)")
# A slice of a GPU (NVIDIA's MIG), as SLURM and sites call it: `nvidia_h100_80gb_hbm3_3g.40gb`, `a100-mig`.
_SLICE = re.compile(r"\d+g[._-]\d+gb(?![a-z0-9])|(?<![a-z])mig(?![a-z])", re.IGNORECASE)
# States in which no job will start before somebody does something, as `NODE STATE CODES` of sinfo(1) has them. A node that is powered
# down starts with its job, and one that reboots or is planned for another job comes back by itself.
_GONE = ("down", "drain", "drng", "fail", "maint", "unk", "inval", "fut", "err", "not_resp")
_FLAGS = "*~#!%$@^-"  # at a state's end; of these `*` (it does not respond) and `$` (it is under maintenance) keep jobs away
_THOUSANDS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MEASURE = "rule_measure_wildcards_"  # what the executor plugin writes into a job's comment
_AS_CANCELLED = """
import subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
sys.stdout.buffer.write(done.stdout.replace(b"PREEMPTED", b"CANCELLED"))
sys.exit(done.returncode)
"""


def slurm(*command: str) -> str:
    """What one of SLURM's programs prints; BenchError where it is not there, failed, or did not end."""
    program = command[0]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=_PATIENCE_S)
    except FileNotFoundError:
        why = "is not on PATH"
    except subprocess.TimeoutExpired:
        why = f"did not answer within {_PATIENCE_S} s"
    except OSError as error:
        why = f"cannot be run: {error.strerror or error}"
    else:
        if not done.returncode:
            return done.stdout
        why = f"failed: {(done.stderr or done.stdout).strip()[:300] or f'status {done.returncode}'}"
    raise BenchError(f"{program} {why}. Start the workflow on a login node of the cluster.")


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

    Args:
        launch, attempt: as of `needs_of`.
    """
    runs = [] if session is None else plan.listed_of(deployment, session)
    searches = [] if session is None else plan.searches_of(deployment, session)
    # A search may take its whole budget, whose seconds are those under load.
    start_s = plan.config.measurement.ready_timeout_s + sum(_BESIDE_LOAD * search.settings.seconds for search in searches)
    return needs_of(plan.deployments[deployment], runs, launch, start_s=start_s, attempt=attempt)


def needs_of(
    spec: DeploymentSpec, runs: Sequence[RunSpec], launch: Launch | None = None, *, start_s: float = 0.0, attempt: int = 1
) -> Needs:
    """What a session of `runs` needs.

    Memory: on a CPU the weights and the KV cache, twice the weights at the most while they are loaded; on GPUs the weights once, which
    pass through the node's memory; and 6 GiB beside. Time: the server's start and each run, an open loop as long as its schedule, any
    other 120 s; from the second attempt on, a multiple.

    Args:
        launch: with the memory plan; without it, `memory_mb` is None. start_s: that the server's start may take. attempt: 1 for the
            first.
    """
    d = spec.deployment
    seconds = start_s + sum(_length_s(run) for run in runs)
    return Needs(
        cores=_CLIENT_CORES + (0 if spec.engine.source == "external" else (d.cores or 1) * d.workers * d.replicas),
        memory_mb=None if launch is None else math.ceil(_memory_bytes(launch, spec.gpus_started) / 2**20),
        gpus=spec.gpus_started,
        minutes=attempt * max(_SHORTEST_MIN, math.ceil(seconds / 60)),
    )


def _length_s(run: RunSpec) -> float:
    if AXES[run.workload.axis].held:
        return _ANSWERED_S
    return at_least_s(schedule(run.workload, run.level, run.schedule_seed)) + _DRAIN_S


def _memory_bytes(launch: Launch, gpus: int) -> int:
    plan = launch.plan
    if plan is None or launch.base_url is not None:
        return _BESIDE_BYTES
    ways = launch.replicas * (launch.tensor_parallel or 1) * (launch.pipeline_parallel or 1) * (launch.data_parallel or 1)
    weights = (plan.weight_bytes or 0) * ways  # known of all that are started here
    return _BESIDE_BYTES + (weights if gpus else 2 * weights + ways * (plan.kv_cache_bytes or 0))


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
    """The partitions. Args: text: what `sinfo` printed; without it, `sinfo` is asked.

    Raises:
        BenchError: `sinfo` failed, or printed something else.
    """
    text = slurm("sinfo", "--exact", "--noheader", f"--format={_COLUMNS}") if text is None else text
    if not (rows := [line for line in text.splitlines() if line.count("|") == _COLUMNS.count("|")]):
        raise BenchError(
            f"sinfo prints no partition, but {shown(text.strip())}. Ask it by hand: sinfo --exact --noheader --format='{_COLUMNS}'"
        )
    return list(map(_partition, rows))


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
        gpus=sum(count for kind, count in gpus if not _SLICE.search(kind)),
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
    if any(part.up and not part.nodes for part in asked):
        return None  # what its nodes will have is known when there are some
    reasons = [(part, _short(needs, part, gpu_model)) for part in asked]
    if all(short for _, short in reasons):
        able = {part.name for part in known if part.nodes and not _short(needs, part, gpu_model)}
        others = f"; {' and '.join(sorted(able))} can: give slurm_partition" if able and not wanted else ""
        return "; ".join(dict.fromkeys(f"partition {part.name}: {', '.join(short)}" for part, short in reasons)) + others
    types = sorted({kind for part, short in reasons for kind, count in part.gpu_types.items() if count and not short})
    if needs.gpus and gpu_model is None and len(types) > 1:  # SLURM gives any of them to a job that asks for `gpu`
        return f"it has GPUs of several types, {', '.join(types)}: choose the session's with gpu_model"
    return None


def _short(needs: Needs, part: Partition, gpu_model: str | None) -> list[str]:
    if not part.up:
        return [f"its nodes are {part.state}"]
    if not part.nodes:
        return ["it has no node"]
    kind, gpus = f" of type {gpu_model}" if gpu_model else "", part.gpu_types.get(gpu_model or "", 0)
    if not gpu_model:
        gpus = part.gpus if gpu_model is None else max(part.gpus, *part.gpu_types.values(), 0)
    rows = [
        (needs.cores, part.cores, "{needs} cores needed, a node has {has}"),
        (needs.memory_mb, part.memory_mb, "{needs} MB of memory needed, a node has {has}"),
        (needs.gpus, gpus, f"{{needs}} GPUs{kind} needed, a node has {{has}}"),
        (needs.minutes, part.minutes, "{needs} minutes needed, its time limit is {has:g}"),
    ]
    return [text.format(needs=needed, has=has) for needed, has, text in rows if None not in (needed, has) and needed > has]  # type: ignore[operator] # of numbers


def refuse_untaken(
    plan: Plan, sessions: Sequence[tuple[str, int]], folder: Path, *, gpu_model: str | None, partition: str | None
) -> None:
    """Refuse jobs that would stay pending for ever, or measure what a job of an earlier workflow in `folder`, which was killed, does.

    Args:
        gpu_model, partition: what the profile gives every session; empty where that differs.

    Raises:
        BenchError: no partition can take one of `sessions`; a job still measures one; or SLURM's programs failed.
    """
    names = {f"{deployment}_{session}" for deployment, session in sessions}
    if twice := {job: name for job, name in left_jobs(folder).items() if name in names}:
        raise BenchError(
            f"jobs of an earlier workflow still run or wait here: {', '.join(map(' '.join, twice.items()))}. "
            f"Wait for them, or end them: scancel {' '.join(twice)}"
        )
    known, refused = partitions(), dict[str, None]()
    for deployment, session in sessions:
        if reason := refusal(session_needs(plan, deployment, session), known, partition, gpu_model):
            refused[f"{deployment}: {reason}"] = None
    if refused:
        raise BenchError(
            "no partition can take these sessions; each is one job. Name another partition in the profile, or change what the "
            "deployment asks for.\n" + "\n".join(refused)
        )


def left_jobs(folder: Path, text: str | None = None) -> dict[str, str]:
    """This user's jobs of an earlier workflow in `folder` that wait or run: the session of each, as `deployment_number`, by its id.

    Args:
        text: what `squeue` printed; without it, `squeue` is asked. Raises BenchError where that failed.
    """
    if text is None:
        states = "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED"
        text = slurm("squeue", f"--user={getpass.getuser()}", states, "--noheader", "--format=%i|%k|%Z")
    jobs = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    return {
        job: rule.removeprefix(_MEASURE) for job, rule, place in jobs if rule.startswith(_MEASURE) and Path(place) == folder
    }


def has_accounting() -> bool:
    """Whether the cluster keeps accounts, so that `sacct` answers. Else who asks it waits for ever."""
    try:
        told = slurm("scontrol", "show", "config")
        slurm("sacct", "--allusers", "--noheader", "--format=JobID")
    except BenchError:
        return False
    kind = re.search(r"^AccountingStorageType\s*=\s*(\S+)", told, re.MULTILINE)
    return kind is not None and not kind[1].endswith("/none") and kind[1] != "(null)"


def refuse_wrong_profile(status_command: str | None) -> None:
    """Refuse a profile that asks for the state of jobs where this cluster does not answer.

    Args:
        status_command: what the profile asks, `sacct` or `squeue`.

    Raises:
        BenchError: it names the profile that this cluster takes.
    """
    accounts = has_accounting()
    if accounts != (status_command == "sacct"):
        has, name = ("has", "slurm") if accounts else ("has no", "slurm-no-accounting")
        raise BenchError(f"this cluster {has} job accounting: start with --profile profiles/{name}.")


def put_programs(folder: Path) -> None:
    """Put programs of SLURM into `folder`, and it at the head of PATH, where the executor plugin and the jobs find them first.

    `sacct` and `squeue` call preempted jobs cancelled: the plugin waits for a preempted job until SLURM starts it again, and where
    SLURM ends such jobs it would wait for ever. `srun` sets SLURM_CONF, where that alone says which cluster it is: jobs call it
    without any variable of SLURM's.
    """
    own = str(folder.absolute())
    path = os.pathsep.join(part for part in os.environ.get("PATH", "").split(os.pathsep) if part != own)
    heads = {name: shlex.join([sys.executable, "-S", "-c", _AS_CANCELLED]) for name in ("sacct", "squeue")}
    if configuration := os.environ.get("SLURM_CONF"):
        heads["srun"] = f"env {shlex.quote(f'SLURM_CONF={configuration}')}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, head in heads.items():
        if command := shutil.which(name, path=path):
            (folder / name).write_text(f'#!/bin/sh\nexec {head} {shlex.quote(command)} "$@"\n', encoding="utf-8")
            (folder / name).chmod(0o755)
    os.environ["PATH"] = f"{own}{os.pathsep}{path}"

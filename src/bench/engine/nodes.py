"""The nodes of a SLURM job on which a server or its replicas run, and how processes on the other ones are started."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from bench.errors import BenchError

# Of the step in which a session runs; a further step that inherited them would ask for what they say.
_OF_STEP = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PMI_", "PMIX_")
_KEPT = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME")


@dataclass(frozen=True)
class Nodes:
    """Where a server or its replicas run.

    Attributes:
        names: of the nodes by rank, as SLURM calls them; the first is this machine. addresses: at which the others reach each.
    """

    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def outside_slurm(count: int) -> str | None:
    """Why a deployment cannot have `count` nodes here; None where it can."""
    if count == 1 or "SLURM_JOB_ID" in os.environ:
        return None
    return (
        f"nodes: what has {count} nodes is started inside a SLURM job, and this workflow runs outside one. Start it on the cluster "
        "with `--profile profiles/slurm`, or start the server yourself and measure it with `source: external`"
    )


def allocated_nodes(count: int) -> Nodes:
    """The nodes of this SLURM job, this one first.

    Raises:
        BenchError: there is no job, it has another number of nodes, or SLURM does not answer.
    """
    if problem := outside_slurm(count):
        raise BenchError(f"{problem}.")
    here = os.environ.get("SLURMD_NODENAME", "")
    # The variables name the nodes of the step in which the session runs: one.
    listed = _field("NodeList", _scontrol("show", "job", os.environ["SLURM_JOB_ID"], "--oneliner"))
    names = _scontrol("show", "hostnames", listed).split()
    if here not in names:
        raise BenchError(
            f"nodes is {count}, and this machine is not among the job's, {', '.join(names)}. Run the session on one of them, with srun."
        )
    if len(names) != count:
        raise BenchError(
            f"nodes is {count}, and SLURM gave this job {', '.join(names) or 'no node'}. Do not set nodes or tasks in the profile."
        )
    ranked = (here, *(name for name in names if name != here))
    shown = _scontrol("show", "node", ",".join(ranked), "--oneliner").splitlines()
    addresses = {_field("NodeName", line): _field("NodeAddr", line) for line in shown}
    return Nodes(ranked, tuple(addresses.get(name) or name for name in ranked))


def _field(name: str, shown: str) -> str:
    """A field of what scontrol shows; empty where it is not there."""
    found = re.search(rf"(?:^|\s){name}=(\S+)", shown)
    return found[1] if found else ""


def _scontrol(*words: str) -> str:
    try:
        done = subprocess.run(["scontrol", *words], capture_output=True, encoding="utf-8", errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"scontrol failed: {error}. It has to work on the compute nodes.") from None
    if done.returncode:
        raise BenchError(f"scontrol {' '.join(words)} failed: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout


def on_node(name: str) -> list[str]:
    """What goes before a command to run it on another node of this job. It reads what is written to srun, and ends with it.

    The step shares the node with the job's others, and has all of the job's GPUs, cores and memory there.
    """
    return ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={name}", "--cpu-bind=none", "--mem=0", "--quiet"]


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which `srun` is started: those of the session's own step are left out."""
    return {name: value for name, value in environment.items() if name in _KEPT or not name.startswith(_OF_STEP)}

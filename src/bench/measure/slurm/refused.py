"""Why a study's sessions are not submitted, before one is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError
from bench.measure.slurm.gpu_types import gpu_types
from bench.measure.slurm.needs import session_needs
from bench.measure.slurm.partitions import Partition, refusal
from bench.measure.slurm.status import left_jobs
from bench.models.accelerators import accelerators
from bench.study.plan import Plan


def types_of(plan: Plan, deployment: str, known: Sequence[Partition]) -> list[str]:
    """The cluster's types of GPU that may be the one that the study names; none where it names none."""
    name = plan.config.decision.accelerator
    if name is None or not plan.started[deployment].gpus_started:
        return []
    return gpu_types(name, known, accelerators(plan.config.hardware))


def type_of(plan: Plan, deployment: str, known: Sequence[Partition]) -> str | None:
    """The type of GPU of a session's job, where it is clear."""
    types = types_of(plan, deployment, known)
    return types[0] if len(types) == 1 else None


def refuse_untaken(
    plan: Plan,
    sessions: Sequence[tuple[str, int]],
    known: Sequence[Partition],
    *,
    gpu_model: str | None,
    partition: str | None,
) -> None:
    """Refuse jobs that would stay pending for ever.

    Args:
        gpu_model, partition: what the profile gives every session.

    Raises:
        BenchError: no partition can take one of `sessions`.
    """
    refused = []
    for deployment, session in sessions:
        kind = gpu_model or type_of(plan, deployment, known)
        asked = session_needs(plan, deployment, session, gpu_type=kind)
        if reason := refusal(asked, known, partition) or _unclear(plan, deployment, known, kind):
            refused.append(f"{deployment}: {reason}")
    if refused:
        raise BenchError(
            "no partition can take these sessions; each is one job. Name another partition "
            "in the profile, or change what the deployment asks for.\n" + "\n".join(dict.fromkeys(refused))
        )


def _unclear(plan: Plan, deployment: str, known: Sequence[Partition], kind: str | None) -> str | None:
    """Why it is not known which of the cluster's GPUs the study means."""
    there = sorted({each for part in known for each in part.gpu_types})
    name = plan.config.decision.accelerator
    if kind or name is None or not there or not plan.started[deployment].gpus_started:
        return None
    types = types_of(plan, deployment, known)
    meant = " and ".join(types) + " could be meant" if types else "none is that (a MIG slice is not the GPU)"
    return (
        f"decision.accelerator is {name}, and the cluster's types of GPU are {', '.join(there)}, of which {meant}; "
        "give the session one with gpu_model"
    )


def refuse_to_measure_twice(sessions: Sequence[tuple[str, int]], folder: Path) -> None:
    """Refuse to start where jobs of an earlier workflow in `folder`, which was killed, still measure one of `sessions`.

    Raises:
        BenchError: one does, or `squeue` failed.
    """
    names = {f"{deployment}_{session}" for deployment, session in sessions}
    if twice := {job: name for job, name in left_jobs(folder).items() if name in names}:
        raise BenchError(
            f"jobs of an earlier workflow still run or wait here: {', '.join(map(' '.join, twice.items()))}. "
            f"Wait for them, or end them: scancel {' '.join(twice)}"
        )

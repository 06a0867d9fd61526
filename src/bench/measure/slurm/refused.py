"""Why a study's sessions are not submitted, before one is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError
from bench.measure.slurm.needs import session_needs
from bench.measure.slurm.partitions import Partition, refusal
from bench.measure.slurm.status import left_jobs
from bench.study.plan import Plan

_BY_SESSION = "wildcards"  # stands in what a profile gives each session by an expression of its own


def refuse_untaken(
    plan: Plan,
    sessions: Sequence[tuple[str, int]],
    known: Sequence[Partition],
    *,
    gpu_model: str | None,
    partition: str | None,
) -> None:
    """Refuse jobs that would stay pending for ever, or get whichever GPU is free.

    Args:
        gpu_model, partition: what the profile gives the sessions.

    Raises:
        BenchError: the partition cannot take one of `sessions`, or the cluster has GPUs of several types.
    """
    if partition and _BY_SESSION in partition:
        partition = ",".join(part.name for part in known)
    refused = []
    for deployment, session in sessions:
        kind = None if gpu_model and _BY_SESSION in gpu_model else gpu_model
        asked = session_needs(plan, deployment, session, gpu_type=kind)
        types = sorted({each for part in known for each in part.gpu_types})
        if reason := refusal(asked, known, partition):
            refused.append(f"{deployment}: {reason}")
        elif asked.gpus and not gpu_model and len(types) > 1:
            refused.append(f"{deployment}: the cluster has GPUs of the types {', '.join(types)}; name one, as gpu_model")
    if refused:
        raise BenchError(
            "no partition can take these sessions; each is one job. Name another partition "
            "in the profile, or change what the deployment asks for.\n" + "\n".join(dict.fromkeys(refused))
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

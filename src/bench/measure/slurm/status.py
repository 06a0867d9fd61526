"""What SLURM knows of jobs: whether it keeps accounts of them, and which of an earlier workflow still run."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from bench.errors import BenchError
from bench.measure.slurm.ask import slurm

_AS_CANCELLED = """
import subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
sys.stdout.buffer.write(done.stdout.replace(b"PREEMPTED", b"CANCELLED"))
sys.exit(done.returncode)
"""
_MEASURE = "rule_measure_wildcards_"  # what the executor plugin writes into a job's comment


def has_accounting() -> bool:
    """Whether the cluster keeps accounts, so that `sacct` answers.

    Where it keeps none, `sacct` is installed all the same, answers nothing, and who asks it waits for ever.
    """
    try:
        shown = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, encoding="utf-8", errors="replace", timeout=60
        ).stdout
        kind = next(
            (line.partition("=")[2].strip() for line in shown.splitlines() if line.startswith("AccountingStorageType")), ""
        )
        if not kind or kind.endswith("/none") or kind == "(null)":
            return False
        return (
            subprocess.run(["sacct", "--allusers", "--noheader", "--format=JobID"], capture_output=True, timeout=60).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def refuse_wrong_profile(status_command: str | None) -> None:
    """Refuse a profile that asks for the state of jobs where this cluster does not answer.

    Args:
        status_command: what the profile asks, `sacct` or `squeue`.

    Raises:
        BenchError: it names the profile that this cluster takes.
    """
    accounts = has_accounting()
    if accounts != (status_command == "sacct"):
        keeps, name = ("keeps accounts", "slurm") if accounts else ("keeps no accounts", "slurm-no-accounting")
        raise BenchError(f"this cluster {keeps} of its jobs: start with --profile profiles/{name}.")


def left_jobs(folder: Path, text: str | None = None) -> dict[str, str]:
    """This user's jobs of an earlier workflow in `folder` that wait or run: the session of each, as `deployment_number`, by its id.

    Args:
        text: what `squeue` printed; without it, `squeue` is asked.

    Raises:
        BenchError: `squeue` failed.
    """
    if text is None:
        asked = [
            "squeue",
            f"--user={getpass.getuser()}",
            "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED",
            "--noheader",
            "--format=%i|%k|%Z",
        ]
        text = slurm(asked)
    jobs = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    return {
        job: rule.removeprefix(_MEASURE) for job, rule, place in jobs if rule.startswith(_MEASURE) and Path(place) == folder
    }


def show_preempted_as_cancelled(folder: Path) -> None:
    """Put `sacct` and `squeue` into `folder`, and it at the head of PATH: as SLURM's, but for the state of preempted jobs.

    The executor plugin waits for a preempted job until SLURM starts it again. Where SLURM ends such jobs, it would wait for ever.
    """
    path = [part for part in os.environ.get("PATH", "").split(os.pathsep) if part != str(folder.absolute())]
    for name in ("sacct", "squeue"):
        if command := shutil.which(name, path=os.pathsep.join(path)):
            folder.mkdir(parents=True, exist_ok=True)
            words = [sys.executable, "-S", "-c", _AS_CANCELLED, command]
            (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
            (folder / name).chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([str(folder.absolute()), *path])

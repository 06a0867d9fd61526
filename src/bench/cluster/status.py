"""What SLURM knows of jobs: whether it keeps accounts of them, and which of an earlier workflow still run."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path

from bench.cluster.ask import slurm

__all__ = ["has_accounting", "left_jobs"]


def has_accounting() -> bool:
    """Whether the cluster keeps accounts, so that `sacct` answers.

    Where it keeps none, `sacct` is installed all the same, answers nothing, and who asks it waits for ever.
    """
    try:
        shown = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, timeout=60).stdout
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


def left_jobs(folder: Path, text: str | None = None) -> dict[str, str]:
    """This user's jobs of an earlier workflow in `folder` that wait or run: the rule of each by its id.

    Args:
        text: what `squeue` printed; it is asked without it.

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
    return {job: rule.removeprefix("rule_") for job, rule, place in jobs if rule.startswith("rule_") and Path(place) == folder}

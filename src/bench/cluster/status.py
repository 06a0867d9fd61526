"""How the state of a SLURM job can be asked."""

from __future__ import annotations

import subprocess

__all__ = ["has_accounting"]


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

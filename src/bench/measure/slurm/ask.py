"""SLURM's programs, asked."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from bench.errors import BenchError

_PATIENCE_S = 60


def slurm(command: Sequence[str]) -> str:
    """What one of SLURM's programs prints.

    Raises:
        BenchError: it is not there, failed, or did not end within 60 s.
    """
    program = command[0]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=_PATIENCE_S)
    except FileNotFoundError:
        raise BenchError(f"{program} is not on PATH. Start the workflow on a login node of the cluster.") from None
    except subprocess.TimeoutExpired:
        raise BenchError(
            f"{program} did not answer within {_PATIENCE_S} s. Ask `{program}` by hand, and start again."
        ) from None
    except OSError as error:
        raise BenchError(f"{program} cannot be run: {error.strerror or error}.") from None
    if done.returncode:
        reason = (done.stderr or done.stdout).strip()[:300] or f"status {done.returncode}"
        raise BenchError(f"{program} failed: {reason}. Start the workflow on a login node of the cluster.")
    return done.stdout

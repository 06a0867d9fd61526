"""What a command costs: run in a process that holds nothing else, so that no parent's memory is taken for the command's."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cost", "cost_of"]


@dataclass(frozen=True)
class Cost:
    """What a command took.

    Attributes:
        wall_s, cpu_s: of all its processes, user and system. peak_mib: resident memory of its largest process (MiB).
        said: its standard output.
    """

    wall_s: float
    cpu_s: float
    peak_mib: float
    said: str


def cost_of(command: list[str], *, cwd: Path) -> Cost:
    """Run `command` in `cwd` and wait for its end.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    # -I -S: no site-packages and nothing of the caller's, a process of 9 MiB.
    done = subprocess.run([sys.executable, "-I", "-S", __file__, str(cwd), *command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    *said, figures = done.stdout.splitlines()
    return Cost(**json.loads(figures), said="\n".join(said))


def _main(cwd: str, *command: str) -> int:
    begin = time.monotonic()
    status = subprocess.run(command, cwd=cwd).returncode
    wall_s = time.monotonic() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {"wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}
    sys.stdout.flush()
    os.write(1, f"{json.dumps(figures)}\n".encode())
    return status


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))

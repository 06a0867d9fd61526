"""What the workflow and a session agree on, so that neither outlives the other. Nothing of the session is imported here."""

import os
import signal
from pathlib import Path
from types import FrameType

import psutil

__all__ = ["WORKFLOW_PID", "announce_workflow", "end_sessions_on_sigterm"]

# Environment variable with the process id of the workflow: a session ends when that process does.
WORKFLOW_PID = "SATURATE_WORKFLOW_PID"


def announce_workflow(library: Path) -> None:
    """Tell every job of this process which library it uses, and whose end ends it (a SIGKILL reaches no job)."""
    os.environ[WORKFLOW_PID] = str(os.getpid())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))


def end_sessions_on_sigterm() -> None:
    """Pass SIGTERM on to the sessions of this workflow.

    Snakemake itself lets running jobs finish, and a session may have hours to go; told to, it ends in order and keeps its runs.
    """
    finish = signal.getsignal(signal.SIGTERM)

    def end(number: int, frame: FrameType | None) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                # Snakemake runs a script as `python .snakemake/scripts/tmp….measure.py`.
                command = process.cmdline()
                if len(command) == 2 and command[1].endswith(".measure.py"):
                    process.terminate()
            except psutil.Error:
                continue
        if callable(finish):
            finish(number, frame)

    signal.signal(signal.SIGTERM, end)

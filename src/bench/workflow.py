"""What the workflow's process and its jobs agree on, so that neither outlives the other. It knows nothing of Snakemake but where
its scripts lie.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import indent
from types import FrameType
from typing import TextIO

import psutil

from bench.errors import BenchError, disk_error
from bench.terminal import print_anything

_INDENT = " " * 8  # as wide as the time before the workflow's own lines
_WORKFLOW_PID = "SATURATE_WORKFLOW_PID"


def announce_workflow(library: Path) -> None:
    """Tell every job of this process which library it uses, and whose end ends it (a SIGKILL reaches no job). It prints any text.

    Args:
        library: the folder that holds it, for jobs in environments without it. Where there is none, it is installed.
    """
    print_anything()
    os.environ[_WORKFLOW_PID] = str(os.getpid())
    if library.is_dir():
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))


def end_jobs_on_sigterm() -> None:
    """Pass SIGTERM on to the jobs of this workflow.

    Snakemake itself lets running jobs finish, and a session may have hours to go; asked to, it ends in order and keeps its runs.
    """
    finish = signal.getsignal(signal.SIGTERM)

    def end(number: int, frame: FrameType | None) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                command = process.cmdline()  # `python .snakemake/scripts/tmp….NAME.py`
                if len(command) == 2 and Path(command[1]).parent.match(".snakemake/scripts"):
                    process.terminate()
            except psutil.Error:
                continue
        if callable(finish):
            finish(number, frame)

    signal.signal(signal.SIGTERM, end)


@contextmanager
def job(log: str | Path) -> Iterator[Callable[[str], None]]:
    """A job of the workflow: its lines go to standard error, indented below the workflow's own, and with the time to `log`.

    A BenchError, or a disk that takes no file, ends the process with status 1 and its message alone; any other error keeps its
    traceback, in the log too. SIGTERM, Ctrl-C and the end of the workflow end it in order: what it holds open is closed as after an
    error. A line that cannot be written is lost, and ends nothing.
    """
    print_anything()
    with _opened(Path(log)) as file:

        def say(text: str) -> None:
            _print(indent(text, _INDENT), sys.stderr)
            _print(f"{time.strftime('%FT%TZ', time.gmtime())} {text}", file)

        def end(number: int, _frame: FrameType | None) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough; the clean-up must not be interrupted
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            say(f"ending on {signal.Signals(number).name}; what is finished is kept")
            raise SystemExit(128 + number)

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        if pid := os.environ.get(_WORKFLOW_PID):
            threading.Thread(target=_watch, args=(int(pid),), daemon=True).start()
        try:
            yield say
        except BenchError as error:
            say(str(error))
            sys.exit(1)
        except Exception as error:
            if message := disk_error(error):
                say(message)
                sys.exit(1)
            _print(traceback.format_exc(), file)
            raise


@contextmanager
def _opened(log: Path) -> Iterator[TextIO]:
    """The log; where the disk takes none, what goes nowhere."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = log.open("w", encoding="utf-8")
    except OSError:
        file = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - closed below
    try:
        yield file
    finally:
        with suppress(OSError):  # a full disk refuses the rest at the end, too
            file.close()


def _print(text: str, file: TextIO) -> None:
    with suppress(OSError, RuntimeError):  # a signal's line may come in the midst of another one
        print(text, file=file, flush=True)


def _watch(pid: int) -> None:
    """End this process, as SIGTERM would, when the process `pid` is gone."""
    try:
        workflow = psutil.Process(pid)
        while workflow.is_running() and workflow.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.5)
    except psutil.NoSuchProcess:
        pass
    os.kill(os.getpid(), signal.SIGTERM)

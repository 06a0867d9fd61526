"""What the workflow's process and its jobs agree on: which code decides a job's result, and that neither outlives the other. It knows
nothing of Snakemake but where its scripts lie.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from types import FrameType
from typing import TextIO

import psutil

from bench.errors import BenchError, disk_error
from bench.shipped import ROOT
from bench.terminal import cleared, print_anything

_INDENT = " " * 8  # as wide as the time before the workflow's own lines
_WORKFLOW_PID = "SATURATE_WORKFLOW_PID"
_PACKAGE = Path(__file__).parent
# `from bench.a import b, c` on one line or in parentheses, and `import bench.a`; also those inside functions.
_IMPORT = re.compile(
    rf"^\s*(?:from ({_PACKAGE.name}[\w.]*) import (\([^)]*\)|.*)|import ({_PACKAGE.name}[\w.]*))", re.MULTILINE
)
_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:(?:    .*)?\n)+", re.MULTILINE)  # what is imported there, runs nowhere


@cache
def code_of(script: str, *modules: str, shows: bool = True) -> str:
    """Digest of all code of this library that a script reaches by its imports: a change in any of it runs the script's jobs again.

    Data files count that lie beside the modules reached, such as templates and tables.

    Args:
        script: its name, such as `parse`.
        modules: those that it imports by names that it is given, of other packages too.
        shows: without, how anything is shown does not count: no table is made by it, though charts and sections stand beside what
            makes tables.
    """
    text = (ROOT / f"workflow/scripts/{script}.py").read_text(encoding="utf-8")
    reached: set[Path] = set()
    waiting = [*_modules(text), *(file for name in modules for file in _files(name))]
    while waiting:
        if (file := waiting.pop()) not in reached and (shows or file.parent.name != "report"):
            reached.add(file)
            waiting += _imports(file)
    reached |= {file for folder in {file.parent for file in reached} for file in _data(folder)}
    digest = hashlib.sha256(text.encode())
    for name in modules:
        if name.partition(".")[0] != _PACKAGE.name and (spec := find_spec(name)) and spec.origin:
            digest.update(f"{name} {_checksum(Path(spec.origin))}".encode())
    for file in sorted(reached):
        digest.update(f"{file.relative_to(_PACKAGE)} {_checksum(file)}".encode())
    return digest.hexdigest()[:16]


def _modules(text: str) -> list[Path]:
    names = []
    for package, imported, module in _IMPORT.findall(text):
        parts = re.findall(r"\w+", re.sub(r" as \w+", "", imported))
        names += [module] if module else [f"{package}.{name}" for name in parts] or [package]
    return [file for name in dict.fromkeys(names) for file in _files(name)]


def _files(name: str) -> list[Path]:
    """This library's files that run when something is imported by its dotted name: the faces of its packages, and the module."""
    if name.partition(".")[0] != _PACKAGE.name:
        return []
    places = [_PACKAGE.parent.joinpath(*name.split(".")[:count]) for count in range(1, name.count(".") + 2)]
    return [file for place in places for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()]


@cache
def _imports(file: Path) -> list[Path]:
    return _modules(_FOR_TYPES.sub("", file.read_text(encoding="utf-8")))


@cache
def _data(folder: Path) -> list[Path]:
    """What lies in a package and is no module, in its folders that are no packages too."""
    found = []
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.name.startswith("_") and not (entry / "__init__.py").exists():
            found += _data(entry)
        elif (
            entry.is_file() and entry.suffix not in {".py", ".pyc"} and not entry.name.startswith(".") and entry.name[-1] != "~"
        ):
            found.append(entry)
    return found


@cache
def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def announce_workflow(library: Path) -> None:
    """Tell every job of this process which library it uses, and whose end ends it (a SIGKILL reaches no job).

    From here on the process prints any text, whatever the terminal's encoding.

    Args:
        library: the folder that holds it, for jobs in environments without it. Where there is none, it is installed.
    """
    print_anything()
    os.environ[_WORKFLOW_PID] = str(os.getpid())
    if (library / "bench").is_dir():
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))


def lock_folder() -> TextIO:
    """The lock of this folder's workflows, held until the file is closed or its process ends, however it ends.

    Raises:
        BenchError: another workflow holds it, or this user may not.
    """
    name = ".snakemake.lock"
    try:
        lock = Path(name).open("w")  # noqa: SIM115 - whoever has it open, holds it
    except OSError as error:
        raise BenchError(f"{name} cannot be written ({error.strerror}), so another workflow could not be noticed.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BenchError("Another workflow runs in this folder; wait for it, or end it.") from None
    except OSError:  # a file system without locks
        pass
    return lock


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
            _print(cleared(sys.stderr) + indent(text, _INDENT), sys.stderr)
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
                say(f"{message} Finished runs are kept.")
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

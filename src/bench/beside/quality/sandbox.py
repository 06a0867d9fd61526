"""Programs of unknown origin, each run in a process that is kept from harm: what it is, and is not, says SECURITY.md."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.beside.quality import judge
from bench.beside.quality.graded_set import Task
from bench.errors import BenchError

_CPU_S = 5  # CPU time of a program (s); convention: HumanEval's own limit is 3 s of time, which a busy machine shortens
_WALL_S = 15  # its time (s); convention: a program that sleeps uses no CPU time
_MEMORY = 2**30  # its address space (bytes); convention
_FILE = 2**20  # largest file that it may write (bytes); convention
_FILES = 64  # files that it may have open; convention
_UNUSED = ("site-packages", "test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip", "turtledemo", "config-*")
_ROOM = f"size=16m,nr_inodes={_FILES}"  # of its folder: bytes, and files with folders; convention
_SPENT = (152, 137, -9)  # statuses where its time is spent: of the judge, and of SIGKILL with and without `unshare`
_JUDGE = Path(judge.__file__).read_text(encoding="utf-8")
Verdict = Literal["passed", "failed", "timeout", "no data"]
_CONTROL = Task("control", "", "f", "def check(f):\n    assert f() == 2\n")
_SOUND = "import collections, functools, hashlib, heapq, itertools, math, random, re, statistics, string, typing\n"
# What the sandbox must tell apart before anything is graded: the body of a function that is to return 2.
_CONTROLS: tuple[tuple[str, Verdict], ...] = (
    (_SOUND + "'é'.encode('cp1252')\nreturn math.sqrt(4)", "passed"),
    ("return 3", "failed"),
    ("import os; os._exit(0)", "failed"),
    ("import os\nif os.fork() == 0: os._exit(0)\nreturn 2", "failed"),
    ("judge = open('/proc/self/stat').read().split()[3]\nopen(f'/proc/{judge}/mem')\nreturn 2", "failed"),
)


@dataclass(frozen=True)
class Sandbox:
    """A place where programs run.

    Attributes:
        folder: of its own. isolated: whether programs have no network, see no other processes and write no file but in a folder of
            their own, which holds little; else only the limits hold.
        user: that programs run as; 0 for the one who asks. path: of the standard library, for another user.
    """

    folder: Path
    isolated: bool
    user: int
    path: tuple[str, ...]

    def verdicts(self, programs: Sequence[tuple[str, Task]]) -> list[Verdict]:
        """What becomes of each program at its task's tests: `no data` where they call its function with what cannot be handed on.

        Programs that are alike run once.
        """
        every = list(dict.fromkeys(programs))
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            known = dict(zip(every, pool.map(self._verdict, every), strict=True))
        return [known[program] for program in programs]

    def _verdict(self, program: tuple[str, Task]) -> Verdict:
        code, task = program
        texts = [text.encode("utf-8", "replace") for text in (code, task.prompt, task.test)]
        numbers = (len(texts[0]), len(texts[1]), _CPU_S, _WALL_S, _MEMORY, _FILE, _FILES, self.user)
        arguments = (task.entry_point, _ROOM if self.isolated else "", *map(str, numbers), *self.path)
        command = [*_isolation(self.isolated), sys.executable, "-I", "-S", "-c", _JUDGE, *arguments]
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as own:
            Path(own).chmod(0o777)
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=own,
                env={},
                start_new_session=True,
            )
            try:
                process.communicate(b"".join(texts), timeout=2 * _WALL_S)
            except subprocess.TimeoutExpired:
                return "timeout"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode == judge.NO_DATA:
            return "no data"
        return "passed" if process.returncode == 0 else "timeout" if process.returncode in _SPENT else "failed"


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """A sandbox that has told right programs from wrong ones, and is gone afterwards; BenchError where it cannot tell them apart."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        user, path = 0, tuple[str, ...]()
        if os.geteuid() == 0:  # whom no limit of processes holds
            Path(folder).chmod(0o755)
            user = int(Path("/proc/sys/kernel/overflowuid").read_text())  # `nobody`, who owns nothing
            path = _library(Path(folder))
        controls = [("def f():\n" + textwrap.indent(body, "    "), _CONTROL) for body, _ in _CONTROLS]
        found = Sandbox(Path(folder), shutil.which("unshare") is not None, user, path)
        if found.isolated and found.verdicts(controls[:1]) != ["passed"]:
            found = replace(found, isolated=False)
        for (body, expected), verdict in zip(_CONTROLS, found.verdicts(controls), strict=True):
            if verdict != expected:
                raise BenchError(
                    f"the sandbox says {verdict} for a program that should be {expected} ({body.splitlines()[-1]}), so "
                    "nothing is graded. Try it on another machine, or in a container as a user other than root."
                )
        yield found


def _isolation(wanted: bool) -> list[str]:
    """The command that gives what follows it mounts of its own, and a network and processes of its own: none, that is."""
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own_user, "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--"] if wanted else []


def _library(folder: Path) -> tuple[str, ...]:
    """A copy of the standard library that every user can read: the interpreter's may lie in root's own folder."""
    copy = shutil.copytree(
        sysconfig.get_path("stdlib"), folder / "lib", ignore=shutil.ignore_patterns(*_UNUSED), symlinks=False
    )
    return (str(copy), str(copy / "lib-dynload"))

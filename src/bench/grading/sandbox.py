"""Programs of unknown origin, each run in a process that is kept from harm: what it is, and is not, says SECURITY.md."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.errors import BenchError

_CPU_S = 5  # CPU time of a program (s); convention: HumanEval's own limit is 3 s of time, which a busy machine shortens
_WALL_S = 15.0  # its time (s); convention: a program that sleeps uses no CPU time
_MEMORY = 2**30  # its address space (bytes); convention
_FILE = 2**20  # largest file that it may write (bytes); convention
_FILES = 64  # files that it may have open; convention
_NOBODY = 65534  # user and group that own nothing; convention: every Linux distribution's `nobody`
_UNUSED = ("site-packages", "test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip", "turtledemo", "config-*")
_CPU_SPENT = (
    152,
    137,
    -9,
)  # statuses of a program whose CPU time is spent: of the guard, and of SIGKILL with and without `unshare`
Verdict = Literal["passed", "failed", "timeout"]

# What runs ahead of a program: nothing here trusts what follows it. The token is said on a descriptor that has another number than
# standard output's, after the tests have returned: a program that ends itself before has not passed.
_GUARD = """
import sys
if sys.argv[6:]:  # before any import, as of a package's parts some may be imported later
    sys.path[:] = sys.argv[6:]
    sys.modules["encodings"].__path__ = [sys.argv[6] + "/encodings"]
import ctypes, os, resource, signal
cpu, memory, largest, files, user = map(int, sys.argv[1:6])
program, token = sys.stdin.buffer.read().rsplit(b"\\n", 1)
ctypes.CDLL(None).prctl(1, 9)
said = os.dup(1)
null = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, largest),
                    (resource.RLIMIT_NOFILE, files), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 0)):
    resource.setrlimit(limit, (most, most))
resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
signal.signal(signal.SIGXCPU, lambda *_: os._exit(152))  # the first process of a namespace is not ended by default
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    ctypes.CDLL(None).prctl(1, 9)
del sys.argv[1:]
exec(compile(program, "answer", "exec"), {"__name__": "__main__"})
os.write(said, token)
"""
_SOUND = "import collections, functools, hashlib, heapq, itertools, math, random, re, statistics, string, typing\n"
# What the sandbox must tell apart before anything is graded.
_CONTROLS: tuple[tuple[str, Verdict], ...] = (
    (_SOUND + "'é'.encode('cp1252')\nassert math.sqrt(4) == 2", "passed"),
    ("assert False", "failed"),
    ("import os; os._exit(0)", "failed"),
    ("import os\nif os.fork() == 0: os._exit(0)", "failed"),
)


@dataclass(frozen=True)
class Sandbox:
    """A place where programs run.

    Attributes:
        folder: of its own. isolated: whether programs have no network and see no other processes, else only the limits hold.
        user: that programs run as; 0 for the one who asks. path: of the standard library, for another user.
    """

    folder: Path
    isolated: bool
    user: int
    path: tuple[str, ...]

    def verdicts(self, programs: Sequence[str]) -> list[Verdict]:
        """What becomes of each program: `passed`, it ran to its end; `failed`; `timeout`. Programs that are alike run once."""
        every = list(dict.fromkeys(programs))
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            known = dict(zip(every, pool.map(self._verdict, every), strict=True))
        return [known[program] for program in programs]

    def _verdict(self, program: str) -> Verdict:
        token = secrets.token_hex(16).encode()
        limits = map(str, (_CPU_S, _MEMORY, _FILE, _FILES, self.user))
        command = [*_isolation(self.isolated), sys.executable, "-I", "-S", "-c", _GUARD, *limits, *self.path]
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as own, tempfile.TemporaryFile() as said:
            Path(own).chmod(0o777)
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.DEVNULL, cwd=own, env={}, start_new_session=True
            )
            try:
                process.communicate(program.encode("utf-8", "replace") + b"\n" + token, timeout=_WALL_S)
            except subprocess.TimeoutExpired:
                return "timeout"
            finally:
                process.kill()
                process.wait()
            said.seek(0)
            if said.read(len(token) + 1) == token:
                return "passed"
        return "timeout" if process.returncode in _CPU_SPENT else "failed"


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """A sandbox that has told right programs from wrong ones, and is gone afterwards.

    Raises:
        BenchError: it cannot.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        isolated = (
            shutil.which("unshare") is not None
            and not subprocess.run([*_isolation(True), "true"], capture_output=True).returncode
        )
        user, path = 0, tuple[str, ...]()
        if os.geteuid() == 0:  # whom no limit of processes holds
            Path(folder).chmod(0o755)
            user, path = _NOBODY, _library(Path(folder))
        found = Sandbox(Path(folder), isolated, user, path)
        for (program, expected), verdict in zip(_CONTROLS, found.verdicts([each for each, _ in _CONTROLS]), strict=True):
            if verdict != expected:
                raise BenchError(
                    f"the sandbox says {verdict} of a program that is to be {expected} ({program.splitlines()[-1]}), so nothing is "
                    "graded. Try it on another machine, or in a container as a user other than root."
                )
        yield found


def _isolation(wanted: bool) -> list[str]:
    """The command that gives what follows it a network and processes of its own: none, that is."""
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own_user, "--net", "--ipc", "--pid", "--fork", "--kill-child", "--"] if wanted else []


def _library(folder: Path) -> tuple[str, ...]:
    """A copy of the standard library that every user can read: the interpreter's may lie in root's own folder."""
    copy = shutil.copytree(
        sysconfig.get_path("stdlib"), folder / "lib", ignore=shutil.ignore_patterns(*_UNUSED), symlinks=False
    )
    return (str(copy), str(copy / "lib-dynload"))

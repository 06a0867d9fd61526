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

from bench.errors import BenchError
from bench.grading.graded_set import Task

_CPU_S = 5  # CPU time of a program (s); convention: HumanEval's own limit is 3 s of time, which a busy machine shortens
_WALL_S = 15  # its time (s); convention: a program that sleeps uses no CPU time
_MEMORY = 2**30  # its address space (bytes); convention
_FILE = 2**20  # largest file that it may write (bytes); convention
_FILES = 64  # files that it may have open; convention
_NOBODY = 65534  # user and group that own nothing; convention: every Linux distribution's `nobody`
_UNUSED = ("site-packages", "test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip", "turtledemo", "config-*")
_ROOM = "size=16m,nr_inodes=64"  # of its folder: bytes, and files with folders; convention
_SPENT = (152, 137, -9)  # statuses where its time is spent: of the judge, and of SIGKILL with and without `unshare`
_NO_DATA = 70  # status of the judge where a test calls the function with what is no data; convention
Verdict = Literal["passed", "failed", "timeout", "no data"]

# Two processes: the judge, which runs the tests, and the answer's. They share no memory and no descriptor but two pipes, and the
# answer's may not look into the judge's. A call goes to it as data, and its result comes back as data: nothing that comes from there
# is run, or has methods of its own. The verdict is the judge's exit status.
_GUARD = r"""
import sys
if sys.argv[11:]:  # before any import, as of a package's parts some may be imported later
    sys.path[:] = sys.argv[11:]
    sys.modules["encodings"].__path__ = [sys.argv[11] + "/encodings"]
import builtins, ctypes, os, pickle, resource, signal
name, room, (code, given, cpu, wall, memory, largest, files, user) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:11])
libc = ctypes.CDLL(None)
libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
if room:  # no file of the machine can be written, but in a folder of its own, which holds so much
    libc.mount(b"proc", b"/proc", b"proc", 0, None)  # where it may, with its own processes alone
    read_only = (ctypes.c_uint64 * 4)(1)
    if libc.syscall(ctypes.c_long(442), -100, b"/", 0x8000, read_only, ctypes.c_size_t(32)):  # mount_setattr, and all below
        sys.exit(1)
    if libc.mount(b"none", os.getcwdb(), b"tmpfs", 6, room.encode()):  # without devices and set-user-ID
        sys.exit(1)
    os.chdir(os.getcwd())

def read(size):
    content = b""
    while len(content) < size and (part := os.read(0, min(size - len(content), 1 << 16))):
        content += part
    return content

def plain(value):
    if hasattr(value, "__next__"):
        return iter(list(value))
    if isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        return list(value) if isinstance(value, type({}.values())) else set(value)
    if isinstance(value, (list, tuple)):  # those with names too
        return (tuple if isinstance(value, tuple) else list)(map(plain, value))
    return value

def confine():
    for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, largest),
                        (resource.RLIMIT_NOFILE, files), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 0)):
        resource.setrlimit(limit, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    signal.signal(signal.SIGXCPU, lambda *_: os._exit(152))  # the first process of a namespace is not ended by default
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    libc.prctl(38, 1, 0, 0, 0)  # no program that it becomes has more rights
    libc.capset((ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)())
    libc.prctl(4, 0, 0, 0, 0)  # no other process looks into it
    libc.prctl(1, 9, 0, 0, 0)

answer = read(code)  # and no further: the tests are read when the answer's process is another one
calls, replies = os.pipe(), os.pipe()
libc.prctl(4, 0, 0, 0, 0)  # no process looks into this one from the answer's first moment on
child = os.fork()
if child == 0:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(calls[1])
    os.close(replies[0])
    confine()
    del sys.argv[1:]
    scope = {"__name__": "__main__"}
    exec(compile(answer, "answer", "exec"), scope)
    asked, said = open(calls[0], "rb"), open(replies[1], "wb")
    while asked.peek(1):
        args, more = pickle.load(asked)
        try:
            reply = pickle.dumps((True, plain(scope[name](*args, **more)), args))
        except BaseException as error:
            reply = pickle.dumps((False, [kind.__name__ for kind in type(error).__mro__], str(error)))
        said.write(reply)
        said.flush()
    os._exit(0)

def end(status):
    try:
        os.kill(child, 9)
    except (ProcessLookupError, PermissionError):  # it has ended; or it is another user's still, and ends with this process
        pass
    os._exit(status)

os.close(calls[0])
os.close(replies[1])
asked, said = open(calls[1], "wb"), open(replies[0], "rb")
confine()
signal.signal(signal.SIGALRM, lambda *_: end(152))
signal.alarm(wall)
DATA = {
    "builtins": "bool bytearray bytes complex dict float frozenset int iter list range set slice str tuple",
    "collections": "Counter OrderedDict defaultdict deque",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
}

class Data(pickle.Unpickler):
    def find_class(self, module, name):
        if name not in DATA[module].split():
            raise pickle.UnpicklingError(name)
        kind = super().find_class(module, name)
        return lambda *args: kind(*args)  # not the class itself, of which a pickle could set attributes

def candidate(*args, **more):
    try:
        call = pickle.dumps((args, more))
    except Exception:
        end(NO_DATA)
    try:
        asked.write(call)
        asked.flush()
        returned, value, after = Data(said).load()
        if returned:
            for own, changed in zip(args, after):  # what the function did to its arguments
                if isinstance(own, list):
                    own[:] = changed
                elif isinstance(own, (dict, set)):
                    own.clear()
                    own.update(changed)
            return value
        kinds = (scope.get(each) or getattr(builtins, each, None) for each in value)  # the error's class and those above it
        kind = next(each for each in kinds if isinstance(each, type) and issubclass(each, Exception))
    except (EOFError, BrokenPipeError):
        end(152 if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (152, -9) else 1)
    except Exception:
        end(1)
    raise kind(after)

try:
    scope = {"__name__": "__main__"}
    start, test = read(given), read(sys.maxsize)
    for text in (start, start + b"\n    pass\n"):  # what the tests may use of it; it may end with the function's head
        try:
            exec(compile(text, "task", "exec"), scope)
            break
        except SyntaxError:
            pass
    scope[name] = candidate
    exec(compile(test, "test", "exec"), scope)
    scope["check"](candidate)
except BaseException:
    end(1)
end(0)
""".replace("NO_DATA", str(_NO_DATA))
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
        command = [*_isolation(self.isolated), sys.executable, "-I", "-S", "-c", _GUARD, *arguments]
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
        if process.returncode == _NO_DATA:
            return "no data"
        return "passed" if process.returncode == 0 else "timeout" if process.returncode in _SPENT else "failed"


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """A sandbox that has told right programs from wrong ones, and is gone afterwards.

    Raises:
        BenchError: it cannot.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        user, path = 0, tuple[str, ...]()
        if os.geteuid() == 0:  # whom no limit of processes holds
            Path(folder).chmod(0o755)
            user, path = _NOBODY, _library(Path(folder))
        controls = [("def f():\n" + textwrap.indent(body, "    "), _CONTROL) for body, _ in _CONTROLS]
        found = Sandbox(Path(folder), shutil.which("unshare") is not None, user, path)
        if found.isolated and found.verdicts(controls[:1]) != ["passed"]:
            found = replace(found, isolated=False)
        for (body, expected), verdict in zip(_CONTROLS, found.verdicts(controls), strict=True):
            if verdict != expected:
                raise BenchError(
                    f"the sandbox says {verdict} of a program that is to be {expected} ({body.splitlines()[-1]}), so nothing is "
                    "graded. Try it on another machine, or in a container as a user other than root."
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

"""Hold a server so that nothing of it outlives the session that asked for it.

Run as a program: `python guard.py AFTERWARDS COMMAND ARG...`, with a pipe from the session as standard input. The guard starts the
command in a process group of its own and ends it, with every descendant, when the pipe closes (the session ended, however it
ended: SIGKILL too), on SIGTERM, or when the command itself ends. AFTERWARDS is a JSON list: a command to run at the end, or [] (a
container is no descendant, and must be removed by name).

The guard is two processes, so that either may be killed: the outer one waits for the inner one, which holds the command. Both adopt
orphans (PR_SET_CHILD_SUBREAPER), so what left the group or its parents, renamed itself or cleared its variables is still a descendant,
and nothing else is. If the inner one is killed, the outer one inherits its descendants and ends them; if the outer one is killed,
the kernel wakes the inner one, which ends them in order. Both stay in the session of the outer one (setsid), and so does what they
start: a last way to find it if both are killed.

It imports nothing of the package: it must start in milliseconds.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 10.0
SIGNALLED = 128  # the guard's status is this and the number of the signal that ended the command, as a shell's is


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _reap() -> None:
    """Collect adopted children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _end(group: int) -> None:
    """End the group politely, then every descendant by force; return when none is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while _descendants() and time.monotonic() < deadline:
        time.sleep(0.05)
        _reap()
    _kill()


def _kill() -> None:
    """End every descendant by force; return when none is left."""
    _reap()
    while left := _descendants():
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.05)
        _reap()


def main(afterwards: list[str], command: list[str]) -> int:
    """The outer process: it ends as the inner one does, after all that the inner one left."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    outer = os.getpid()
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    inner = os.fork()
    if not inner:
        os._exit(_hold(outer, wake, afterwards, command))
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(inner, number))
    status = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
    if status >= 0:
        return status
    _kill()
    _run(afterwards)
    os.kill(outer, -status)  # as the inner one was
    return SIGNALLED - status


def _hold(outer: int, wake: int, afterwards: list[str], command: list[str]) -> int:
    """The inner process: start the command, and end it with all that it started."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # a child does not inherit it
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # Where this process is killed, the kernel still ends the server.
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - one thread here
    )
    while os.getppid() == outer:  # else it was killed before the kernel was asked to say so
        ready, _, _ = select.select([0, wake], [], [])
        if 0 in ready and not os.read(0, 4096):
            break
        if wake in ready:
            signals = os.read(wake, 4096)
            if signal.SIGTERM in signals or signal.SIGINT in signals or server.poll() is not None:
                break
    _end(server.pid)
    _run(afterwards)
    status = server.returncode or 0
    return status if status >= 0 else SIGNALLED - status


def _run(afterwards: list[str]) -> None:
    if afterwards:
        subprocess.run(afterwards, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))

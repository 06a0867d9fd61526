"""Hold a server so that nothing of it outlives the session that asked for it.

Run as a program: `python guard.py COMMAND ARG...`, with a pipe from the session as standard input. The guard starts the command in a
process group of its own and ends it, with every descendant, when the pipe closes (the session ended, however it ended: SIGKILL too),
on SIGTERM, or when the command itself ends.

It adopts orphans (PR_SET_CHILD_SUBREAPER), so what left the group or its parents, renamed itself or cleared its variables is still a
descendant, and nothing else is. What it starts stays in its session (setsid), by which it is found if the guard itself is killed.

It imports nothing of the package: it must start in milliseconds.
"""

import contextlib
import ctypes
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
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


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
    while psutil.Process().children(recursive=True) and time.monotonic() < deadline:
        time.sleep(0.05)
        _reap()
    _reap()
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.05)
        _reap()


def main(command: list[str]) -> int:
    """Start the command, and end it with all that it started; its status."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    # Where this process is killed, the kernel still ends the server.
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - one thread here
    )
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if 0 in ready and not os.read(0, 4096):
            break
        if wake in ready:
            signals = os.read(wake, 4096)
            if signal.SIGTERM in signals or signal.SIGINT in signals or server.poll() is not None:
                break
    _end(server.pid)
    status = server.returncode or 0
    return status if status >= 0 else SIGNALLED - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

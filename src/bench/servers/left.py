"""Processes that a server left behind, found without its guards, which were killed, and without root."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from bench.servers import guard

_PATIENCE_S = guard.GRACE_S + 20
_OUTPUTS = (1, 2)


def end_left(log: Path, sessions: Collection[int] = ()) -> list[str]:
    """End what a server left, and return when nothing of it runs; of a server that a guard holds for good, nothing.

    A process belongs to the server if it is in one of its `sessions`, or if it writes to its log. Both survive what programs do to
    themselves: vLLM's processes overwrite their names and variables, and one that calls setsid still has its output.

    Args:
        log: takes the output of the server and all that it starts. sessions: ids of its guards' sessions; the guards are dead.

    Returns:
        The names of the processes that were ended.
    """
    ended: dict[int, str] = {}
    ending = time.monotonic() + guard.GRACE_S + 2
    deadline = ending + _PATIENCE_S
    while found := list(_left(log, sessions)):
        guards = [process for process in found if _is_guard(process)]
        if any(_session(process.pid) not in sessions for process in guards):
            if time.monotonic() > ending:
                return []  # another session's server, with the same log
            time.sleep(0.1)  # the guard of a session that was killed is about to end its server
            continue
        # A guard that still lives ends even what left the session and the log: it is waited for.
        for process in found if time.monotonic() > deadline else [each for each in found if each not in guards]:
            with suppress(psutil.Error):
                ended.setdefault(process.pid, process.name())
                process.kill()
        if time.monotonic() > deadline + guard.GRACE_S:
            break
        time.sleep(0.05)
    return list(ended.values())


def _left(log: Path, sessions: Collection[int]) -> Iterator[psutil.Process]:
    # The kernel reuses a session's number once nobody is in the session: whoever leads it then is a stranger.
    sessions = [each for each in sessions if not psutil.pid_exists(each)]
    with suppress(FileNotFoundError):
        file = log.stat()
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if _session(process.pid) in sessions or _writes_to(process.pid, file):
                    yield process


def _session(pid: int) -> int | None:
    with suppress(OSError):
        return os.getsid(pid)
    return None


def _writes_to(pid: int, file: os.stat_result) -> bool:
    """Another user's process cannot be asked, and is not ours."""
    for output in _OUTPUTS:
        with suppress(OSError):
            if os.path.samestat(Path(f"/proc/{pid}/fd/{output}").stat(), file):
                return True
    return False


def _is_guard(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return str(guard.__file__) in process.cmdline()
    return False

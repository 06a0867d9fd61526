"""Small real processes that serve, and what becomes of them."""

import contextlib
import time
from pathlib import Path

import psutil
import pytest

from bench.errors import BenchError
from bench.servers import guard
from bench.servers.fleet import router_program


def has_haproxy():
    try:
        return bool(router_program(()))
    except BenchError:
        return False


needs_haproxy = pytest.mark.skipif(not has_haproxy(), reason="HAProxy is not installed")


def impatient_guard(folder):
    """A copy of the guard, which runs as a file of its own, with half a second of patience."""
    copy, text = folder / "guard.py", Path(guard.__file__).read_text()
    assert text.count("GRACE_S = 10.0\n") == 1
    copy.write_text(text.replace("GRACE_S = 10.0\n", "GRACE_S = 0.5\n"))
    return copy


def gone(pid, within=20.0):
    return eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, within)


def started():
    """Processes below this one that live, but those that fork workflows for other tests."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            if process.status() != psutil.STATUS_ZOMBIE and "tests.support.forking" not in process.cmdline():
                found.append(process)
    return found


def eventually(what, within=20.0):
    end = time.monotonic() + within
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True

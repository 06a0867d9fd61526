"""Small real processes that serve, and what becomes of them."""

import contextlib
import time

import psutil
import pytest

from bench.engine.fleet import router_program
from bench.errors import BenchError


def has_haproxy():
    try:
        return bool(router_program("haproxy"))
    except BenchError:
        return False


needs_haproxy = pytest.mark.skipif(not has_haproxy(), reason="HAProxy is not installed")


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

"""Whose work a machine does: planted work of our own, and of others."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import psutil
import pytest

from bench.measure import host
from bench.measure.host import HostWatch, family, servers_at
from bench.runs.run import Host
from tests.support.server import eventually

BUSY = "import time\nwhile time.process_time() < 0.5: pass"


def test_work_of_what_descends_from_us_is_ours():
    before = host.own_s()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    ours = host.own_s() - before
    assert 0.45 < ours < 1


def test_work_of_what_does_not_is_none_of_ours(tmp_path):
    """A process whose parent has left it."""
    done = tmp_path / "done"
    before = host.own_s()
    subprocess.run(["sh", "-c", '("$1" -c "$2" && touch "$3") &', "sh", sys.executable, BUSY, done], check=True)
    assert eventually(done.exists, within=60)
    assert host.own_s() - before < 0.25


def test_the_rest_of_what_is_busy_is_of_others_and_unknown_where_the_server_is_elsewhere(monkeypatch):
    """Ten seconds of two cores, of which ours had six; steal took one, and four were idle."""
    for whole, others in ((True, 0.45), (False, None)):
        before = {"user": 0.0, "idle": 0.0, "iowait": 0.0, "steal": 0.0}
        times, own = iter([before, {"user": 15.0, "idle": 3.0, "iowait": 1.0, "steal": 1.0}]), iter([100.0, 106.0])
        monkeypatch.setattr(host, "core_times", lambda times=times: next(times))
        monkeypatch.setattr(host, "own_s", lambda own=own: next(own))
        assert HostWatch(whole=whole).seen() == Host(busy_share=0.8, steal_share=0.05, other_share=others, clock_step_s=0.0)


# A server that was not started here: what its parent leaves as soon as it runs, so that it is nobody's child.
LEFT = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nos.execv(sys.argv[1], sys.argv[1:])"
# Listens, starts a child that waits, and says its port and the child.
SERVER = """
import os, socket, subprocess, sys, time
listening = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(listening.getsockname()[1], os.getpid(), child.pid, flush=True)
time.sleep(60)
"""
# A program whose child listens, beside another that computes, as TGI's launcher starts a router and shards.
LAUNCHER = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {SERVER!r}])\ntime.sleep(60)"


@pytest.fixture
def planted_servers():
    """Starts servers that do not descend from us; each gives its port, the process that listens, and its child."""
    with ExitStack() as stack:

        def start(code=SERVER, executable=sys.executable):
            read, write = os.pipe()
            subprocess.run([sys.executable, "-c", LEFT, str(executable), "-c", code], check=True, stdout=write)
            os.close(write)
            with os.fdopen(read) as lines:
                port, *pids = map(int, lines.readline().split())
            found = [psutil.Process(pid) for pid in pids]
            for process in (*found, *([found[0].parent()] if code != SERVER else [])):
                stack.callback(_end, process.pid)
            return port, *found

        yield start


def _end(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_who_listens_is_the_server_with_all_of_its_program(planted_servers):
    port, server, child = planted_servers()
    assert servers_at(f"http://127.0.0.1:{port}/v1") == servers_at(f"http://localhost:{port}") == [server]
    assert family([server]) == {server, child}
    assert server not in family([psutil.Process()])
    port, server, child = planted_servers(LAUNCHER)
    (launcher,) = servers_at(f"http://127.0.0.1:{port}")
    assert launcher == server.parent() and family([launcher]) == {launcher, server, child}


def test_of_whom_nothing_is_known(planted_servers, tmp_path):
    """Nobody, another machine, what passes on for a container, and what started us too, by a worker that holds its socket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert servers_at(f"http://127.0.0.1:{free.getsockname()[1]}") is None
    assert servers_at("http://192.0.2.1:8000") is None
    assert servers_at("http://no-such-host.invalid:8000") is None
    (tmp_path / "docker-proxy").symlink_to(sys.executable)
    port, *_ = planted_servers(executable=tmp_path / "docker-proxy")
    assert servers_at(f"http://127.0.0.1:{port}") is None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        try:
            assert servers_at(f"http://127.0.0.1:{listening.getsockname()[1]}") is None
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_what_an_external_server_here_leaves_is_of_others(planted_servers, monkeypatch):
    """Ten seconds of two cores of which 13 s were used, 2 s of them by us, and 9 s by the server."""
    (port, server, child), (_, busy, _) = planted_servers(), planted_servers()
    for used, others in (({server: 1.0, child: 8.0}, 0.1), ({server: 0.5, child: 0.5, busy: 10.0}, 0.5)):
        times = iter([dict.fromkeys(used, 1.0), {each: 1.0 + seconds for each, seconds in used.items()}])
        cores = iter([{"user": 0.0, "idle": 0.0, "steal": 0.0}, {"user": 13.0, "idle": 7.0, "steal": 0.0}])
        spent = iter([0.0, 2.0])
        for name, values in (("process_times", times), ("core_times", cores), ("own_s", spent)):
            monkeypatch.setattr(host, name, lambda values=values: next(values))
        seen = HostWatch(whole=False, address=f"http://127.0.0.1:{port}").seen()
        assert (seen.busy_share, seen.other_share) == (0.65, others), used

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
from bench.measure.host import HostWatch
from bench.measure.serving import family, first_listener, may_serve_through, servers_at
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


@pytest.fixture
def planted(monkeypatch):
    """Ten seconds of two cores, of which ours had six; steal took one, and four were idle."""
    times = iter(
        [{"user": 0.0, "idle": 0.0, "iowait": 0.0, "steal": 0.0}, {"user": 15.0, "idle": 3.0, "iowait": 1.0, "steal": 1.0}]
    )
    own = iter([100.0, 106.0])
    monkeypatch.setattr(host, "core_times", lambda: next(times))
    monkeypatch.setattr(host, "own_s", lambda: next(own))


@pytest.mark.usefixtures("planted")
def test_the_rest_of_what_is_busy_is_of_others():
    assert HostWatch(whole=True).seen() == Host(busy_share=0.8, steal_share=0.05, other_share=0.45, clock_step_s=0.0)


@pytest.mark.usefixtures("planted")
def test_what_a_server_elsewhere_uses_is_not_known():
    assert HostWatch(whole=False).seen().other_share is None


# A server that was not started here.

# Listens, connects to the ports that it is given, starts a child that waits, and says its port and its child. The port is below those
# that connections get: one that was a connection's a minute ago is shown as closed.
SERVER = """
import contextlib, os, socket, subprocess, sys, time
for port in range(20000 + os.getpid() % 8000, 32000):
    with contextlib.suppress(OSError):
        listening = socket.create_server(("127.0.0.1", port))
        break
asked = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(listening.getsockname()[1], os.getpid(), child.pid, flush=True)
listening.accept(); time.sleep(60)
"""
# What its parent leaves as soon as it runs, so that it is nobody's child, as a server of another shell is.
LEFT = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nos.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def planted_servers():
    """Starts servers that do not descend from us; each gives its port, its process and its child."""
    with ExitStack() as stack:

        def start(*ports, executable=sys.executable):
            command = [sys.executable, "-c", LEFT, str(executable), "-c", SERVER, *map(str, ports)]
            read, write = os.pipe()
            subprocess.run(command, check=True, stdout=write)
            os.close(write)
            with os.fdopen(read) as lines:
                port, *pids = map(int, lines.readline().split())
            for pid in pids:
                stack.callback(_end, pid)
            return port, *map(psutil.Process, pids)

        yield start


def _end(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_who_listens_is_the_server_with_all_that_descends_from_it(planted_servers):
    port, server, child = planted_servers()
    assert servers_at(f"http://127.0.0.1:{port}/v1") == servers_at(f"http://localhost:{port}") == [server]
    assert family([server]) == {server, child}
    assert server not in family([psutil.Process()])


def test_of_forked_workers_the_first_is_the_server():
    """They hold their parent's socket; which of them answers is chance."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        try:
            assert first_listener(psutil.Process(child), port) == psutil.Process()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        # That is this process: what descends from it is the server's and its load's alike.
        assert servers_at(f"http://127.0.0.1:{port}") is None


def test_where_nobody_listens_or_another_machine_answers_nothing_is_known():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert servers_at(f"http://127.0.0.1:{free.getsockname()[1]}") is None
    assert servers_at("http://192.0.2.1:8000") is None
    assert servers_at("http://no-such-host.invalid:8000") is None


def test_who_passes_on_for_a_container_is_no_server(planted_servers, tmp_path):
    (tmp_path / "docker-proxy").symlink_to(sys.executable)
    port, *_ = planted_servers(executable=tmp_path / "docker-proxy")
    assert servers_at(f"http://127.0.0.1:{port}") is None


def test_what_a_proxy_asks_may_serve_and_what_nobody_asks_does_not(planted_servers):
    engine_port, engine, worker = planted_servers()
    _, proxy, _ = planted_servers(engine_port)
    _, stranger, _ = planted_servers()
    assert may_serve_through(engine, [proxy])
    assert may_serve_through(worker, [proxy])
    assert not may_serve_through(stranger, [proxy])
    assert not may_serve_through(engine, [stranger])


def test_what_the_server_s_own_launcher_started_may_serve():
    """TGI's launcher starts the router, which listens, and the shards, which compute."""
    launcher = (
        "import subprocess, sys, time\nfor code in sys.argv[1:]: subprocess.Popen([sys.executable, '-c', code])\ntime.sleep(60)"
    )
    shard = "print('shard', flush=True); import time; time.sleep(60)"
    command = [sys.executable, "-c", LEFT, sys.executable, "-c", launcher, SERVER, shard]
    read, write = os.pipe()
    subprocess.run(command, check=True, stdout=write)
    os.close(write)
    with os.fdopen(read) as lines:
        said = [lines.readline().split() for _ in range(2)]
    router = psutil.Process(int(next(words[1] for words in said if words[0] != "shard")))
    started = router.parent().children(recursive=True)
    (shard,) = (each for each in router.parent().children() if each != router)
    try:
        assert may_serve_through(shard, [router])
    finally:
        for process in (*started, router.parent()):
            process.kill()


@pytest.fixture
def ten_seconds(monkeypatch, planted_servers):
    """Ten seconds of two cores of which 13 s were used, 2 s of them by us; the processes and what each of them used are given."""

    def watched(used, *, asks=(), cores_s=13.0):
        port, server, child = planted_servers(*asks)
        times = iter(
            [dict.fromkeys(used(server, child), 1.0), {each: 1.0 + seconds for each, seconds in used(server, child).items()}]
        )
        cores = iter([{"user": 0.0, "idle": 0.0, "steal": 0.0}, {"user": cores_s, "idle": 20.0 - cores_s, "steal": 0.0}])
        own = iter([0.0, 2.0])
        monkeypatch.setattr(host, "process_times", lambda: next(times))
        monkeypatch.setattr(host, "core_times", lambda: next(cores))
        monkeypatch.setattr(host, "own_s", lambda: next(own))
        return HostWatch(whole=False, address=f"http://127.0.0.1:{port}").seen()

    return watched


def test_what_an_external_server_here_leaves_is_of_others(ten_seconds):
    seen = ten_seconds(lambda server, child: {server: 1.0, child: 8.0})
    assert (seen.busy_share, seen.other_share) == (0.65, 0.1)


def test_work_beside_an_external_server_is_seen(ten_seconds, planted_servers):
    _, _, busy = planted_servers()
    seen = ten_seconds(lambda server, child: {server: 0.5, child: 0.5, busy: 10.0})
    assert seen.other_share == 0.5


def test_an_engine_behind_the_proxy_that_listens_is_not_taken_for_other_work(ten_seconds, planted_servers):
    port, engine, worker = planted_servers()
    seen = ten_seconds(lambda server, _: {server: 1.0, engine: 2.0, worker: 8.0}, asks=[port])
    assert seen.other_share is None


def test_what_is_not_known_of_a_server_is_not_known_at_any_load(ten_seconds, planted_servers):
    """Another server here whose clients nobody knows: it uses as much beside a run of one request as beside one of many."""
    port, other, _ = planted_servers()
    for served in (0.5, 2.0, 4.0, 5.5):
        seen = ten_seconds(lambda server, _, served=served: {server: served, other: 5.0}, asks=[port], cores_s=7.0 + served)
        assert seen.other_share is None, served


def test_an_engine_behind_the_proxy_is_held_against_no_run_however_strict_the_threshold(ten_seconds, planted_servers):
    """At a low load it uses less than any threshold of disturbance."""
    port, engine, worker = planted_servers()
    for engine_s in (0.1, 0.4, 0.9, 2.0, 3.0, 9.0):
        used = {engine: engine_s, worker: engine_s}
        seen = ten_seconds(lambda server, _, used=used: {server: 0.1, **used}, asks=[port], cores_s=2.1 + 2 * engine_s)
        assert seen.other_share is None, engine_s


def test_other_work_beside_a_proxy_is_the_same_share_at_every_load(ten_seconds, planted_servers):
    """Of 2 s a compiler's processes, which have ended by now, used the half."""
    port, engine, _ = planted_servers()
    _, _, busy = planted_servers()
    for engine_s in (0.1, 0.9, 3.0, 9.0):
        used = {engine: engine_s, busy: 1.0}
        seen = ten_seconds(lambda server, _, used=used: {server: 0.1, **used}, asks=[port], cores_s=4.1 + engine_s)
        assert seen.other_share == pytest.approx(0.1, abs=0.01), engine_s


def test_what_is_certainly_other_work_is_seen_beside_a_proxy(ten_seconds, planted_servers):
    port, engine, _ = planted_servers()
    _, _, busy = planted_servers()
    seen = ten_seconds(lambda server, _: {server: 0.5, engine: 5.0, busy: 5.0}, asks=[port])
    assert seen.other_share == 0.275

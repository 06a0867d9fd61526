"""A server never outlives its session, whatever ends either of them. The servers here are small real processes."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from bench.engine import Server, ServerDied, guard, hardware
from bench.engine.server import core_groups
from bench.engines import managed
from bench.errors import BenchError
from tests import records
from tests.conftest import ROOT

# Answers /health after a while; starts a child that leaves the process group and ignores SIGTERM, as a worker might.
SERVER = """
import http.server, os, signal, subprocess, sys, time
port, delay = int(sys.argv[1]), float(sys.argv[2])
child = subprocess.Popen([sys.executable, "-c", "import os, signal, time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(delay)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def server(tmp_path, code=SERVER, delay=0.1, timeout=20.0):
    file = tmp_path / "server.py"
    file.write_text(code)
    launch = records.launch(device="cpu", argv=(sys.executable, str(file), "{port}", str(delay)))
    return Server(launch, cores=1, workers=1, log=tmp_path / "server.log", ready_timeout_s=timeout, say=lambda _: None)


def child_of(tmp_path):
    return int((tmp_path / "server.log").read_text().split("child ")[1].split()[0])


def gone(pid, within=20.0):
    return eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, within)


def eventually(what, within=20.0):
    end = time.monotonic() + within
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def port_free(base_url):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(base_url.rsplit(":", 1)[1])))
    return True


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch, tmp_path):
    """The guard runs as a file of its own: a copy with less patience."""
    copy = tmp_path / "guard.py"
    copy.write_text(Path(guard.__file__).read_text().replace("GRACE_S = 10.0", "GRACE_S = 1.0"))
    monkeypatch.setattr(guard, "__file__", str(copy))


def test_ready_then_stopped_with_all_that_it_started(tmp_path):
    with server(tmp_path) as running:
        assert running.answers()
        assert running.ready_s > 0.1
        child = child_of(tmp_path)
        assert psutil.pid_exists(child)
    assert gone(child, within=0)
    assert not running.answers()
    assert port_free(running.base_url)


def test_a_container_is_removed_by_name_at_the_end(tmp_path):
    mark = tmp_path / "removed"
    running = server(tmp_path)
    running._afterwards = ["touch", str(mark)]
    with running:
        assert not mark.exists()
    assert mark.exists()


def test_an_error_in_the_session_stops_it_too(tmp_path):
    with pytest.raises(ZeroDivisionError), server(tmp_path):
        raise ZeroDivisionError
    assert gone(child_of(tmp_path), within=0)


def test_a_server_that_ends_at_start_is_told_at_once_with_its_last_words(tmp_path):
    begin = time.monotonic()
    with pytest.raises(ServerDied, match=r"ended .* after its start(?s:.*)ValueError: no such model"):
        server(tmp_path, code="raise ValueError('no such model')").__enter__()
    assert time.monotonic() - begin < 10


def test_of_pages_of_usage_the_line_that_counts_is_shown(tmp_path):
    code = (
        "import argparse; parser = argparse.ArgumentParser('x.py'); [parser.add_argument(f'--flag-{i}') for i in range(80)]; "
    )
    with pytest.raises(ServerDied) as death:
        server(tmp_path, code=code + "parser.parse_args(['--nope'])").__enter__()
    result = str(death.value).splitlines()
    assert result[1:] == ["    x.py: error: unrecognized arguments: --nope"]


def test_a_server_that_is_never_ready_is_given_up_and_ended(tmp_path):
    with pytest.raises(ServerDied, match="did not answer within"):
        server(tmp_path, delay=60, timeout=1.0).__enter__()
    assert gone(child_of(tmp_path), within=0)


def test_a_server_that_is_killed_is_noticed_and_its_children_are_ended(tmp_path):
    with server(tmp_path) as running:
        child = child_of(tmp_path)
        main = next(p for p in psutil.Process().children(recursive=True) if "server.py" in " ".join(p.cmdline()[1:2]))
        main.kill()
        assert gone(child)
        assert eventually(lambda: not running.running())


def test_sigkill_of_the_session_ends_the_server(tmp_path):
    """The session is another process here, killed without a chance to clean up."""
    (tmp_path / "server.py").write_text(SERVER)
    code = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from bench.engine import Server, guard
        guard.__file__ = {str(tmp_path / "guard.py")!r}
        from tests import records
        launch = records.launch(device="cpu", argv=(sys.executable, {str(tmp_path / "server.py")!r}, "{{port}}", "0.1"))
        with Server(launch, cores=1, workers=1, log=Path({str(tmp_path / "server.log")!r}), ready_timeout_s=20, say=print) as s:
            print(s.base_url, flush=True)
            time.sleep(600)
    """)
    session = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    url = session.stdout.readline().strip()
    child = child_of(tmp_path)
    os.kill(session.pid, signal.SIGKILL)
    session.wait()
    session.stdout.close()
    assert gone(child)
    assert port_free(url)


def test_an_external_server_is_measured_and_left_alone(tmp_path):
    with server(tmp_path) as running:
        launch = records.launch(device="cpu", argv=None, base_url=running.base_url + "/v1/")
        external = Server(launch, cores=1, workers=1, log=tmp_path / "x.log", ready_timeout_s=5, say=lambda _: None)
        with external:
            assert external.base_url == running.base_url
        assert running.answers()
    with pytest.raises(ServerDied, match="Check the address"):
        external.__enter__()


def test_cores_are_pinned_within_what_the_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 7})
    assert core_groups(1, 1) == [[2]]
    assert core_groups(2, 2) == [[2, 3], [5, 7]]
    assert managed("vllm").pinned([[2, 3], [5, 7]]) == ([], {"VLLM_CPU_OMP_THREADS_BIND": "2,3|5,7"})
    assert managed("llama.cpp").pinned([[2, 3]]) == (["taskset", "--cpu-list", "2,3"], {})
    with pytest.raises(BenchError, match="cores is 2 for each of 4 workers, 8 together, and this process may use 4"):
        core_groups(2, 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert core_groups(1, 1) == []


def test_the_facts_of_this_machine():
    facts = hardware()
    assert facts.cores >= 1
    assert facts.memory_bytes > 2**28

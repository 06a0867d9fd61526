"""A server never outlives its session, whatever ends either of them. The servers here are small real processes."""

import os
import signal
import socket
import subprocess
import sys
import textwrap

import psutil
import pytest

from bench.errors import BenchError
from bench.servers import guard
from bench.servers.engines import managed
from bench.servers.server import Server, ServerDied, core_groups, end_left
from tests.support import records
from tests.support.server import eventually, gone, impatient_guard, started
from tests.support.study import ROOT

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


def port_free(base_url):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(base_url.rsplit(":", 1)[1])))
    return True


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch, tmp_path):
    monkeypatch.setattr(guard, "__file__", str(impatient_guard(tmp_path)))


def test_ready_then_stopped_with_all_that_it_started_also_after_an_error(tmp_path):
    running = server(tmp_path)

    def fails():
        assert running.answers()
        assert running.ready_s > 0.1
        assert psutil.pid_exists(child_of(tmp_path))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), running:
        fails()
    assert gone(child_of(tmp_path), within=0)
    assert not running.answers()
    assert port_free(running.base_url)


def test_a_server_that_ends_at_start_is_told_at_once_with_its_last_words(tmp_path):
    """Of pages of usage the line that counts."""
    usage = (
        "import argparse; parser = argparse.ArgumentParser('x.py'); [parser.add_argument(f'--flag-{i}') for i in range(80)]; "
    )
    for code, words in (
        ("raise ValueError('no such model')", ["ValueError: no such model"]),
        (usage + "parser.parse_args(['--nope'])", ["\n    x.py: error: unrecognized arguments: --nope"]),
    ):
        with pytest.raises(ServerDied, match=r"ended .* after its start") as death:
            server(tmp_path, code=code).__enter__()
        assert all(each in str(death.value) for each in words), death.value
        assert "--flag-1" not in str(death.value)


def test_a_server_that_is_never_ready_is_given_up_and_ended(tmp_path):
    with pytest.raises(ServerDied, match="did not answer within"):
        server(tmp_path, delay=60, timeout=5.0).__enter__()  # in which a busy machine starts a child
    assert gone(child_of(tmp_path), within=0)


def test_a_server_that_is_killed_is_noticed_and_its_children_are_ended(tmp_path):
    with server(tmp_path) as running:
        child = child_of(tmp_path)
        main = next(p for p in started() if "server.py" in " ".join(p.cmdline()[1:2]))
        main.kill()
        assert gone(child)
        assert eventually(lambda: not running.running())


def test_sigkill_of_the_session_ends_the_server(tmp_path):
    """The session is another process here, killed without a chance to clean up."""
    (tmp_path / "server.py").write_text(SERVER)
    code = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from bench.servers.server import Server; from bench.servers import guard
        guard.__file__ = {str(tmp_path / "guard.py")!r}
        from tests.support import records
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


# Three ways of getting lost: vLLM's processes rename themselves and overwrite their variables, workers call setsid, and a daemon has
# left its parent, its session and its output.
LOST = """
import http.server, os, subprocess, sys
log = os.dup(1)
def lost(name, *, leave=False, twice=False, output=True):
    if os.fork():
        return
    if leave:
        os.setsid()
    if twice and os.fork():
        os._exit(0)
    if not output:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
    code = f"import os, signal, time; signal.signal(15, signal.SIG_IGN); os.write({log}, b'lost {name} %d\\\\n' % os.getpid()); os.close({log}); time.sleep(600)"
    os.set_inheritable(log, True)
    os.execve(sys.executable, [f"VLLM::{name}", "-S", "-c", code], {})
lost("renamed")
lost("left", leave=True)
lost("silent", output=False)
lost("daemon", leave=True, twice=True, output=False)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = open(sys.argv[3]).read().count("lost ") >= 4
        self.send_response(200 if ready else 503); self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def losing(tmp_path):
    """A server whose processes get lost, and what it takes to start it."""
    file, log = tmp_path / "server.py", tmp_path / "server.log"
    file.write_text(LOST)
    launch = records.launch(device="cpu", argv=(sys.executable, str(file), "{port}", "0", str(log)))
    said = []
    return Server(launch, cores=1, workers=1, log=log, ready_timeout_s=20, say=said.append), said


def lost_ones(tmp_path):
    words = (tmp_path / "server.log").read_text().split()
    return {words[i + 1]: int(words[i + 2]) for i, word in enumerate(words) if word == "lost"}


@pytest.mark.parametrize(
    ("killed", "found"),
    [(False, 4), (True, 3)],  # a daemon in every sense is found by a guard alone
)
def test_processes_that_get_lost_end_with_their_server(tmp_path, killed, found):
    running, _ = losing(tmp_path)
    with running:
        lost = lost_ones(tmp_path)
        assert set(lost) == {"renamed", "left", "silent", "daemon"}
        assert not any(psutil.Process(pid).environ() for pid in lost.values())
        if killed:
            running._guard.kill()
            assert eventually(lambda: not running.running())
    ended = {name for name, pid in lost.items() if gone(pid, within=0)}
    if "daemon" not in ended:
        os.kill(lost["daemon"], signal.SIGKILL)
    assert len(ended) == found
    assert {"renamed", "left", "silent"} <= ended
    assert port_free(running.base_url)


def test_what_outlived_its_guard_ends_before_the_next_server_starts_and_what_a_session_holds_is_left_to_it(tmp_path):
    running, _ = losing(tmp_path)
    running.__enter__()
    assert end_left(tmp_path / "server.log") == []
    assert running.answers()
    lost = lost_ones(tmp_path)
    running._guard.kill()
    running._guard.wait()  # and its session is gone, too: nobody calls `stop`
    running._guard.stdin.close()
    for unknown in ("silent", "daemon"):
        os.kill(lost.pop(unknown), signal.SIGKILL)
    assert all(psutil.pid_exists(pid) for pid in lost.values())
    following, said = losing(tmp_path)
    with following:
        assert all(gone(pid, within=0) for pid in lost.values())
    assert len(said) == 1
    assert said[0].startswith("ended what an earlier server had left: ")


def test_strangers_are_left_alone(tmp_path):
    """One leads a session of a number that was a guard's; another only reads the log."""
    log = tmp_path / "server.log"
    log.write_text("x\n")
    leader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with log.open() as reading:
        reader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=reading)
    assert end_left(log, [leader.pid]) == []
    for each in (leader, reader):
        assert each.poll() is None
        each.kill()
        each.wait()


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
    with pytest.raises(BenchError, match=r"cores is 2 \(4 workers: 8 together\), but this process may use 4"):
        core_groups(2, 4)
    assert core_groups(0, 9) == []  # none is pinned, however many there are
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert core_groups(1, 1) == []

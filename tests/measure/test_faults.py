"""Faults made for real: what is killed or stopped in a session. docs/explanation/faults.md lists them with those that other files test.

Each ends in a clear error or a marked run; no process is left, no finished run is lost, and a rerun heals it.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bench.errors import BenchError
from bench.load.client import Load, run_load
from bench.load.target import Target
from bench.measure import host, recording
from bench.measure.scraper import scrape
from bench.models.gguf import gguf_of
from bench.models.model import whole_config
from bench.parse.scrapes import read_scrapes
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import read
from bench.servers import guard
from bench.servers import server as server_module
from bench.workloads.workload import Workload
from tests.support.fake_server import STREAM_HEAD, TOKEN, chunk, fake_server, raw_server, read_request
from tests.support.faulty import ENGINE, EXPOSITION, VERSION, Study, below, signalling, soon
from tests.support.server import eventually, gone, impatient_guard, started
from tests.support.study import ROOT, TINY
from tests.support.verdicts import CALM, judged, serving

KILLS = pytest.mark.long(part="kills")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Results go below the working directory; and no test leaves a process behind, also not one that has left its parents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(guard, "__file__", str(impatient_guard(tmp_path)))
    before = {*started()}
    yield
    left = lambda: [p for p in {*started(), *orphans()} - before if lives(p)]  # noqa: E731
    assert eventually(lambda: not left()), left()


def orphans():
    log = Path("results/deployments/a/server.log")
    words = log.read_text().split() if log.exists() else []
    for pid in (int(after) for word, after in pairwise(words) if word == "child"):
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def lives(process):
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


# Killed.


@pytest.mark.workflow
@pytest.mark.parametrize("killed", ["server", pytest.param("guard", marks=KILLS)])
def test_a_server_that_is_gone_in_a_run_is_started_again(content, killed):
    words, told = {
        "server": (["engine.py"], "The server was killed by SIGKILL, often for memory, while it was measured"),
        "guard": (["guard.py"], "The server lost its guard, which was killed by signal 9, while it was measured"),
    }[killed]
    study = Study(content)
    study.session(signalling(signal.SIGKILL, *words, last=killed == "server"))
    assert any(told in line and "starting it once more" in line for line in study.said), study.said
    assert sum(": starting e for" in line for line in study.said) == 2
    starts = read(DeploymentFacts, study.facts).starts
    assert len(starts) == 2
    assert all(0 < start.ready_s < start.first_token_s for start in starts)
    assert [": run 1 of 2" in line for line in study.said].count(True) == 1
    assert study.healed(study.finished())


@pytest.mark.workflow
def test_a_server_that_hangs_is_ended_and_started_again(content, monkeypatch):
    """Stopped in a run, for good. Its requests time out, and it answers no question."""
    for module in (server_module, recording):
        monkeypatch.setattr(module, "get", lambda *a, get=module.get, **k: get(*a, **{**k, "timeout_s": 0.2}))
    study = Study(content, levels=[1])
    study.session(signalling(signal.SIGSTOP, "engine.py", last=True))
    assert any("The server no longer answered while it was measured" in line for line in study.said), study.said
    assert len(study.finished()) == 1
    texts = [(run.record.parent / "requests.jsonl").read_text() for run in study.plan.runs]
    outcomes = {json.loads(line)["outcome"] for text in texts for line in text.splitlines()}
    assert outcomes == {"ok"}  # no timeout of the server that hung


@pytest.mark.workflow
def test_a_load_process_that_is_killed_ends_the_session_and_keeps_its_runs(content):
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION, gap_s=0.02) as server:
        study = Study(content, server.base_url)
        with pytest.raises(BenchError, match="a load process ended with status -9 "):
            study.session(signalling(signal.SIGKILL, "bench.load"))
        assert len(study.finished()) == 1


def test_a_scraper_that_is_killed_marks_the_run(tmp_path):
    with serving(gap_s=0.04) as server, soon(signalling(signal.SIGKILL, "bench.measure.scraper"), lambda: server.in_flight):
        found = judged(server, tmp_path / "run")
    assert (found.faults, found.valid, found.counts_valid) == (["telemetry"], True, False)
    assert {"not_scraped_after", "never_scraped"} & {reason.check for reason in found.found}  # by how much was on the disk


# Stopped for a while, as where the machine is suspended or a hypervisor pauses it.


@pytest.mark.workflow
@pytest.mark.parametrize(
    ("words", "faults"),
    [
        pytest.param(["bench.measure.scraper"], {"telemetry"}, marks=KILLS, id="scraper"),
        pytest.param(["engine.py"], {"telemetry"}, marks=KILLS, id="server"),
        pytest.param(["bench.load", "bench.measure.scraper", "engine.py"], {"client", "telemetry"}, id="all"),
    ],
)
def test_what_stands_still_for_seconds_marks_the_run(tmp_path, words, faults):
    """A server that stands still has slow answers, which are a result; who measures must not."""
    Path("engine.py").write_text(ENGINE)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = SimpleNamespace(base_url=f"http://127.0.0.1:{port}")
    process = subprocess.Popen([sys.executable, "engine.py", str(port)], stdout=subprocess.PIPE)
    child = int(process.stdout.readline().split()[1])
    try:
        assert eventually(lambda: answers(port))
        stop = signalling(signal.SIGSTOP, *words, for_s=2.5)
        limits = CALM.model_copy(update={"client_delay_p99_s": 0.2, "scrape_gap_s": 1.5, "count_error": 9.0})
        asks = lambda process: any(each.raddr and each.raddr.port == port for each in process.net_connections())  # noqa: E731
        with soon(stop, lambda: any(map(asks, below("bench.load")))):
            found = judged(server, tmp_path / "run", thresholds=limits, output_tokens=60)
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert set(found.faults) == faults, found.found
    summary = json.loads((tmp_path / "run/summary").read_text())
    assert summary["failed"] == 0
    assert (summary["itl_p50_s"] < 1 < summary["e2e_p50_s"]) is True


def answers(port):
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def test_a_clock_that_is_set_or_a_machine_that_was_suspended_marks_the_run(tmp_path, monkeypatch):
    """The wall clock moves, in the middle of the run, against the one of the stamps: they are as they would be."""
    with serving() as server:
        clock = SimpleNamespace(time=lambda: time.time() + (-3600.0 if server.bodies else 0.0), monotonic=time.monotonic)
        monkeypatch.setattr(host, "time", clock)
        found = judged(server, tmp_path / "run")
    assert [(reason.part, reason.check) for reason in found.found] == [("machine", "clock_step")]
    assert found.found[0].value == pytest.approx(-3600, abs=0.1)
    summary = json.loads((tmp_path / "run/summary").read_text())
    assert summary["ok"] == 4
    assert 0 < summary["ttft_p50_s"] < summary["e2e_p50_s"] < 20


# The server's side.


def test_a_port_that_another_server_took_is_left_to_it(content, monkeypatch):
    """Between our look and our server's start: it would have answered all that was meant for ours."""
    free = server_module.free_port
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION) as other:
        ports = iter([other.port])
        monkeypatch.setattr(server_module, "free_port", lambda: next(ports, None) or free())
        study = Study(content, levels=[1])
        study.session()
        assert any(f"Port {other.port} was taken meanwhile, by " in line for line in study.said), study.said
        assert other.bodies == []
    assert study.healed({})


def test_a_stream_that_is_closed_in_one_direction_is_a_disconnect():
    def half(connection):
        read_request(connection)
        connection.sendall(STREAM_HEAD + chunk(TOKEN))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # it hears on, until the client closes

    with raw_server(half) as port:
        load = Load(Workload(arrival="burst", prompt_tokens=4, output_tokens=4), 2, "s", timeout_s=20.0)
        outcomes = [record.outcome for record in run_load(Target(f"http://127.0.0.1:{port}", "m"), load).records]
    assert outcomes == ["disconnect"] * 2  # one that waited would be a timeout


GARBAGE = {
    "noise": bytes(range(256)) * 8,
    "cut": b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\na 1\n",
    "chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\na 1\r\n",
    "gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\na 1\n",
    "loop": b"HTTP/1.1 302 Found\r\nlocation: /metrics\r\ncontent-length: 0\r\n\r\n",
    "nowhere": b"HTTP/1.1 302 Found\r\nlocation: http://[\r\ncontent-length: 0\r\n\r\n",
    "broken": b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
    "nothing": b"",
}


def test_an_endpoint_of_garbage_is_a_scrape_that_failed_each_time(tmp_path):
    """And no scraper that died: what is scraped beside it, and after it, is there."""

    def answer(garbage):
        def handle(connection):
            connection.recv(65536)
            connection.sendall(garbage)

        return handle

    ended = threading.Event()
    threading.Timer(1.0, ended.set).start()
    with ExitStack() as stack:
        ports = [stack.enter_context(raw_server(answer(garbage))) for garbage in GARBAGE.values()]
        urls = [f"http://127.0.0.1:{port}/metrics" for port in (*ports, 9)]
        scrape(urls, 0.2, tmp_path / "t.gz", ended=ended, ready=lambda: None)
    lines = list(read_scrapes(tmp_path / "t.gz"))
    for name, url in zip([*GARBAGE, "nobody"], urls, strict=True):
        mine = [line for line in lines if line["endpoint"] == url]
        assert len(mine) >= 2, name
        assert mine[-1].get("last"), name
        assert all("error" in line for line in mine), name


# An engine that is being built.

BUILD = """
import sys
from pathlib import Path
from bench.servers.environment import prepare_engine
from bench.servers.deployment import Engine
from bench.workflow import job
with job("build.log") as say:
    prepare_engine("e", Engine(source="lock", locks=["x.lock"], python=sys.argv[1]), Path("e/engine.json"), say)
"""


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=KILLS), signal.SIGKILL])
def test_a_build_that_is_killed_leaves_no_installer(tmp_path, number):
    """An interpreter that takes its time, and has a child, as pip and venv do. That it goes on: tests/servers/test_engine.py."""
    Path("x.lock").write_text("")
    slow = tmp_path / "slow-python"
    slow.write_text(
        f'#!/bin/sh\ncase $1 in -c) exec {sys.executable} "$@";; esac\nsleep 300 &\necho $! > {tmp_path}/child\nwait\n'
    )
    slow.chmod(0o755)
    with subprocess.Popen([sys.executable, "-c", BUILD, str(slow)], stderr=subprocess.DEVNULL) as build:
        child = tmp_path / "child"
        assert eventually(lambda: child.exists() and child.read_text().strip())
        build.send_signal(number)
        build.wait(20)
    assert gone(int(child.read_text()))
    assert not Path("e/engine.json").exists()


def test_weights_that_a_killed_process_left_half_are_removed(tmp_path):
    """They are as large as the model."""
    config = whole_config(TINY)
    weights = tmp_path / "weights"
    weights.mkdir()
    written = gguf_of(weights / "model", config, "float32")
    written.unlink()
    with subprocess.Popen(["true"]) as gone:
        pass
    (weights / f".{written.name}.{gone.pid}").write_text("half")
    (weights / f".{written.name}.{os.getppid()}").write_text("of a process that lives")
    assert gguf_of(weights / "model", config, "float32") == written
    assert {file.name for file in weights.iterdir()} == {written.name, f".{written.name}.{os.getppid()}"}


# The page.


def test_the_page_names_tests_that_exist():
    page = (ROOT / "docs/explanation/faults.md").read_text()
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", page))
    rows = [line for line in page.splitlines() if line.startswith("|") and not line.startswith(("| fault", "|---"))]
    assert all(re.search(r"`test_\w+\.py::test_\w+` \|$", row) for row in rows)
    files = {file.name: file.read_text() for file in (ROOT / "tests").glob("*/test_*.py")}
    assert [f"{file}::{test}" for file, test in sorted(named) if f"\ndef {test}(" not in files.get(file, "")] == []

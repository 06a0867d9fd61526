"""Faults made for real: what is killed or stopped in a session, and what has no room. docs/explanation/faults.md lists them with those
that other files test. Each ends in a clear error or a marked run; no process is left, no finished run is lost, and a rerun heals it.
"""

import gzip
import json
import os
import re
import shutil
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

from bench.aggregate import aggregate
from bench.analysis import verdict
from bench.cli import main
from bench.engine import guard
from bench.engine import server as server_module
from bench.errors import BenchError
from bench.figures.save import save_figure
from bench.load.client import Load, run_load
from bench.load.target import Target
from bench.measure import host, recording
from bench.models import Architecture, config_of
from bench.models.gguf import gguf_of
from bench.parse import parse_run
from bench.records.checksums import whole
from bench.records.deployment import read_facts
from bench.records.files import write_record
from bench.report import write_report
from bench.store import refresh_sessions
from bench.study import Paths, Workload
from bench.study.config import Thresholds
from bench.telemetry.scraper import scrape
from bench.workflow import job
from tests.support import records
from tests.support.fake_server import STREAM_HEAD, TOKEN, chunk, fake_server, raw_server, read_request
from tests.support.faulty import ENGINE, EXPOSITION, VERSION, Study, below, signalling, soon
from tests.support.figures import results
from tests.support.study import ARCHITECTURE, ROOT
from tests.support.summaries import written
from tests.support.verdicts import CALM, judged, serving


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Results go below the working directory; and no test leaves a process behind, also not one that has left its parents."""
    monkeypatch.chdir(tmp_path)
    patient = Path(guard.__file__).read_text()
    Path("guard.py").write_text(patient.replace("GRACE_S = 10.0", "GRACE_S = 0.5"))
    monkeypatch.setattr(guard, "__file__", str(tmp_path / "guard.py"))
    before = set(psutil.Process().children(recursive=True))
    yield
    end = time.monotonic() + 20
    while left := [p for p in {*psutil.Process().children(recursive=True), *orphans()} - before if lives(p)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


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


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (signalling(signal.SIGKILL, "engine.py", last=True), "The server was killed by SIGKILL, often for memory, while it was measured"),
        (signalling(signal.SIGKILL, "guard.py"), "The server lost its guard, which was killed by signal 9, while it was measured"),
    ],
    ids=["server", "guard"],
)  # fmt: skip
def test_a_server_that_is_gone_in_a_run_is_started_again(content, act, told):
    study = Study(content)
    study.session(act)
    assert any(told in line and "starting it once more" in line for line in study.said), study.said
    assert sum(": starting e for" in line for line in study.said) == 2
    starts = read_facts(study.facts).starts
    assert len(starts) == 2
    assert all(0 < start.ready_s < start.first_token_s for start in starts)
    assert [": run 1 of 2" in line for line in study.said].count(True) == 1
    assert study.healed(study.finished())


def test_a_server_that_hangs_is_ended_and_started_again(content, monkeypatch):
    """Stopped in a run, for good. Its requests time out, and it answers no question."""
    for module in (server_module, recording):
        monkeypatch.setattr(module, "get", lambda *a, get=module.get, **k: get(*a, **{**k, "timeout_s": 0.2}))
    study = Study(content)
    study.session(signalling(signal.SIGSTOP, "engine.py", last=True))
    assert any("The server no longer answered while it was measured" in line for line in study.said), study.said
    assert study.healed(study.finished())
    texts = [(run.record.parent / "requests.jsonl").read_text() for run in study.plan.runs]
    outcomes = {json.loads(line)["outcome"] for text in texts for line in text.splitlines()}
    assert outcomes == {"ok"}  # no timeout of the server that hung


def test_a_load_process_that_is_killed_ends_the_session_and_keeps_its_runs(content):
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION, gap_s=0.02) as server:
        study = Study(content, server.base_url)
        with pytest.raises(BenchError, match=r"a load process ended with status -9 \(killed, often for memory"):
            study.session(signalling(signal.SIGKILL, "bench.load"))
        kept = study.finished()
        assert len(kept) == 1
        assert study.healed(kept)


def test_a_scraper_that_is_killed_marks_the_run(tmp_path):
    with serving(gap_s=0.04) as server, soon(signalling(signal.SIGKILL, "bench.telemetry"), lambda: server.in_flight):
        found = judged(server, tmp_path / "run")
    assert (found.faults, found.valid, found.counts_valid) == (["telemetry"], True, False)
    assert {"not_scraped_after", "never_scraped"} & {reason.check for reason in found.found}  # by how much was on the disk


# Stopped for a while, as where the machine is suspended or a hypervisor pauses it.


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        (["bench.telemetry"], {"telemetry"}),
        (["engine.py"], {"telemetry"}),
        (["bench.load", "bench.telemetry", "engine.py"], {"client", "telemetry"}),
    ],
    ids=["scraper", "server", "all"],
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
        while not answers(port):
            time.sleep(0.05)
        stop = signalling(signal.SIGSTOP, *words, for_s=2.5)
        limits = CALM.model_copy(update={"loop_lag_max_s": 1.0, "scrape_gap_s": 1.5})
        with soon(stop, lambda: below("bench.load") and list(tmp_path.glob("run/telemetry*"))):
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
        time.sleep(5)  # and hears on

    with raw_server(half) as port:
        begin = time.monotonic()
        load = Load(Workload(arrival="burst", prompt_tokens=4, output_tokens=4), 2, "s", timeout_s=4.0)
        outcomes = [record.outcome for record in run_load(Target(f"http://127.0.0.1:{port}", "m"), load).records]
    assert outcomes == ["disconnect"] * 2
    assert time.monotonic() - begin < 4


GARBAGE = {
    "noise": bytes(range(256)) * 8,
    "cut": b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\na 1\n",
    "chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\na 1\r\n",
    "gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\na 1\n",
    "loop": b"HTTP/1.1 302 Found\r\nlocation: /metrics\r\ncontent-length: 0\r\n\r\n",
    "nowhere": b"HTTP/1.1 302 Found\r\nlocation: http://[\r\ncontent-length: 0\r\n\r\n",
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
        urls = [f"http://127.0.0.1:{port}/metrics" for port in ports]
        scrape(urls, 0.2, tmp_path / "t.gz", ended=ended, ready=lambda: None)
    with gzip.open(tmp_path / "t.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    for name, url in zip(GARBAGE, urls, strict=True):
        mine = [line for line in lines if line["endpoint"] == url]
        assert len(mine) >= 3, name
        assert mine[-1].get("last"), name
        assert all("error" in line for line in mine), name


# Disks.


@pytest.fixture
def disk(tmp_path):
    """A small disk at `results`, and what changes it."""
    folder = tmp_path / "results"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", folder], check=True)


class Disk:
    def __init__(self, folder):
        self.folder = folder

    def change(self, options):
        subprocess.run(["mount", "-o", f"remount,{options}", self.folder], check=True)

    def files(self):
        """Files and folders that it counts."""
        usage = os.statvfs(self.folder)
        return usage.f_files - usage.f_ffree

    def fill(self):
        with (self.folder / "filler").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def empty(self):
        (self.folder / "filler").unlink()


def refused(call, capfd):
    """What a job of the workflow prints that calls `call` and fails."""
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        with pytest.raises(SystemExit) as ended, job("job.log"):
            call()
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(number, handler)
    told = capfd.readouterr().err
    assert ended.value.code == 1
    assert "Traceback" not in told, told
    return told


def test_a_disk_that_is_full_at_any_file_of_a_session(content, disk, capfd):
    """It takes one file more each time, until all are written."""
    told, kept = [], {}
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION) as server:
        study = Study(content, server.base_url, levels=[2])
        files = disk.files()
        for more in range(1, 40):
            disk.change(f"nr_inodes={files + more}")
            try:
                study.session()
            except Exception as error:  # as a job reports it
                told.append(refused(lambda error=error: raising(error), capfd))
            else:
                break
            assert study.finished().items() >= kept.items()
            kept = study.finished()
            assert not list(study.store.root.glob(".unfinished*"))
    assert study.healed(kept)
    assert all("No space left on device. Make room and run again: finished runs are kept." in text for text in told), told
    for name in ("deployments/a/.deployment", "telemetry.jsonl.gz", "requests.jsonl", "run.json"):
        assert any(name in text for text in told), (name, told)


def raising(error):
    raise error


def test_a_disk_that_fills_up_in_a_run_costs_scrapes_and_marks_it(content, disk, capfd):
    def fill():
        disk.fill()
        time.sleep(1.5)
        disk.empty()

    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION, gap_s=0.04) as server:
        study = Study(content, server.base_url, levels=[1])
        study.session(fill)
        assert "the scraper ended: No space left on device" in capfd.readouterr().err
        (run,) = study.plan.runs
        files = {key: Path(key) for key in ("requests", "telemetry", "wide", "summary")}
        summary = parse_run(run.record.parent, **files)
        assert summary["ok"] == 4
        assert not summary["scraped_after"]
        assert verdict(summary, CALM).faults == ["telemetry"]


def test_a_disk_that_is_full_when_the_requests_are_written(content, disk, capfd):
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION) as server:
        study = Study(content, server.base_url, levels=[1])
        assert "No space left on device" in refused(lambda: study.session(disk.fill), capfd)
        assert study.finished() == {}
        disk.empty()
        assert study.healed({})


def test_a_folder_that_cannot_be_written(content, disk, capfd):
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION) as server:
        study = Study(content, server.base_url, levels=[1])
        disk.change("ro")
        told = refused(study.session, capfd)
        assert "Read-only file system. Give this user access and run again" in told
        assert len(server.bodies) == 1  # what the server accepts; nothing of the run
        disk.change("rw")
        assert study.healed({})


def writers(folder, summary):
    """What writes each kind of file that is made of runs, with the files that a full disk would leave half."""
    study = results(summary)
    record = Path("facts.json")
    write_record(records.facts(), record)
    write_record(records.launch(plan={}), Path("launch.json"))
    (Path("run") / "summary.json").write_text(json.dumps(summary))
    run = {key: folder / f"{key}" for key in ("requests", "telemetry", "wide", "summary")}
    tables = {"summary": folder / "s.parquet", "summary_csv": folder / "s.csv", "timeseries": folder / "t.parquet"}
    measured = Path("measured")
    return {
        "run": lambda: parse_run(measured, **run),
        "aggregate": lambda: aggregate([Path("run/summary.json")], launches=[Path("launch.json")], facts=[record], thresholds=Thresholds(), **tables),
        "figure": lambda: save_figure("kv-saturation", study, folder / "kv-saturation"),
        "report": lambda: write_report(folder / "report.html", title="t", results=study, specs=[], facts=[record]),
        "checkpoint": lambda: gguf_of(folder / "model", config_of(Architecture(**ARCHITECTURE)), "float32"),
        "record": lambda: write_record(records.facts(), folder / "engine.json"),
    }  # fmt: skip


def test_a_full_disk_is_named_by_what_is_made_of_runs(disk, summary, capfd):
    with serving() as server:
        judged(server, Path("measured"))
    written(Path("run"), summary)
    for kind, write in writers(disk.folder, summary).items():
        disk.fill()
        told = refused(write, capfd)
        assert "No space left on device" in told, (kind, told)
        assert "Make room and run again" in told, (kind, told)
        disk.empty()
        assert not list(disk.folder.glob(".model*")), kind
        if kind in ("checkpoint", "record"):  # the others' second time would show nothing but their cost
            write()


# One store, several folders; and what somebody else has put there.

SESSION = """
import json, sys
from pathlib import Path
from tests.support.faulty import Study
study = Study(json.loads(sys.argv[1]), sys.argv[2])
study.session()
print("measured", flush=True)
sys.stdin.read()  # until the other one has measured as well: it may replace a run
print(json.dumps(study.finished()))
"""


def test_two_folders_that_share_a_store_measure_at_the_same_time(content, tmp_path):
    (tmp_path / "store").mkdir()
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION, gap_s=0.01) as server:
        sessions = []
        for name in ("one", "two"):
            (tmp_path / name / "results").mkdir(parents=True)
            (tmp_path / name / Paths.RUNS).symlink_to(tmp_path / "store")
            command = [sys.executable, "-c", SESSION, json.dumps(content), server.base_url]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            sessions.append(subprocess.Popen(command, cwd=tmp_path / name, env=environment, **pipes))
        assert [session.stdout.readline() for session in sessions] == [b"measured\n"] * 2
        outputs = [session.communicate(timeout=120)[0] for session in sessions]
    assert [session.returncode for session in sessions] == [0, 0]
    assert [len(json.loads(output)) for output in outputs] == [2, 2]
    assert not list((tmp_path / "store").glob(".unfinished*"))
    for name in ("one", "two"):
        placed = list((tmp_path / name / "results/runs/a").iterdir())
        assert len(placed) == 2
        assert all(whole(folder, "run.json") for folder in placed)


def test_what_is_damaged_or_foreign_in_the_results_is_named_and_measured_again(content, capfd):
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION, gap_s=0.005) as server:
        study = Study(content, server.base_url)
        study.store.root.mkdir(parents=True)
        one, two = study.plan.runs
        # Foreign: beside the runs, and where a run is to lie.
        (study.store.root / "notes.txt").write_text("mine")
        study.store.folder(one).parent.mkdir()
        study.store.folder(one).write_text("a file where a folder is to be")
        (study.store.root / ".unfinished-a-x").mkdir()
        two.record.mkdir(parents=True)  # no record: measured, and replaced
        study.session()
        kept = study.finished()
        assert len(kept) == 2
        assert study.healed(kept)
        assert (study.store.root / "notes.txt").read_text() == "mine"
        # Damaged: a file is cut where it lies.
        files = {key: Path(key) for key in ("requests", "telemetry", "wide", "summary")}
        os.truncate(one.record, 20)
        with pytest.raises(BenchError, match=r"not a valid record of a run.*bench discard"):
            parse_run(one.record.parent, **files)
        assert main(["discard", "--configfile", "study.yaml", one.key]) == 0
        assert study.healed({two.digest: kept[two.digest]})
        assert parse_run(one.record.parent, **files)["ok"] == 4
    assert "forgot" in capfd.readouterr().out


def test_results_that_were_copied_in_part_are_measured_again(content):
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION, gap_s=0.005) as server:
        study = Study(content, server.base_url)
        study.session()
        kept = study.finished()
        one, two = study.plan.runs
        (one.record.parent / "requests.jsonl").unlink()
        refresh_sessions(study.plan, study.store)
        (index, missing) = (Path(each.format(deployment="a", session=1)) for each in (Paths.SESSION, Paths.MISSING))
        assert json.loads(missing.read_text())["missing"] == [one.name]
        assert not index.exists()
        assert study.healed({two.digest: kept[two.digest]})
        assert any("is measured again" in line and one.name in line for line in study.said)
        refresh_sessions(study.plan, study.store)
        assert set(json.loads(index.read_text())["runs"]) == {one.name, two.name}


def test_a_table_that_is_damaged_is_named(tmp_path, summary, capsys):
    folder, record = written(tmp_path / "run", summary), Path("facts.json")
    write_record(records.facts(), record)
    write_record(records.launch(plan={}), Path("launch.json"))
    tables = {"summary": Path("results/summary.parquet"), "summary_csv": Path("s.csv"), "timeseries": Path("t.parquet")}

    def aggregated():
        aggregate([folder / "summary.json"], launches=[Path("launch.json")], facts=[record], thresholds=Thresholds(), **tables)

    for name in ("requests", "telemetry"):
        file = folder / f"{name}.parquet"
        whole_one = file.read_bytes()
        os.truncate(file, len(whole_one) // 2)
        with pytest.raises(BenchError, match=r"run: a table of this run is damaged .* Remove .*/run/\*\.parquet"):
            aggregated()
        file.write_bytes(whole_one)
    aggregated()
    os.truncate(tables["summary"], 100)
    shutil.copy(ROOT / "config/studies/quick.yaml", "study.yaml")
    assert main(["runs", "--configfile", "study.yaml"]) == 2
    assert "results/summary.parquet: damaged" in capsys.readouterr().err


def test_a_second_workflow_in_a_folder_is_refused(tmp_path):
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("config", "src"):
        Path(name).symlink_to(ROOT / name)
    Path(".venv").symlink_to(Path(sys.executable).parent.parent)
    for name in ("requirements.lock", "pyproject.toml"):
        os.utime(name, (0, 0))
    with subprocess.Popen(["flock", ".snakemake.lock", "cat"], stdin=subprocess.PIPE) as first:
        time.sleep(0.2)
        done = subprocess.run(["make", "figures"], capture_output=True, text=True)
        first.stdin.close()
    assert done.returncode == 2
    assert "Another workflow runs in this folder; wait for it, or end it." in done.stderr


# An engine that is being built.

BUILD = """
import sys
from pathlib import Path
from bench.engine import prepare_engine
from bench.study import Engine
from bench.workflow import job
with job("build.log") as say:
    prepare_engine("e", Engine(source="lock", locks=["x.lock"], python=sys.argv[1]), Path("e/engine.json"), say)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_build_that_is_killed_leaves_no_installer(tmp_path, number):
    """An interpreter that takes its time, and has a child, as pip and venv do. That it goes on: tests/servers/test_engine.py."""
    Path("x.lock").write_text("")
    slow = tmp_path / "slow-python"
    slow.write_text(
        f'#!/bin/sh\ncase $1 in -c) exec {sys.executable} "$@";; esac\nsleep 300 &\necho $! > {tmp_path}/child\nwait\n'
    )
    slow.chmod(0o755)
    with subprocess.Popen([sys.executable, "-c", BUILD, str(slow)], stderr=subprocess.DEVNULL) as build:
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
            assert build.poll() is None
            time.sleep(0.02)
        build.send_signal(number)
        build.wait(20)
    installer = int((tmp_path / "child").read_text())
    end = time.monotonic() + 20
    while psutil.pid_exists(installer) and lives(psutil.Process(installer)):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not Path("e/engine.json").exists()


def test_weights_that_a_killed_process_left_half_are_removed(tmp_path):
    """They are as large as the model."""
    config = config_of(Architecture(**ARCHITECTURE))
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
    assert [f"{file}::{test}" for file, test in named if f"\ndef {test}(" not in (ROOT / "tests" / file).read_text()] == []

"""A load process that fails, and what one is given; a server that is odd before and after the load."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from types import SimpleNamespace

import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.load import client
from bench.load.client import Load, PreparedLoad, run_load
from bench.load.exchange import Exchange
from bench.load.introduction import introduce
from bench.load.target import Target
from bench.measure import recording, warmup
from bench.measure.exposition import metric_values
from bench.measure.recording import record_run
from bench.measure.warmup import warm_up
from bench.study.config import Measurement
from bench.workloads.schedule import schedule
from bench.workloads.workload import Workload
from tests.support import records
from tests.support.cases import cases
from tests.support.fake_server import fake_server
from tests.support.server import eventually, started
from tests.support.study import ROOT


def workload(arrival="burst", **more):
    return Workload.model_validate({"arrival": arrival, "prompt_tokens": 16, "output_tokens": 4, **more})


def load(level=2, **more):
    return Load(workload(**more), level, "s", timeout_s=20.0)


# Load processes that fail.

SPEAK = "import os, pickle, sys, time\nread, out = sys.stdin.buffer, sys.stdout.buffer\n"
READ = SPEAK + "pickle.load(read)\n"
READY = READ + "out.write(pickle.dumps(None)); out.flush()\n"
CLOCK = READY + "for _ in range(2): pickle.load(read); out.write(pickle.dumps(time.monotonic())); out.flush()\n"
FAULTS = [
    ("raise SystemExit(3)", "ended with status 3"),
    (READ + "raise SystemExit(3)", "ended with status 3"),
    (READ + "print('mine', flush=True); time.sleep(60)", "ended with status None"),
    (READ + "out.write(pickle.dumps('Connection refused'))", "does not accept 2 connections: Connection refused"),
    (CLOCK + "os.kill(os.getpid(), 9)", "ended with status -9 .* often lacked memory"),
    (CLOCK + "pickle.load(read); out.write(pickle.dumps('Too many files: `ulimit -n`'))", "could not go on: Too many.*ulimit"),
]


def test_a_load_process_that_fails_is_a_readable_error(monkeypatch):
    popen = subprocess.Popen
    for program, message in FAULTS:
        started = []

        def keep(*arguments, started=started, **more):
            started.append(popen(*arguments, **more))
            return started[-1]

        monkeypatch.setattr(client, "PROCESS", (sys.executable, "-c", program))
        monkeypatch.setattr(client.subprocess, "Popen", keep)
        with fake_server() as server, pytest.raises(BenchError, match=message):
            # Long enough that the pipe cannot hold it: who dies unread is noticed while it is told.
            run_load(Target(server.base_url, "m"), load(prompt_tokens=30_000))
        ended = [process.poll() is not None for process in started if process.args == client.PROCESS]
        assert ended == [True], program  # none is left behind


def test_what_is_called_like_a_module_in_the_working_directory_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "select.py").write_text("raise SystemExit('mine')\n")
    monkeypatch.chdir(tmp_path)
    with fake_server() as server:
        assert [r.outcome for r in run_load(Target(server.base_url, "m"), load()).records] == ["ok"] * 2


# How many there are.


def test_a_moment_s_crowd_does_not_count_as_if_it_lasted(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))

    def processes(rate, **more):
        sent = load(rate, arrival="poisson", duration_s=60.0, **more)
        planned = schedule(sent.workload, rate, "0/1")
        exchanges = [Exchange(x.index, due_s=x.due_s) for x in planned]
        return len(client._assignments(Target("http://h:1", "m"), sent, planned, exchanges))

    assert processes(50.0) == 1  # some 500 begin in ten seconds
    assert processes(250.0) == 3  # some 2,500 do, of 1,024 each


# Chats.


@cases(("template", "each"), [(7, 1), (6, 2)])
def test_chats_share_as_many_tokens_as_asked(template, each):
    """Half of 100 tokens: the template's and as many letters as make 50 with them."""
    with fake_server(chat_template=template, tokens_a_letter=each) as server:
        sent = Load(workload(endpoint="chat", prompt_tokens=100, cache="shared", shared_prefix=0.5), 4, "s")
        prepared = PreparedLoad(introduce(Target(server.base_url, "m"), "chat"), sent)
        server.bodies.clear()
        assert [record.prompt_tokens for record in prepared.prime()] == [50]
        with prepared.waiting() as send:
            send()
    primer, *texts = [body["messages"][0]["content"] for body in server.bodies]
    primer = primer.rstrip(".")
    assert primer.count(" ") * each + template == pytest.approx(50, abs=each - 1)
    assert all(text.startswith(primer) for text in texts)
    assert len({text[: len(primer) + 12] for text in texts}) == 4  # and no more than that


# Before the load: warm-up.


def warmed(server, requests=21):
    run = SimpleNamespace(workload=workload(), workload_name="w", level=1, digest="d", schedule_seed="0/1")
    measurement = Measurement(warmup_requests=requests, request_timeout_s=5.0)
    return warm_up(Target(server.base_url, "m"), [run], measurement, records.launch(vocabulary=100))


def test_a_warm_up_has_its_requests_and_four_at_once_and_names_a_server_that_refuses_them(monkeypatch):
    with fake_server(first_s=0.001) as server:
        monkeypatch.setattr(warmup, "_SPREAD", 1e-9)
        result = warmed(server, 7)
        assert (result.stable, len(result.ttft_s)) == (False, 6 + 4)  # threes within seven
        monkeypatch.setattr(warmup, "_SPREAD", 1e9)
        assert len(warmed(server, 21).ttft_s) == 3 + 4
    message = r"none of the first 3 requests of warm-up: http_error 404 no such model\. A request of a few tokens"
    with fake_server(behaviour="http_error") as server, pytest.raises(BenchError, match=message):
        warmed(server)
    assert len(server.bodies) == 3


# After the load: the drain.

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"


@cases(
    ("text", "values"),
    [
        (f'{RUNNING}{{a="b c"}} 0\n{RUNNING}{{a="}} 1"}} 2\nother 7\n', [0.0, 2.0]),
        (f'{RUNNING}{{a="b"}} 0 1700000000000\n{WAITING} 1\n', [0.0, 1.0]),  # a time after the value
        (f'{RUNNING}{{a="b"}} 0 # {{trace="x"}} y\n', None),
        (f"{RUNNING} many\n", None),
        ("other {", None),
        ("other 1\n", []),
    ],
)
def test_values_of_a_few_metrics(text, values):
    assert metric_values(text, (RUNNING, WAITING)) == values


@cases(
    ("exposition", "count"),
    [
        (f"{RUNNING} 1\n{WAITING} 2\n", 3),  # a router's gauge may stand still, and other users' requests count as well
        (
            (ROOT / "tests/inputs/metrics/sglang_priority.prom").read_text(),
            8,
        ),  # a total beside its parts, and each rank the same
    ],
)
def test_a_server_that_does_not_come_to_rest_is_waited_for_with_a_word(monkeypatch, tmp_path, exposition, count):
    monkeypatch.setattr(recording, "PATIENCE_S", 1.0)
    monkeypatch.setattr(recording, "SOON_S", 0.3)
    said = []
    with fake_server(metrics=exposition) as server:
        target = Target(server.base_url, "m")
        record_run(target, load(), tmp_path, header=records.header(), scrape_interval_s=0.1, say=said.append)
    (line,) = said
    assert f"{server.base_url}/metrics still reports requests as running or waiting ({count})" in line
    assert "Waiting for 0, at most 1 s" in line
    assert json.loads((tmp_path / "run.json").read_text())["drain_s"] >= 1.0


def test_without_scrapes_no_endpoint_is_recorded(tmp_path):
    with fake_server() as server:
        record_run(Target(server.base_url, "m"), load(), tmp_path, header=records.header(), scrape_interval_s=None)
    result = json.loads((tmp_path / "run.json").read_text())
    assert result["scrape_endpoint"] is None
    # What counts from the clock's start has its date: not that before the load processes were ready.
    began = datetime.fromisoformat(result["started"]).timestamp()
    assert began == pytest.approx(time.time() - time.monotonic() + result["clock_start_s"], abs=0.01)


# The command.


def command(url, folder):
    options = ("--model", "m", "--output-dir", str(folder), "--num-requests", "2", "--prompt-length", "8", "--scrape")
    return ["workload", "--base-url", url, *options]


def test_the_command_ends_in_order_with_sigterm(tmp_path):
    """Answers that stream in must not swallow the signal."""
    before = {process.pid for process in started()}
    with fake_server(gap_s=0.005) as server:

        def end():
            if eventually(lambda: sum(len(each) > 20 for each in server.writes) == 2, within=60):
                os.kill(os.getpid(), signal.SIGTERM)

        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(SystemExit) as ended:
            main([*command(server.base_url, tmp_path), "--output-length", "2000"])
        ending.join()
    assert ended.value.code == 128 + signal.SIGTERM
    assert eventually(lambda: {process.pid for process in started()} <= before)  # no load process, no scraper
    assert list(tmp_path.iterdir()) == []

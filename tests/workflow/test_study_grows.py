"""A study from nothing, and every way in which it must go on: it grows, is edited, killed, and begun again.

On a real llama.cpp, in a copy of the project. The tests build on one another, in this order; each states what the ones before it left.
"""

import json
import os
import re
import signal
import socket
import time

import polars as pl
import pytest

from bench.figures import Results, figures_of
from bench.figures.registry import load_figure
from tests.support.end_to_end import ARCHITECTURE, CONFIG, LENGTHS
from tests.support.project import Project

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("project").resolve(), CONFIG)
    yield project
    for process in project.processes():
        process.kill()


TABLE = "results/summary.parquet"  # figures of measured runs: tests/workflow/test_end_to_end.py and test_tutorial.py


def test_from_nothing_to_the_table(project):
    jobs = project.run(target=TABLE)
    assert jobs.count("measure:deployment=one, session=1") == 1
    assert sum(job.startswith("parse:") for job in jobs) == 3
    assert project.server_starts("one") == 1
    summary = pl.read_parquet(project.folder / "results/summary.parquet").sort("num_requests")
    assert summary["valid"].to_list() == [True] * 3, summary["reasons"].to_list()
    assert summary["ok"].to_list() == summary["num_requests"].to_list() == [2, 6, 12]
    assert summary["predicted_saturation"].to_list() == [4, 4, 4]
    assert summary["saturated"].to_list() == [False, False, True]


LOADS = {
    "paced": {"arrival": "poisson", "duration_s": 3, **LENGTHS},
    "stepped": {"arrival": "constant", "num_requests": 90, "step": {"factor": 4, "start_s": 2, "duration_s": 1}, **LENGTHS},
    "spread": {
        "arrival": "gamma", "burstiness": 0.5, "num_requests": 12, "output_tokens": 8,
        "prompt_tokens": {"distribution": "lognormal", "median": 60, "sigma": 0.5, "max": 200},
    },
    "replayed": {"arrival": "trace", "trace": "trace.csv"},
    "whole": {"arrival": "burst", "stream": False, **LENGTHS},
    "own": {"arrival": "burst", "prompts": "own.jsonl", "endpoint": "chat", "output_tokens": 8},
}  # fmt: skip
LEVELS = {"request_rate": [10], "time_scale": [2], "concurrency": [2]}
AXES = {"paced": "request_rate", "stepped": "request_rate", "spread": "request_rate", "replayed": "time_scale"}


@pytest.fixture(scope="module")
def grown(project):
    """One workflow for all that a study grows by: a level more, a run discarded, and a model more, which gets every kind of load.
    What the jobs were, and what there was before.
    """
    before, starts = project.records(), project.server_starts("one")
    project.config["study"]["ladders"][0]["concurrency"].append(4)
    project.bench("discard", "one/closed_*_c0002_*")
    (project.folder / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,40,4\n0.5,50,5\n1.5,60,6\n")
    (project.folder / "own.jsonl").write_text(
        '{"prompt": "Why?"}\n{"messages": [{"role": "user", "content": "And why is that so?"}]}\n'
    )
    project.config["models"]["two"] = {"architecture": {**ARCHITECTURE, "kv_heads": 1}}
    project.config["deployments"]["two"] = {**project.config["deployments"]["one"], "model": "two"}
    project.config["workloads"] |= LOADS
    project.config["study"]["ladders"] += [
        {"deployment": "two", "workload": name, axis: LEVELS[axis]}
        for name in LOADS
        for axis in [AXES.get(name, "concurrency")]
    ]
    return project.run(target=TABLE), before, starts


def test_a_level_more_and_a_discarded_run_are_all_that_is_measured(project, grown):
    jobs, before, starts = grown
    after = {name: at for name, at in project.records().items() if name.endswith("@one")}
    assert {name for name in after if after[name] != before.get(name)} == {
        "burst_burst_p32_o64_c0004_r1@one",
        "closed_closed_p32_o32_c0002_r1@one",
    }
    assert before.keys() < after.keys()
    assert project.server_starts("one") == starts + 1
    of_one = [job.split(",")[0] for job in jobs if "=one" in job]
    assert of_one == ["measure:deployment=one"] + ["parse:deployment=one"] * 2


def test_a_model_more_runs_only_its_jobs(project, grown):
    jobs, _, _ = grown
    of_two = [job.split(",")[0] for job in jobs if "=two" in job]
    assert of_two == ["weights:model=two", "deploy:deployment=two", "measure:deployment=two"] + ["parse:deployment=two"] * len(
        LOADS
    )
    others = {job.split(":")[0] for job in jobs if not re.search("=(one|two)", job)}
    assert others == {"aggregate"}
    assert project.server_starts("two") == 1


@pytest.mark.usefixtures("grown")
def test_every_kind_of_load_is_what_it_says_on_a_real_engine(project):
    """Paced, stepped, replayed, and whole answers. Chats, conversations, and prefixes that are alike: tests/workflow/test_end_to_end.py."""
    summary = pl.read_parquet(project.folder / "results/summary.parquet")
    rows = {row["workload"]: row for row in summary.filter(deployment="two").to_dicts()}
    assert rows.keys() == LOADS.keys()
    assert {name: row["reasons"] for name, row in rows.items() if not row["valid"]} == {}
    assert all(row["failed"] == row["wrong_prompt_tokens"] == row["wrong_output_tokens"] == 0 for row in rows.values())
    assert rows["replayed"]["prompt_tokens"] == 50
    assert rows["replayed"]["offered_rate"] == pytest.approx(2 / 0.75)
    assert (rows["whole"]["ttft_n"], rows["whole"]["e2e_n"]) == (0, 2)
    own = pl.read_parquet(project.folder / f"results/runs/two/{rows['own']['run']}/requests.parquet")
    # A token a character, a mark of 17 of them, and what the template adds.
    assert sorted(own["prompt_tokens"] - rows["own"]["template_tokens"]) == [17 + len("Why?"), 17 + len("And why is that so?")]
    assert own["prompt_asked"].to_list() == own["prompt_tokens"].to_list()
    assert (rows["own"]["prompts"], rows["own"]["prompt_fixed"]) == ("file", None)
    assert rows["stepped"]["recovered"] is not None  # there is load after the step; how long it takes is the machine's affair
    # Its figures are drawn from nothing like the study's that the workflow drew: three axes, no first token of some.
    results = Results.read(project.folder / "results/summary.parquet", project.folder / "results/timeseries.parquet")
    for name in figures_of(summary.to_dicts()):
        drawn = load_figure(name)
        assert all(drawn.draw(part).to_dict() for part in (results.by_axis() if drawn.by_axis else [results]))


@pytest.mark.usefixtures("grown")
def test_a_record_that_was_replaced_is_parsed_again_and_nothing_else(project):
    """As when it is copied here: with another content, and an older time."""
    assert project.run(target=TABLE) == []
    record = next(iter(sorted(project.folder.glob("results/runs/one/*/run.json"))))
    content, at = json.loads(record.read_text()), record.stat().st_mtime
    record.write_text(json.dumps({**content, "client": {**content["client"], "loop_lag_p99_s": 0.049}}))
    os.utime(record, (at - 3600, at - 3600))
    jobs = project.run(target=TABLE)
    assert [job.split(":")[0] for job in jobs] == ["parse", "aggregate"]
    table = pl.read_parquet(project.folder / "results/summary.parquet")
    assert table.filter(run=record.parent.name)["client_loop_lag_p99_s"].to_list() == [0.049]
    assert project.run(target=TABLE) == []


@pytest.fixture(scope="module")
def long_runs(project):
    """Four runs that take a while each, so that there is a middle in which to end something; `two` is done with."""
    project.config["study"]["ladders"] = [x for x in project.config["study"]["ladders"] if x["deployment"] == "one"]
    project.config["study"]["ladders"][1]["concurrency"] += [3, 4, 5]
    project.config["workloads"]["closed"]["num_requests"] = 60  # half a second and more, also on a fast machine


@pytest.mark.usefixtures("long_runs")
@pytest.mark.parametrize(
    ("whom", "number"), [("make", signal.SIGTERM), ("snakemake", signal.SIGKILL)], ids=["SIGTERM", "SIGKILL"]
)
def test_the_workflow_ended_in_a_run_leaves_nothing_and_keeps_what_is_done(project, whom, number):
    """`make` ended by SIGKILL, which for the workflow is a SIGTERM: tests/workflow/test_workflow.py."""
    known = project.stored()
    workflow = project.start()
    project.wait_for_stored(known + 1, workflow)
    time.sleep(0.3)  # into the next run
    if whom == "make":
        workflow.send_signal(number)
    else:
        next(p for p in project.processes() if "bin/snakemake" in " ".join(p.cmdline()[:2])).send_signal(number)
    workflow.wait(60)
    assert project.nothing_left()
    port = int(re.findall(r"ready after .* at http://127.0.0.1:(\d+)", project.said())[-1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)
    assert workflow.returncode != 0
    assert known + 1 <= project.stored() <= known + 2


def test_a_server_killed_in_a_run_is_started_again_and_the_rest_is_completed(project):
    known, starts = project.stored(), project.server_starts("one")
    kept = project.stored_at()
    project.config["study"]["ladders"][1]["concurrency"] += [6, 7]
    workflow = project.start(TABLE)
    project.wait_for_stored(known + 1, workflow)
    time.sleep(0.3)
    project.servers("llama_server.py")[0].send_signal(signal.SIGKILL)
    # Who watches sees, after the second start, a run that is measured and one that was.
    seen = []
    while workflow.poll() is None and not (
        any(session["state"] == "measuring" for session in seen) and any(session["verdicts"] for session in seen)
    ):
        time.sleep(0.5)
        seen += project.watched()["sessions"] if project.server_starts("one") == starts + 2 else []
    assert workflow.wait(timeout=600) == 0, project.said()[-6000:]
    assert {session["state"] for session in seen} >= {"measuring"}
    live = [session["live"] for session in seen if session["live"]]
    assert all(
        each["running"] + each["waiting"] <= 7 for each in live
    )  # as many as the client holds; none where no look met a run
    assert any(run["reasons"] == [] for session in seen for run in session["verdicts"])
    ended = project.watched()
    assert (ended["sessions"], ended["last"]["state"]) == ([], "finished")
    assert "starting it once more" in project.said()
    assert project.server_starts("one") == starts + 2
    assert project.stored_at().items() >= kept.items(), project.said()[-6000:]
    assert project.nothing_left()
    summary = pl.read_parquet(project.folder / "results/summary.parquet")
    assert summary["failed"].sum() == 0  # the dead server's failures are no run's
    assert len(summary) == 9
    assert project.run(target=TABLE) == []


def test_a_server_that_will_not_start_ends_the_workflow_with_its_last_words(project):
    project.config["deployments"]["one"]["flags"] = {"batch-size": 10**12}
    project.run(target=TABLE, status=1)
    assert "OverflowError: value too large" in project.output
    starts = project.server_starts("one")
    assert "runs are measured and kept" in project.output
    assert project.nothing_left()
    del project.config["deployments"]["one"]["flags"]
    # Back to the deployment whose runs are in the store: nothing is measured again.
    jobs = project.run(target=TABLE)
    assert "9 of 9 runs are measured already" in project.output
    assert project.server_starts("one") == starts
    assert jobs.count("measure:deployment=one, session=1") == 1

"""A real vLLM, measured in a copy of the project from nothing to figures: what only it does.

What holds of any engine is tested on one that starts in a second: tests/workflow/test_study_grows.py.
"""

import json
import re
import signal
import time

import polars as pl
import pytest
import yaml

from bench.records.calibration import read_calibration
from bench.words.predicted import no_model
from tests.support.end_to_end import ARCHITECTURE, LENGTHS
from tests.support.project import LENIENT, Project
from tests.support.study import ROOT

pytestmark = pytest.mark.engine

BURSTS = {"deployment": "one", "workload": "burst", "concurrency": [2, 24]}
# 4 KiB a token: 4 MiB hold 1,024 tokens, 10.7 requests of 96 tokens.
CONFIG = {
    "study": {
        "title": "End to end",
        "ladders": [
            BURSTS,
            *(
                {"deployment": "one", "workload": name, "concurrency": [2]}
                for name in ("closed", "talk", "respond", "alike", "same")
            ),
            {"deployment": "one", "workload": "turns", "users": [2]},
        ],
    },
    "models": {"one": {"architecture": ARCHITECTURE}},
    "engines": {"vllm-cpu": yaml.safe_load((ROOT / "config/config.yaml").read_text())["engines"]["vllm-cpu"]},
    "deployments": {"one": {"model": "one", "engine": "vllm-cpu", "kv_cache_memory": "4MiB", "prefix_caching": True}},
    "workloads": {
        "burst": {"arrival": "burst", "prompt_tokens": 32, "output_tokens": 64},
        "closed": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": 6},
        "talk": {"arrival": "burst", "endpoint": "chat", **LENGTHS},
        "respond": {"arrival": "burst", "endpoint": "responses", **LENGTHS},
        "alike": {"arrival": "burst", "cache": "shared", "shared_prefix": 0.7, **LENGTHS},
        "same": {"arrival": "closed", "num_requests": 6, "cache": "repeated", **LENGTHS},
        "turns": {"arrival": "closed", "num_requests": 4, "turns": {"count": 3, "new_tokens": 40}, **LENGTHS},
    },
    "thresholds": LENIENT,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A study measured to its figures. Its server is killed after all of that: its engine's process must go with it, and another be started.

    A vLLM takes a minute of a core to start, so the workflow is ended while the second one begins to.
    """
    project = Project(tmp_path_factory.mktemp("project").resolve(), CONFIG)
    ladders = project.config["study"]["ladders"]
    ladders[0] = {**BURSTS, "repeats": 2}  # a second round, which begins when all others are measured
    workflow = project.start()
    project.wait_for_stored(8, workflow, within=600)
    api, *_ = project.servers("api_server")
    below = api.children(recursive=True)
    api.send_signal(signal.SIGKILL)
    assert below  # vLLM computes in a process of its own
    gone_by = time.monotonic() + 30
    while any(each.is_running() for each in below):
        assert time.monotonic() < gone_by, "the engine's process outlived its server"
        time.sleep(0.1)
    while project.server_starts("one") < 2:
        assert workflow.poll() is None, project.said()[-6000:]
        time.sleep(0.1)
    workflow.send_signal(signal.SIGTERM)
    assert workflow.wait(timeout=60) != 0
    assert project.nothing_left()
    ladders[0] = BURSTS
    project.run()
    yield project
    for process in project.processes():
        process.kill()


@pytest.fixture(scope="module")
def runs(project):
    """Rows of the summary, by workload and level."""
    summary = pl.read_parquet(project.folder / "results/summary.parquet")
    return {(row["workload"], row["level"]): row for row in summary.to_dicts()}


def test_a_server_that_is_killed_is_started_again_and_what_was_measured_is_kept(project, runs):
    assert "starting it once more" in project.said()
    assert project.server_starts("one") == 2  # none for the figures
    assert len(runs) == 8
    assert all(row["failed"] == 0 for row in runs.values())  # the dead server's failures are no run's


def test_lengths_are_exact_and_the_servers_counters_agree(project, runs):
    """Every token of every request, and no other."""
    assert {key: row["reasons"] for key, row in runs.items() if not row["valid"]} == {}
    assert all(row["wrong_prompt_tokens"] == row["wrong_output_tokens"] == 0 for row in runs.values())
    few, many, closed = runs["burst", 2], runs["burst", 24], runs["closed", 2]
    assert [row["ok"] for row in (few, many, closed)] == [2, 24, 6]
    table = next((project.folder / "results/runs/one").glob("closed_*/requests.parquet"))
    answered = pl.read_parquet(table)["completion_tokens"].to_list()
    assert sorted(answered)[2:] == [32] * 4  # the two with which the loop begins are on their way
    assert sum(answered) < 6 * 32
    assert [row["server_generation_tokens"] for row in (few, many, closed)] == [2 * 64, 24 * 64, sum(answered)]
    assert [row["server_prompt_tokens"] for row in (few, closed)] == [2 * 32, 6 * 32]
    assert many["server_prompt_tokens"] >= 24 * 32  # a preempted prompt is computed again
    assert [row["in_flight_peak"] for row in (few, closed)] == [2, 2]  # the closed loop held two
    assert max(row["running_peak"] for row in (few, closed)) <= 2
    assert (runs["talk", 2]["ttft_n"], runs["talk", 2]["prompt_tokens"]) == (2, 96)
    assert (runs["respond", 2]["ttft_n"], runs["respond", 2]["prompt_tokens"]) == (2, 96)
    turns = runs["turns", 2]
    assert (turns["ok"], turns["in_flight_peak"]) == (3 * 4, 2)
    assert (turns["axis"], turns["users"], turns["concurrency"]) == ("users", 2, None)
    assert "_u0002_" in turns["run"]


def test_the_kv_cache_is_as_planned_and_full_where_predicted(project, runs):
    burst, closed = (runs["burst", 2], runs["burst", 24]), runs["closed", 2]
    assert {row["kv_tokens_planned"] for row in runs.values()} == {row["kv_tokens"] for row in runs.values()} == {1024}
    assert [row["predicted_saturation"] for row in (*burst, closed)] == [1024 / 96, 1024 / 96, 1024 / 64]
    assert [row["saturated"] for row in (*burst, closed)] == [False, True, False]
    assert {(row["max_num_seqs"], row["dtype"], row["kv_cache_dtype"]) for row in runs.values()} == {
        (256, "float32", "float32")
    }
    facts = json.loads((project.folder / "results/deployments/one/deployment.json").read_text())
    assert facts["engine_version"].startswith("0.32.0")


def test_prefixes_come_from_the_cache_as_the_workload_implies(runs):
    """Blocks of 32: 67 of 96 tokens are two blocks; a repeated prompt keeps its last block to compute; turns reuse 96 and 152 of 152 and 208."""
    assert runs["alike", 2]["prefix_hit_rate"] == pytest.approx(64 / 96)
    assert runs["same", 2]["prefix_hit_rate"] == pytest.approx(64 / 96)
    assert runs["turns", 2]["prefix_hit_rate"] == pytest.approx((96 + 128) / (96 + 152 + 208))
    assert runs["closed", 2]["prefix_hit_rate"] == 0


def test_the_engine_has_a_model(project):
    """Of so few requests it says little, but its steps take milliseconds, and the loads that were measured are among its numbers."""
    (model,) = read_calibration(project.folder / "results/calibration.json").models
    if no_model(model) is None:
        assert 1e-4 < model.parameters["step_s"].high < 1
        assert {load.workload for load in model.measured} >= {"burst", "closed"}
    else:
        assert re.match("the engine's steps stray|the runs differ|its valid runs show too few", no_model(model) or "")


def test_figures_and_report_are_there(project):
    manifest = json.loads((project.folder / "results/figures/all").read_text())
    assert len(manifest["figures"]) == 24
    for name in manifest["figures"]:
        assert (project.folder / "results/figures" / name).stat().st_size > 500
    page = (project.folder / "results/report.html").read_text()
    assert "End to end" in page
    assert not re.findall(r'(?:src|href)="https?:', page)

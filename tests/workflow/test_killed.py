"""Workflows of real engines that are killed, whole or in part: nothing is left, and what is done is kept."""

import re
import signal
import socket

import polars as pl
import pytest

from tests.support.end_to_end import CONFIG, VLLM_CONFIG
from tests.support.project import Project
from tests.support.server import eventually

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def begun(tmp_path):
    """A project of this configuration."""
    projects = []

    def begin(config):
        projects.append(Project(tmp_path.resolve(), config))
        return projects[0]

    yield begin
    for process in projects[0].processes():
        process.kill()


@pytest.mark.long(part="kills")
@pytest.mark.parametrize(("whom", "number"), [("make", signal.SIGTERM), ("snakemake", signal.SIGKILL)])
def test_the_workflow_ended_in_a_run_leaves_nothing_and_keeps_what_is_done(begun, whom, number):
    """`make` ended by SIGKILL, which for the workflow is a SIGTERM: tests/workflow/test_workflow.py."""
    project = begun(CONFIG)
    project.config["study"]["ladders"][1]["concurrency"] += [3, 4, 5]
    project.config["workloads"]["closed"]["num_requests"] = 60  # half a second and more, also on a fast machine
    workflow = project.start()
    project.wait_for_stored(1, workflow)
    project.wait_for_load(workflow)
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
    assert 1 <= project.stored() < 6


@pytest.mark.long(part="vllm")
def test_a_vllm_that_is_killed_goes_with_its_engine_and_another_is_started(begun):
    """After its runs, so that the second one, which takes a minute of a core to start, need not be waited for."""
    project = begun(VLLM_CONFIG)
    project.config["study"]["ladders"] = [
        {"deployment": "one", "workload": "burst", "concurrency": [2], "repeats": 2},
        {"deployment": "one", "workload": "closed", "concurrency": [2]},
    ]
    workflow = project.start()
    project.wait_for_stored(2, workflow, within=600)  # the second round begins when all others are measured
    kept = project.stored_at()
    api, *_ = project.servers("api_server")
    below = api.children(recursive=True)
    api.send_signal(signal.SIGKILL)
    assert below  # vLLM computes in a process of its own
    assert eventually(lambda: not any(each.is_running() for each in below), 30), "the engine's process outlived its server"
    assert eventually(lambda: project.server_starts("one") == 2 or workflow.poll() is not None, 120)
    assert workflow.poll() is None, project.said()[-6000:]
    workflow.send_signal(signal.SIGTERM)
    assert workflow.wait(timeout=60) != 0
    assert project.nothing_left()
    assert "starting it once more" in project.said()
    project.run(target="results/summary.parquet")
    assert project.stored_at().items() >= kept.items()
    summary = pl.read_parquet(project.folder / "results/summary.parquet")
    assert (len(summary), summary["failed"].sum()) == (3, 0)  # the dead server's failures are no run's

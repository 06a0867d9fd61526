"""Workflows of real engines that are killed, whole or in part: nothing is left, and what is done is kept."""

import re
import signal
import socket

import pytest

from tests.support.end_to_end import CONFIG
from tests.support.project import Project

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def project(tmp_path):
    begun = Project(tmp_path.resolve(), CONFIG)
    yield begun
    for process in begun.processes():
        process.kill()


@pytest.mark.long(part="kills")
@pytest.mark.parametrize(("whom", "number"), [("make", signal.SIGTERM), ("snakemake", signal.SIGKILL)])
def test_the_workflow_ended_in_a_run_leaves_nothing_and_keeps_what_is_done(project, whom, number):
    """`make` ended by SIGKILL, which for the workflow is a SIGTERM: tests/workflow/test_workflow.py."""
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

"""Nothing of a vLLM outlives what holds it. It is three processes or more, of which two overwrite their names and variables."""

import os
import signal
import time
from contextlib import suppress

import psutil
import pytest
import yaml

from tests.conftest import ROOT
from tests.project import LENIENT, Project
from tests.test_environment import K8S, exports

pytestmark = pytest.mark.engine

CONFIG = {
    "study": {"title": "Killed", "ladders": [{"deployment": "one", "workload": "long", "request_rate": [0.5]}]},
    "models": {
        "one": {
            "architecture": {
                "layers": 2, "hidden_size": 256, "heads": 4, "kv_heads": 4, "head_dim": 64, "intermediate_size": 512,
                "vocabulary": 512, "context": 512,
            }
        }
    },
    "engines": {"vllm-cpu": yaml.safe_load((ROOT / "config/config.yaml").read_text())["engines"]["vllm-cpu"]},
    "deployments": {"one": {"model": "one", "engine": "vllm-cpu", "kv_cache_memory": "4MiB"}},
    "workloads": {"long": {"arrival": "poisson", "duration_s": 3600, "prompt_tokens": 32, "output_tokens": 8}},
    "measurement": {"warmup_requests": 0, "reference_requests": 0},
    "thresholds": LENIENT,
}  # fmt: skip
TELEMETRY = "results/runs/.unfinished-*/telemetry.jsonl.gz"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """In a pod of a namespace that has a Service called `vllm`: vLLM would end at VLLM_PORT=tcp://…"""
    project = Project(tmp_path_factory.mktemp("killed").resolve(), CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in exports(K8S).items():
            patch.setenv(variable, value)
        yield project
    for process in project.processes():
        process.kill()


def commands(project):
    """What runs in the project's folder, by the words of its command."""
    found = []
    for process in project.processes():
        with suppress(psutil.Error):
            found.append((process, " ".join(process.cmdline())))
    return found


def those(project, word):
    return [process for process, command in commands(project) if word in command]


def working(project):
    """A workflow whose vLLM is under load: before that, the session's own requests would notice its end."""
    known = set(project.folder.glob(TELEMETRY))
    workflow = project.start()
    end = time.monotonic() + 400
    while not any(file.stat().st_size for file in set(project.folder.glob(TELEMETRY)) - known):
        assert workflow.poll() is None, project.said()[-6000:]
        assert time.monotonic() < end, commands(project)
        time.sleep(0.1)
    assert those(project, "VLLM::EngineCore")
    assert those(project, "VLLM::Worker")
    return workflow


def kill(processes):
    """All at once: guards are stopped first, or one of them acts on the end of another before its own turn.

    Nothing else is: a group with a stopped member gets SIGHUP from the kernel when its last parent outside it ends, and vLLM with it.
    """
    assert processes
    for process in processes:
        if "guard.py" in " ".join(process.cmdline()):
            process.suspend()
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)


GUARDS = {"outer": lambda found: found[:1], "inner": lambda found: found[1:], "both": lambda found: found}


@pytest.mark.parametrize("which", GUARDS)
def test_its_processes_end_with_its_guard(project, which):
    workflow = working(project)
    before = those(project, "VLLM::")
    guards = sorted(those(project, "guard.py"), key=lambda process: process.create_time())
    assert len(guards) == 2
    kill(GUARDS[which](guards))
    gone, alive = psutil.wait_procs(before, timeout=45)
    assert not alive, alive
    assert len(gone) >= 2
    workflow.send_signal(signal.SIGTERM)
    assert workflow.wait(timeout=60) != 0
    assert project.nothing_left()


def test_its_processes_end_with_its_session(project):
    workflow = working(project)
    kill(those(project, ".snakemake/scripts"))
    assert project.nothing_left()
    assert workflow.wait(timeout=60) != 0


def test_its_processes_end_with_the_workflow(project):
    workflow = working(project)
    kill([psutil.Process(workflow.pid), *those(project, "bin/snakemake")])
    assert project.nothing_left()
    workflow.wait(timeout=60)


def test_what_outlived_everything_ends_when_the_next_server_starts(project):
    """All that could end it was killed at once: then the kernel ends the API server alone."""
    workflow = working(project)
    left = those(project, "VLLM::")
    kill([psutil.Process(workflow.pid), *(process for process, command in commands(project) if "VLLM::" not in command)])
    workflow.wait(timeout=60)
    time.sleep(2)
    assert [process for process in left if process.is_running()]  # or this tests nothing
    workflow = working(project)
    assert not [process for process in left if process.is_running()]
    assert "ended what an earlier server had left: VLLM::" in project.said()
    workflow.send_signal(signal.SIGTERM)
    assert workflow.wait(timeout=60) != 0
    assert project.nothing_left()

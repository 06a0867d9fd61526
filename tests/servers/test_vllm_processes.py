"""Nothing of a vLLM outlives what holds it. It is three processes or more, of which two overwrite their names and variables."""

import os
import signal
import time
from contextlib import suppress

import psutil
import pytest
import yaml

from tests.support.launches import K8S, exports
from tests.support.project import LENIENT, Project
from tests.support.study import ROOT

pytestmark = [pytest.mark.long(part="vllm"), pytest.mark.timeout(600)]

CONFIG = {
    "study": {"title": "Killed", "ladders": [{"deployment": "one", "workload": "long", "request_rate": [0.5]}]},
    "models": {
        "one": {
            "config": {
                "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4,
                "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 512, "vocab_size": 512,
                "max_position_embeddings": 512,
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


def under_load(project, workflow, known):
    """Wait until vLLM is under load, in a run that is not `known`: before that, the session's own requests would notice its end."""
    end = time.monotonic() + 400
    while not any(file.stat().st_size for file in set(project.folder.glob(TELEMETRY)) - known):
        assert workflow.poll() is None, project.said()[-6000:]
        assert time.monotonic() < end, commands(project)
        time.sleep(0.1)
    assert those(project, "VLLM::EngineCore")
    assert those(project, "VLLM::Worker")


def working(project):
    """A workflow whose vLLM is under load."""
    known = set(project.folder.glob(TELEMETRY))
    workflow = project.start()
    under_load(project, workflow, known)
    return workflow


def kill(processes):
    """All at once: a guard is stopped first, or it acts on the end of another before its own turn.

    Nothing else is: a group with a stopped member gets SIGHUP from the kernel when its last parent outside it ends, and vLLM with it.
    """
    assert processes
    for process in processes:
        if "guard.py" in " ".join(process.cmdline()):
            process.suspend()
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(processes, timeout=30)  # each may hold the workflow's lock until then


def test_no_vllm_outlives_what_holds_it(project):
    """All of it is killed, then the guard, then the session, one after the other: a vLLM takes a quarter of a minute of a core to start.

    Processes that get lost as vLLM's do: tests/servers/test_server.py. make and Snakemake: tests/workflow/test_study_grows.py and
    test_workflow.py.
    """
    workflow = working(project)
    left = those(project, "VLLM::")
    kill([psutil.Process(workflow.pid), *(process for process, command in commands(project) if "VLLM::" not in command)])
    workflow.wait(timeout=60)
    workflow = working(project)
    assert not [process for process in left if process.is_running()]
    assert "ended what an earlier server had left: VLLM::" in project.said()  # the kernel ended the API server alone

    known, before, guards = set(project.folder.glob(TELEMETRY)), those(project, "VLLM::"), those(project, "guard.py")
    assert len(guards) == 1
    kill(guards)
    gone, alive = psutil.wait_procs(before, timeout=45)
    assert not alive, alive
    assert len(gone) >= 2

    under_load(project, workflow, known)  # another is started in its place
    kill(those(project, ".snakemake/scripts"))
    assert project.nothing_left()
    assert workflow.wait(timeout=60) != 0

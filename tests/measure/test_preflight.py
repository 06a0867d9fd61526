"""What would stop a session is found before anything is built or started: each fault is made here."""

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bench.measure.preflight import faults
from bench.runs.files import write_record
from bench.runs.paths import Paths
from bench.runs.store import Store
from bench.servers.server import Server
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.answering import answering
from tests.support.nvml import GPUS
from tests.support.project import Project
from tests.support.study import ROOT

MODELS = json.dumps({"data": [{"id": "org/model"}]})


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def found(content):
    return faults(Plan.of(load_config(content, source="t"), root=ROOT), Store(Path("store")))


def external(content, url, **deployment):
    content["engines"]["e"] = {"source": "external", "base_url": url}
    content["deployments"]["a"] = {"model": "m", "engine": "e", **deployment}
    return content


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_more_cores_and_memory_than_there_are(content):
    content["deployments"]["a"] |= {"cores": 5000, "kv_cache_memory": "900000GiB"}
    cores, fault = found(content)
    assert cores == (
        f"deployments.a: cores is 5000 (1 worker: 5000 together), but this process may use {len(os.sched_getaffinity(0))}. "
        "Lower cores or the deployment's parallelism."
    )
    memory = psutil.virtual_memory().total / 2**30
    assert "KV cache 900,000 GiB + engine 1.7 GiB take 900,001.7 GiB, and this machine has " in fault
    assert float(re.search(r"this machine has ([\d.,]+) GiB", fault)[1].replace(",", "")) == pytest.approx(memory, rel=5e-3)


def test_slots_of_llama_cpp_that_the_memory_does_not_hold(content):
    content["engines"]["e"] |= {"kind": "llama.cpp"}
    content["deployments"]["a"] |= {"kv_cache_memory": "100KiB", "max_num_seqs": 4}
    (fault,) = found(content)
    assert "4 slots (max_num_seqs) of 256 tokens, the fewest that llama.cpp makes, take 512 KiB" in fault
    assert fault.endswith("kv_cache_memory is 100 KiB. Raise it.")


def test_a_checkpoint_that_is_not_there(content):
    Path("here").mkdir()
    content["models"]["m"] = {"path": "here"}
    (fault,) = found(content)
    assert fault.startswith("models.m.path: here has no config.json")


def test_a_command_and_an_interpreter_that_are_not_there(content, monkeypatch):
    for engine, key in (
        ({"source": "command", "command": ["no-such-server"]}, "command: 'no-such-server'"),
        ({"source": "lock", "locks": ["requirements.lock"], "python": "python9"}, "python: 'python9'"),
    ):
        content["engines"]["e"] = engine
        monkeypatch.setenv("PATH", "/nowhere")
        assert f"engines.e.{key} is not on PATH. Install it, or name another one." in found(content)


def test_an_engine_that_is_ready_needs_nothing_on_path(content, tmp_path, monkeypatch):
    python = script(tmp_path / "python", "echo /nowhere/include")
    record = Path("results/engines/e/engine.json")
    record.parent.mkdir(parents=True)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("bench.servers.vllm.find_library", lambda _: None)
    monkeypatch.setattr("sys.platform", "linux")
    for engine, lacking in (
        (
            {"source": "lock", "locks": ["requirements.lock"], "python": "python9"},
            ["engines.e: vLLM's CPU build needs libnuma"],
        ),
        ({"source": "command", "command": ["no-such-server"]}, []),
    ):
        content["engines"]["e"] = engine
        (spec,) = Plan.of(load_config(content, source="t"), root=ROOT).deployments.values()
        ready = records.engine(source=engine["source"], command=(python,), locks=dict(spec.locks) or None)
        write_record(ready, record)
        assert [fault.partition(";")[0] for fault in found(content)] == lacking
        content["engines"]["e"] = {"source": "command", "command": ["no-such-server", "--of-another-definition"]}
        assert " is not on PATH. Install it" in found(content)[0]
        content["engines"]["e"] = engine
        write_record(replace(ready, command=("gone/python",)), record)
        assert found(content)[0].startswith(f"engines.e: {record} names 'gone/python', which is not there. Remove that file")


def test_a_gpu_engine_without_compiler_headers_and_gpus(content, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    python = script(tmp_path / "python", "echo /nowhere/include")
    content["engines"]["e"] = {"source": "lock", "backend": "cuda", "locks": ["requirements.lock"], "python": python}
    compiler, gpus = found(content)
    assert compiler.startswith("engines.e: vLLM's CUDA build compiles kernels when it starts and needs ")
    assert "Python's headers (/nowhere/include/Python.h); on Debian: apt-get install gcc python3-dev." in compiler
    assert gpus.startswith("deployments.a: needs 1 GPU, and CUDA_VISIBLE_DEVICES= shows 0.")


def test_more_gpus_than_there_are(content, monkeypatch, planted):
    planted(GPUS[0])
    content["engines"]["e"]["backend"] = "cuda"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert found(content) == []
    content["deployments"]["a"]["tensor_parallel"] = 2
    (fault,) = found(content)
    assert fault.startswith("deployments.a: needs 2 GPUs, and GPU 1: none of that name; NVML finds 0 (GPU-aaaa-0001).")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (fault,) = found(content)
    assert "needs 2 GPUs, and CUDA_VISIBLE_DEVICES=0 shows 1." in fault


def test_gpus_that_nvml_cannot_read_are_measured_all_the_same(content, monkeypatch):
    """As in a container without the driver's utilities. A machine without any driver has no GPU."""
    content["engines"]["e"]["backend"] = "cuda"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("ctypes.CDLL", lambda _: None)
    assert found(content) == []

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    (fault,) = found(content)
    assert fault.startswith("deployments.a: needs 1 GPU, and NVML cannot be loaded (")
    assert fault.endswith("libcuda.so.1 cannot be loaded either. Measure on a machine that has a GPU.")


def test_an_address_at_which_nothing_answers(content):
    with socket.socket() as bound:  # a port that is taken, and not by a server
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        (fault,) = found(external(content, url))
    assert fault.startswith(
        f"engines.e.base_url: no server answers at {url} (no such host, connection refused, or hung up without an answer in HTTP/1.1). Start it"
    )


def test_a_server_that_wants_a_key_gets_it(content, tmp_path, monkeypatch):
    def guarded(_, headers):
        return (200, {}, MODELS.encode()) if headers.get("authorization") == "Bearer right" else (401, {}, b"{}")

    with answering(guarded) as (url, _):
        external(content, f"{url}/v1", served_name="org/model")
        (fault,) = found(content)
        assert "answers 401: it wants an API key, or another one. Export it as OPENAI_API_KEY." in fault
        monkeypatch.setenv("OPENAI_API_KEY", "wrong")
        assert "an API key, or another one." in found(content)[0]
        launch = records.launch(device="cpu", argv=None, base_url=url)
        server = Server(launch, cores=1, workers=1, log=tmp_path / "log", ready_timeout_s=1, say=print)
        assert not server.answers()  # nor does the session take it for ready
        monkeypatch.setenv("OPENAI_API_KEY", "right")
        assert found(content) == []
        assert server.answers()


@pytest.mark.workflow
def test_a_checkpoint_that_the_hub_does_not_give(tmp_path):
    """The hub's own client, against a hub that answers as huggingface.co does."""
    info = {"id": "org/gated", "gated": "manual", "sha": "0" * 40, "siblings": [{"rfilename": "a.safetensors", "size": 2**60}]}

    def hub(path, headers):
        if "/missing/" in path:
            return 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"
        if path.endswith("/auth-check") and "authorization" not in headers:
            return 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted"}, b"{}"
        return 200, {"content-type": "application/json"}, json.dumps(info).encode()

    # The client reads its environment when it is imported.
    code = """
import os, sys
from bench.errors import BenchError
from bench.models.model import Model
from bench.models.hub import refuse_unfetchable
for repository in sys.argv[1:]:
    if "=" in repository:
        os.environ.update([repository.split("=")])
        continue
    try:
        refuse_unfetchable("m", Model(hub=f"{repository}@{'0' * 40}"))
    except BenchError as error:
        print(error)
"""

    def refusals(*repositories):
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        own = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "*"}
        command = [sys.executable, "-c", code, *repositories]
        return subprocess.run(command, env=clean | own, capture_output=True, text=True).stdout.splitlines()

    with answering(hub) as (url, _):
        gated, missing, large = refusals("org/gated", "missing/model", "HF_TOKEN=hf_x", "org/gated")
    (silent,) = refusals("org/gated")
    assert f"models.m.hub: {url} does not give org/gated at 000" in gated and "HF_TOKEN" in gated
    assert f"models.m.hub: {url} does not give missing/model at 000" in missing
    assert "takes 1,073,741,824 GiB, and" in large
    assert f"models.m.hub: {url} does not give org/gated at 000" in silent


def test_every_fault_is_named_at_once_and_none_where_nothing_is_to_be_measured(content, tmp_path):
    content["deployments"]["a"] |= {"cores": 5000, "kv_cache_memory": "900000GiB"}
    content["engines"]["e"]["command"] = ["no-such-server"]
    plan, store = Plan.of(load_config(content, source="t")), Store(tmp_path / "store")
    result = faults(plan, store)
    assert [fault.split()[0] for fault in result] == ["engines.e.command:", "deployments.a:", "deployments.a"]
    facts = Paths.facts("a")
    facts.parent.mkdir(parents=True)
    facts.write_text(json.dumps({"digest": plan.deployments["a"].digest}))
    for run in plan.runs:
        with store.adding(run) as place:
            (place / "run.json").write_text(json.dumps({"digest": run.digest}))
    assert faults(plan, store) == []


@pytest.mark.workflow
def test_the_workflow_names_them_and_starts_nothing(content, tmp_path):
    content["deployments"]["a"] |= {"cores": 5000}
    content["engines"]["e"]["command"] = ["no-such-server"]
    project = Project(tmp_path / "project", content)
    assert {"engine:engine=e"} <= set(project.run("--dry-run"))
    assert project.run(status=1) == []
    assert "nothing was started: this study cannot be measured here" in project.output
    assert "engines.e.command: 'no-such-server' is not on PATH" in project.output
    assert "deployments.a: cores is 5000 (1 worker: 5000 together), but this process may use" in project.output
    assert not (project.folder / "results/engines/e").exists()

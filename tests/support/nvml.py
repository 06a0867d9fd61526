"""GPUs that NVIDIA's binding finds, planted below it."""

import json
import os
import sys

import pytest

from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support.study import ROOT

FAKE = ROOT / "tests/support/fake_nvml"
GIB = 2**30


GPUS = [
    {"uuid": "GPU-aaaa-0001", "name": "NVIDIA H100 NVL", "watts": 310.5, "utilisation": 97, "used": 80 * GIB, "free": 13 * GIB},
    {"uuid": "GPU-bbbb-0002", "name": 'NVIDIA "H100"', "watts": 120.0, "utilisation": 41, "used": 84 * GIB, "free": 9 * GIB},
]


@pytest.fixture
def planted(monkeypatch):
    """Plant GPUs below NVIDIA's binding, in this process and those that it starts."""

    def plant(*gpus):
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)
        monkeypatch.setenv("FAKE_NVML", json.dumps(gpus))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(FAKE), os.environ.get("PYTHONPATH")])))
        monkeypatch.syspath_prepend(FAKE)

    yield plant
    sys.modules.pop("pynvml", None)


@pytest.fixture
def without_nvml(monkeypatch):
    """NVIDIA's binding on a machine without its driver."""
    import pynvml  # noqa: PLC0415 - the installed one, which others must not have replaced

    def missing(_name):
        raise OSError("no such library")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)


def cuda_spec(content, flags=None, *, source="command", telemetry=None, **deployment):
    content["engines"]["e"] = {"source": source, "backend": "cuda"}
    content["engines"]["e"] |= {"command": ["true"]} if source == "command" else {"base_url": "http://127.0.0.1:1"}
    content["deployments"]["a"] |= {"flags": flags or {}, **deployment}
    content["measurement"] = {"telemetry": telemetry or {}}
    return Plan.of(load_config(content, source="test")).deployments["a"]

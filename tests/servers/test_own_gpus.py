"""Sessions side by side on the planted GPUs of one machine: each has its own."""

import os
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from bench.measure import gpus as module
from bench.measure.gpus import own_gpus
from bench.servers.gpus import least_memory
from tests.support.nvml import GPUS, cuda_spec
from tests.support.server import eventually

FOUR = [{**GPUS[0], "uuid": f"GPU-{i}"} for i in range(4)]


def shown(spec, stack, **environment):
    """What a session sees that begins now, and goes on until `stack` closes."""
    stack.enter_context(own_gpus(spec, environment, pytest.fail, prefix=f"test-{os.getpid()}"))
    return environment.get("CUDA_VISIBLE_DEVICES")


def test_sessions_take_gpus_that_no_other_has(planted, content):
    planted(*FOUR)
    spec = cuda_spec(content, tensor_parallel=2)
    with ExitStack() as first:
        assert shown(spec, first) == "0,1"
        with ExitStack() as second:
            assert shown(spec, second) == "2,3"
    with ExitStack() as third:  # what has ended gives its GPUs back
        assert shown(spec, third) == "0,1"


def test_those_that_are_shown_are_chosen_from(planted, content):
    planted(*FOUR)
    spec = cuda_spec(content)
    with ExitStack() as stack:
        assert shown(spec, stack, CUDA_VISIBLE_DEVICES="3,GPU-1") == "3"
        assert shown(spec, stack, CUDA_VISIBLE_DEVICES="GPU-3,GPU-1") == "GPU-1"  # GPU-3 is taken, by its index
        own = cuda_spec(content, environment={"CUDA_VISIBLE_DEVICES": "2"})
        assert shown(own, stack) == "2"
        assert shown(spec, stack) == "0"


def test_a_session_waits_for_a_gpu(planted, content, monkeypatch):
    planted(FOUR[0])
    spec, said = cuda_spec(content), []
    got = {}

    def session():
        with own_gpus(spec, got, said.append, prefix=f"test-{os.getpid()}"):
            got["at"] = time.monotonic()

    looks = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: (looks.append(1), time.sleep(0.01))))
    with ExitStack() as first:
        shown(spec, first)
        waiting = threading.Thread(target=session)
        waiting.start()
        assert eventually(lambda: len(looks) > 2)
        released = time.monotonic()
    waiting.join()
    assert said == ["a: waiting for 1 of GPUs 0; other sessions have them"]
    assert got["at"] >= released


def test_nothing_is_chosen_where_gpus_are_given_or_hidden_or_unknown(planted, content):
    planted(*FOUR)
    with ExitStack() as stack:
        assert shown(cuda_spec(content), stack, CUDA_VISIBLE_DEVICES="1,2", SLURM_JOB_ID="7") == "1,2"
        assert shown(cuda_spec(content), stack, CUDA_VISIBLE_DEVICES="") == ""
        assert shown(cuda_spec(content, source="external"), stack) is None
        content["engines"]["e"] = {"source": "command", "command": ["true"]}


# Instances of a GPU that is divided: each is a device of its own memory, whatever its GPU is called.

MIB = 2**20
COMMON = {"watts": 90.0, "utilisation": 0, "used": 0, "free": 0}
WHOLE = {**COMMON, "uuid": "GPU-aaaa", "name": "NVIDIA H100 80GB HBM3", "total": 81559 * MIB, "mig": 0}
# `nvidia-smi --query-gpu=memory.total` says 81559 MiB of this one, too.
CUT = {**WHOLE, "uuid": "GPU-bbbb", "mig": 1, "instances": ["MIG-4g", "MIG-1g"], "slices": [40448 * MIB, 9984 * MIB]}
OLD = {**COMMON, "uuid": "GPU-cccc", "name": "Tesla T4", "total": 15360 * MIB}


def test_the_memory_that_a_server_gets(planted):
    for gpus, shown, mib in (
        ([WHOLE], None, 81559),
        ([OLD, WHOLE], None, 15360),
        ([OLD, WHOLE], "1", 81559),
        ([OLD, WHOLE], "GPU-aa", 81559),
        ([CUT], None, 9984),
        ([CUT], "MIG-4g", 40448),
        ([CUT], "MIG-1g", 9984),
        ([CUT], "0", 9984),
        ([WHOLE, CUT], "0", 81559),
        ([WHOLE, CUT], "0,-1,1", 81559),
        ([{**CUT, "instances": [], "slices": []}], None, None),  # in MIG mode and not divided: CUDA shows nothing
        ([WHOLE], "", None),
        ([{**WHOLE, "instances": ["MIG-4g"], "slices": [MIB]}], None, 81559),  # no longer in MIG mode
    ):
        planted(*gpus)
        environment = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
        assert least_memory(environment) == (None if mib is None else mib * MIB), (gpus, shown)


@pytest.mark.usefixtures("without_nvml")
def test_without_nvml_the_server_gets_what_this_process_has(content):
    with ExitStack() as stack:
        assert shown(cuda_spec(content), stack) is None

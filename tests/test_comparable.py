"""A deployment's runs come from one machine and one engine version."""

import json

import pytest
from benchmarks.made import made_facts, made_study, make_run

from bench.engine import hardware
from bench.errors import BenchError
from bench.measure.comparable import refuse_another_machine, refuse_another_version
from bench.measure.state import facts_key
from bench.measure.store import Store
from bench.study import Plan, load_config

GPU = {"name": "NVIDIA H100 80GB HBM3", "driver_version": "580"}


def held(folder, told, **engine):
    """A plan, and a store with one run and the facts of a machine."""
    content = made_study(4, 4)
    content["engines"]["none"] |= engine
    plan = Plan.of(load_config(content, source="made"))
    run, store = plan.runs[0], Store(folder)
    with store.adding(run.digest) as place:
        make_run(run, place)
    with store.adding(facts_key(run.deployment)) as place:
        (place / "deployment.json").write_text(json.dumps(made_facts(run.deployment) | {"hardware": hardware() | told}))
    return plan, run, store


@pytest.mark.parametrize(
    ("told", "engine", "then"),
    [
        ({"cpu": "Another CPU"}, {}, "Another CPU"),
        ({"gpus": [GPU, GPU]}, {"device": "cuda"}, "NVIDIA H100 80GB HBM3"),
    ],
)
def test_a_level_more_on_another_machine_is_refused(tmp_path, told, engine, then):
    plan, run, store = held(tmp_path, told, **engine)
    with pytest.raises(
        BenchError, match=rf"d000: its runs so far were measured on {then}, and this is .*`bench discard 'd000/\*'`"
    ):
        refuse_another_machine(plan, run.deployment, store)
    store.discard(run.digest)
    refuse_another_machine(plan, run.deployment, store)  # nothing left that would not compare


def test_the_same_machine_after_an_update_goes_on(tmp_path):
    plan, run, store = held(tmp_path, {"system": "Linux 99", "memory_bytes": 1, "python": "3.99"})
    refuse_another_machine(plan, run.deployment, store)


def test_a_level_more_on_another_version_is_refused(tmp_path):
    plan, run, store = held(tmp_path, {})
    version = json.loads((store.folder(run.digest) / "run.json").read_text())["engine_version"]
    refuse_another_version(plan, run.deployment, store, version)
    with pytest.raises(BenchError, match=rf"d000: the engine is now version 99, but .* was measured on {version}"):
        refuse_another_version(plan, run.deployment, store, "99")

"""A deployment's runs come from one device and one engine version."""

import json

import pytest

from bench.engine import hardware
from bench.errors import BenchError
from bench.measure.comparable import hardware_of, refuse_another_version, refuse_other_hardware
from bench.measure.session import measure
from bench.records.files import write_record
from bench.store import Store
from bench.study import Plan, load_config
from tests.support import records
from tests.support.made import made_study, make_run


def held(folder, select="*", **result):
    """A plan of which the first run is in a store, with what its record tells."""
    content = made_study(4, 4)
    run, store = Plan.of(load_config(content, source="made")).runs[0], Store(folder)
    with store.adding(run) as place:
        make_run(run, place)
        record = json.loads((place / "run.json").read_text())
        (place / "run.json").write_text(json.dumps(record | result))
    return Plan.of(load_config(content | {"select": select}, source="made")), run, store


@pytest.mark.parametrize("select", ["*", "*_c0004_*"])
def test_a_level_more_on_another_device_is_refused_before_any_server_starts(tmp_path, select):
    plan, run, store = held(tmp_path / "store", select, device="Another CPU")
    launch = tmp_path / "launch.json"
    write_record(records.launch(deployment="d000", argv=("true",), digest=run.deployment.digest), launch)
    with pytest.raises(
        BenchError, match=r"d000: this is .*, but d000/.* was measured on Another CPU.*`bench discard 'd000/\*'`"
    ):
        measure(plan, "d000", plan.runs, launch=launch, facts=tmp_path / "deployment.json", store=store, say=print)
    store.discard(run)
    refuse_other_hardware(plan, run.deployment, store, hardware_of(run.deployment))  # nothing left that would not compare


def test_a_level_more_on_the_same_device_goes_on(tmp_path):
    plan, run, store = held(tmp_path, device=hardware().cpu)
    refuse_other_hardware(plan, run.deployment, store, hardware_of(run.deployment))
    plan, run, store = held(tmp_path / "older")  # of a version that did not tell
    refuse_other_hardware(plan, run.deployment, store, hardware_of(run.deployment))


def test_a_level_more_on_another_version_is_refused(tmp_path):
    plan, run, store = held(tmp_path, engine_version="0.26.0")
    refuse_another_version(plan, run.deployment, store, "0.26.0")
    with pytest.raises(BenchError, match=r"d000: the engine is now version 99, but d000/.* was measured on 0\.26\.0"):
        refuse_another_version(plan, run.deployment, store, "99")


def test_a_level_more_behind_another_version_of_the_router_is_refused(tmp_path):
    plan, run, store = held(tmp_path, engine_version="0.26.0", router_version="2.6.1")
    refuse_another_version(plan, run.deployment, store, "0.26.0", "2.6.1")
    refuse_another_version(plan, run.deployment, store, "0.26.0", None)  # not known is not different
    with pytest.raises(BenchError, match=r"d000: the router is now version 3, but d000/.* was measured behind 2\.6\.1"):
        refuse_another_version(plan, run.deployment, store, "0.26.0", "3")


def test_a_launch_of_another_machine_is_named_and_not_started(tmp_path):
    plan, _, store = held(tmp_path / "store", "*_c0004_*")
    launch = tmp_path / "launch.json"
    write_record(records.launch(deployment="d000", argv=("results/engines/none/env/bin/python", "-m", "x")), launch)
    with pytest.raises(
        BenchError, match=r"d000: results/engines/none/env/bin/python is not here; .*remove results/deployments/d000"
    ):
        measure(plan, "d000", plan.runs, launch=launch, facts=tmp_path / "deployment.json", store=store, say=print)

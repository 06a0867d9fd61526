"""A tuning in a pack: its files, and the runs of its visits, arrive with the study's own or not at all."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.records.files import write_record
from bench.records.tuning import Visits, read_tuning, read_visits
from bench.store import Store
from bench.store.pack import pack
from bench.store.unpack import unpack
from bench.study import Paths, Plan, load_config
from tests.support import records
from tests.support.made import make_run
from tests.support.stores import fill_store
from tests.support.tuning import competing, record


@pytest.fixture
def packed(content, tmp_path, monkeypatch):
    """A pack of a study whose three servers competed, and the digests of its visits' runs."""
    competing(content)
    content["study"]["ladders"] = [{"deployment": "a", "workload": "w", "request_rate": [1]}]
    content["workloads"]["w"]["num_requests"] = 4
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    monkeypatch.chdir(there)
    plan = Plan.of(load_config(content, source="test"))
    fill_store(plan, there, series=3)
    competition = plan.competition()
    visits = [search.run(2.0, 4, 1) for search in competition.searches]
    for run in visits:
        with Store().adding(run) as place:
            make_run(run, place, series=3)
    for spec in competition.deployments.values():
        launch = records.launch(deployment=spec.name, digest=spec.digest)
        write_record(launch, Path(Paths.LAUNCH.format(deployment=spec.name)))
    for found, place in (
        (replace(record(), digest=plan.tuning_digest), Paths.TUNING),
        (Visits(digest=plan.tuning_digest, visits=record().visits), Paths.VISITS),
    ):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        write_record(found, Path(place))
    pack(plan, content, tmp_path / "tuned.tar.gz", Store())
    monkeypatch.chdir(here)
    return tmp_path / "tuned.tar.gz", plan, {run.digest for run in visits}


def test_a_pack_takes_a_tuning_and_the_runs_of_its_visits_along(packed):
    file, plan, digests = packed
    arrived = unpack(file, Store())
    assert len(arrived.runs) == 3 + len(digests)
    assert {run.digest for run in plan.competition().runs} == digests
    assert read_tuning(Path(Paths.TUNING)) == replace(record(), digest=plan.tuning_digest)
    assert len(read_visits(Path(Paths.VISITS), plan.tuning_digest).visits) == len(record().visits)
    assert len(unpack(file, Store()).runs) == len(arrived.runs)


def test_another_tuning_is_never_replaced(packed):
    file, *_ = packed
    Path(Paths.VISITS).parent.mkdir(parents=True)
    write_record(Visits(digest="another"), Path(Paths.VISITS))
    with pytest.raises(BenchError, match=r"visits\.json is here, of another tuning"):
        unpack(file, Store())
    assert not list(Path(Paths.RUNS).glob("*/*"))

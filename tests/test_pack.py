"""What is measured on one machine is drawn on another, whole or not at all."""

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from benchmarks.workflow import SNAKEMAKE, copy_project, fill_store, write_study

import bench.study.plan
from bench.cli import main
from bench.measure.pack import pack, unpack
from bench.measure.state import facts_key, run_states
from bench.measure.store import Store
from bench.study import Paths, Plan, load_file

CONFIG = Path("config/config.yaml")
STORE = Path(Paths.STORE)


def workflow(*arguments):
    done = subprocess.run([str(SNAKEMAKE), "--nolock", "--cores", "1", *arguments], capture_output=True, text=True)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-3000:]
    return {
        line.removeprefix("local").split()[1].rstrip(":")
        for line in told.splitlines()
        if line.startswith(("rule ", "localrule "))
    }


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A project in which the workflow put a study's runs in place, and its pack."""
    folder = tmp_path_factory.mktemp("there").resolve()
    copy_project(folder)
    fill_store(write_study(folder, 4, 2), folder, series=350)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert {"measure_d000", "measure_d001", "measured"} < workflow("measured")
        assert main(["pack"]) == 0
    return folder


@pytest.fixture
def packed(there):
    return there / "results/packs/config.tar.gz"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to take a pack in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def states(study):
    return {run.key: state for run, state in run_states(Plan.of(load_file(study)), Store(STORE), {})}


def rewritten(packed, target, change):
    """The pack with the members that `change` gives: a dict from name to bytes in, another out."""
    with tarfile.open(packed) as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}
    with tarfile.open(target, "w:gz") as tar:
        for name, content in change(members).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return target


def test_a_pack_is_drawn_elsewhere_without_an_engine_or_a_measurement(packed, tmp_path, monkeypatch, capsys):
    copy_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["unpack", str(packed)]) == 0
    study = "results/packs/config/study.yaml"
    assert capsys.readouterr().out == f"{packed}: 4 runs\nNow: make figures CONFIG={study}\n"
    assert set(states(Path(study)).values()) == {"measured"}
    jobs = workflow("--configfile", study, "--", "results/figures/ttft.svg", "results/report.html")
    assert jobs == {"parse", "aggregate", "figure", "report"}
    assert workflow("--dry-run", "--configfile", study, "--", "results/figures/ttft.svg", "results/report.html") == set()
    beside = Path("results/packs/config")
    assert sorted(p.name for p in beside.iterdir()) == ["engines", "logs", "pack.json", "study.yaml"]
    assert json.loads((beside / "pack.json").read_text())["protocol"] == bench.study.plan.PROTOCOL


def test_a_study_that_was_interrupted_is_packed_without_what_is_missing(there, tmp_path, monkeypatch, capsys):
    shutil.copytree(there, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    plan = Plan.of(load_file(CONFIG))
    lost, unplaced = plan.runs[1], plan.runs[2]  # one never measured, one of a session that did not end: in the store alone
    for run in (lost, unplaced):
        shutil.rmtree(run.record.parent)
    shutil.rmtree(STORE / lost.digest)
    assert main(["pack", "--output", "partial.tar.gz"]) == 0
    assert f"3 runs; 1 of the study are not measured, such as {lost.key}, and are left out" in capsys.readouterr().out
    shutil.rmtree("results")
    assert main(["unpack", "partial.tar.gz"]) == 0
    assert states(Path("results/packs/partial/study.yaml")) == {run.key: "measured" for run in plan.runs if run != lost}
    assert states(CONFIG)[lost.key] == "missing"


def test_a_selection_is_packed_as_such(there, monkeypatch, here):
    monkeypatch.chdir(there)
    assert main(["pack", "--select", "d001/*", "--output", str(here / "one.tar.gz")]) == 0
    monkeypatch.chdir(here)
    done = unpack(here / "one.tar.gz", Store(STORE))
    assert (len(done.runs), done.missing) == (2, ())
    assert yaml.safe_load(done.study.read_text())["select"] == "d001/*"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda m: {**m, next(n for n in m if n.endswith("requests.jsonl")): b"{}"},
            "1 of its files are missing or are not what was",
        ),
        (lambda m: {n: c for n, c in m.items() if not n.endswith("launch.json")}, "2 of its files are missing"),
        (lambda m: {**m, "runs/more.txt": b""}, "1 of its files are missing or are not what was packed, such as runs/more.txt"),
        (lambda m: {**m, "../evil": b""}, "no pack, or not whole"),
        (lambda m: {**m, "pack.json": b'{"format": 2, "files": {}}'}, "a pack of format 2, and this version reads 1"),
        (lambda m: {n: c for n, c in m.items() if n != "pack.json"}, "it has no pack.json"),
    ],
)
def test_what_is_not_as_it_was_packed_is_refused_and_changes_nothing(packed, here, capsys, change, told):
    assert main(["unpack", str(rewritten(packed, here / "wrong.tar.gz", change))]) == 2
    assert told in capsys.readouterr().err
    assert sorted(p.name for p in here.iterdir()) == ["results", "wrong.tar.gz"]
    assert list((here / "results").iterdir()) == []


def test_a_file_that_is_no_pack_is_named(packed, here, capsys):
    (here / "half.tar.gz").write_bytes(packed.read_bytes()[:2000])
    for name, told in (("half.tar.gz", "half.tar.gz: no pack, or not whole"), ("none.tar.gz", "none.tar.gz: no such file")):
        assert main(["unpack", name]) == 2
        assert told in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_runs_that_these_sources_define_otherwise_are_refused(packed, monkeypatch):
    monkeypatch.setattr(bench.study.plan, "PROTOCOL", 99)
    with pytest.raises(bench.errors.BenchError, match=r"4 of its 4 runs are defined otherwise.*clone of the commit"):
        unpack(packed, Store(STORE))


@pytest.mark.usefixtures("here")
def test_another_measurement_is_replaced_only_when_told(packed, capsys):
    store = Store(STORE)
    done = unpack(packed, store)
    plan = Plan.of(load_file(done.study))
    assert main(["unpack", str(packed)]) == 0  # the same once more is no other
    run = plan.runs[0]
    own = json.loads(run.record.read_text()) | {"started": "2026-01-01T00:00:00+00:00"}
    run.record.unlink()
    run.record.write_text(json.dumps(own))
    assert main(["unpack", str(packed)]) == 2
    assert f"1 of its 4 runs are here in another measurement, such as {run.key}" in capsys.readouterr().err
    assert json.loads(run.record.read_text()) == own
    assert main(["unpack", str(packed), "--replace"]) == 0
    assert json.loads(run.record.read_text()) != own
    assert (store.folder(run.digest) / "run.json").read_bytes() == run.record.read_bytes()
    assert store.holds(facts_key(run.deployment))


def test_nothing_measured_is_nothing_to_pack(there, here):
    shutil.copy(there / CONFIG, here / "study.yaml")
    with pytest.raises(bench.errors.BenchError, match="no run of this study is measured here"):
        pack(Plan.of(load_file(here / "study.yaml")), {}, here / "x.tar.gz", Store(STORE))
    assert not (here / "x.tar.gz").exists()

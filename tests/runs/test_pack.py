"""What is measured on one machine is drawn on another, whole or not at all."""

import fcntl
import json
import os
import shlex
import shutil
import tarfile
from pathlib import Path

import pytest

import bench.study.specs
from bench.beside.archive.pack import pack
from bench.beside.archive.unpack import unpack
from bench.cli import main
from bench.errors import BenchError
from bench.runs.paths import Paths
from bench.runs.store import Store
from bench.study.begin import begin
from bench.study.plan import Plan
from bench.study.read import load_file
from bench.study.state import kept_facts, run_states
from tests.support.forked import snakemake
from tests.support.packs import listed_anew, rewritten
from tests.support.project import copied_project
from tests.support.stores import fill_store, write_study

CONFIG = Path("config/config.yaml")


def workflow(*arguments):
    done = snakemake("--nolock", "--cores", "1", "--printshellcmds", *arguments, folder=Path())
    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-3000:]
    return {
        line.removeprefix("local").split()[1].rstrip(":")
        for line in told.splitlines()
        if line.startswith(("rule ", "localrule "))
    }


def launches(plan):
    return [Paths.LAUNCH.format(deployment=name) for name in plan.deployments]


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A project in which the workflow put a study's runs in place, and its pack."""
    folder = tmp_path_factory.mktemp("there").resolve()
    copied_project(folder)
    fill_store(write_study(folder, 4, 2), folder, series=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("logs/measure/d000").mkdir(parents=True)
        Path("logs/measure/d000/1.log").write_text("d000: ready")
        assert "deploy" in workflow(*launches(Plan.of(load_file(CONFIG))))
        Path(Paths.facts("d000")).with_name("server.log").write_text("started with --api-key sk-of-mine")
        patch.setenv("VLLM_API_KEY", "sk-of-mine")
        assert main(["pack"]) == 0
    return folder


@pytest.fixture
def packed(there):
    return there / "results/packs/config.tar.gz"


@pytest.fixture
def copy(there, tmp_path, monkeypatch):
    """A copy of the project that measured, to damage."""
    folder = tmp_path / "copy"
    shutil.copytree(there, folder)
    monkeypatch.chdir(folder)
    return folder


def states(study):
    return {run.key: state for run, state in run_states(Plan.of(load_file(study)), Store(), ())}


def test_what_a_log_says_of_a_secret_is_not_packed(packed):
    with tarfile.open(packed) as tar:
        logs = [tar.extractfile(member).read() for member in tar if member.name.endswith("server.log")]
    assert any(b"started with" in log for log in logs) and not any(b"sk-of-mine" in log for log in logs)


@pytest.mark.workflow
def test_the_next_command_of_unpack_works_where_it_is_printed(packed, here, monkeypatch, capsys):
    """In an empty folder, beside another project's Makefile, and in a folder of `bench init`."""
    for files in ((), ("Makefile",), ("Snakefile",)):
        folder = here / "-".join(("in", *files))
        folder.mkdir()
        if "Snakefile" in files:
            begin(folder)
        for name in files:
            (folder / name).touch()
        monkeypatch.chdir(folder)
        assert main(["unpack", str(packed)]) == 0
        command = capsys.readouterr().out.splitlines()[-1].removeprefix("Now: ")
        program, *words = shlex.split(command)
        assert program.endswith("snakemake"), files
        if "Makefile" not in files:  # where it is as in an empty folder
            done = snakemake("--dry-run", *words, folder=folder)
            assert (done.returncode, "rule report:" in done.stdout + done.stderr) == (0, True), done.stderr


@pytest.mark.workflow
def test_a_pack_is_drawn_elsewhere_without_an_engine_or_a_measurement(packed, tmp_path, monkeypatch, capsys):
    copied_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["unpack", str(packed)]) == 0
    study = "results/packs/config/study.yaml"
    assert capsys.readouterr().out == f"{packed}: 4 runs\nNow: make figures CONFIG={study}\n"
    assert set(states(Path(study)).values()) == {"measured"}
    jobs = workflow("--configfile", study, "--", "results/figures/memory-pressure.svg")
    assert jobs == {"parse", "aggregate", "analyse", "figure"}
    shutil.rmtree(Plan.of(load_file(Path(study))).runs[1].record.parent)
    done = snakemake("--nolock", "--cores", "1", "--configfile", study, folder=tmp_path)
    assert done.returncode != 0
    assert "the pack lacks 1 of its 4 runs, such as d000/" in done.stdout + done.stderr
    beside = Path("results/packs/config")
    assert sorted(p.name for p in beside.iterdir()) == ["engines", "logs", "pack.json", "study.yaml"]
    assert json.loads((beside / "pack.json").read_text())["protocol"] == bench.study.specs.PROTOCOL


@pytest.mark.usefixtures("copy")
def test_a_study_that_was_interrupted_is_packed_without_what_is_missing_or_damaged(capsys):
    plan = Plan.of(load_file(CONFIG))
    lost, damaged = plan.runs[1:3]
    shutil.rmtree(lost.record.parent)
    os.truncate(damaged.record.parent / "requests.jsonl", 100)
    assert main(["pack", "--output", "partial.tar.gz"]) == 0
    assert f"2 runs; 2 of the study are left out, not measured or damaged, such as {lost.key}" in capsys.readouterr().out
    shutil.rmtree("results")
    assert main(["unpack", "partial.tar.gz"]) == 0
    whole = {run.key: "measured" for run in plan.runs if run not in (lost, damaged)}
    assert states(Path("results/packs/partial/study.yaml")) == whole
    assert states(CONFIG)[lost.key] == "missing"


def named(members, ending):
    return next(name for name in members if name.endswith(ending))


def lacks(members, *endings):
    return {name: content for name, content in members.items() if not name.endswith(endings)}


NO_RECORD = "not a valid run.json"
OTHERWISE = {
    "a run's file": (lambda m: {**m, named(m, "requests.jsonl"): b"{}"}, "1 of its files are missing or are not what was"),
    "two launches less": (lambda m: lacks(m, "launch.json"), "2 of its files are missing"),
    "a file more": (lambda m: {**m, "runs/a/b/more": b""}, "1 of its files are missing or are not what was packed, such as runs/a/b/more"),
    "a file elsewhere": (lambda m: {**m, "../evil": b""}, "not a whole pack"),
    "another format": (lambda m: {**m, "pack.json": b'{"format": 2, "files": {}, "runs": {}}'}, "its format is 2, but this version reads 1"),
    "no list": (lambda m: lacks(m, "pack.json"), "it has no pack.json"),
    "no record": (lambda m: without(m, "run.json"), ": not the run that the pack's study defines"),
    "no requests": (lambda m: without(m, "requests.jsonl"), "requests.jsonl: missing"),
    "no launch": (lambda m: without(m, "launch.json"), "launch.json: not that of the pack's study"),
    "no text": (lambda m: holding(m, "study.yaml", b"study: \xff"), "not UTF-8"),
    "too deep": (lambda m: holding(m, "study.yaml", b"[" * 5000), "nested more than"),
    "no files": (lambda m: holding(m, "run.json", b'{"digest": DIGEST, "files": 5}'), NO_RECORD),
    "files elsewhere": (lambda m: holding(m, "run.json", b'{"digest": DIGEST, "files": {"../../../../x": "0"}}'), NO_RECORD),
    "no checksum": (lambda m: holding(m, "run.json", b'{"digest": DIGEST, "files": {"requests.jsonl": 5}}'), NO_RECORD),
    "a record of bytes": (lambda m: holding(m, "run.json", b"\xff"), NO_RECORD),
}  # fmt: skip


def without(members, name):
    """A pack that agrees with itself and lacks a file of a run."""
    index = json.loads(members["pack.json"])
    lost = named(members, name)
    del index["files"][lost]
    return {n: json.dumps(index).encode() if n == "pack.json" else c for n, c in members.items() if n != lost}


def holding(members, name, content):
    """A pack that agrees with itself and holds something else."""
    other = named(members, name)
    digest = json.loads(members["pack.json"])["runs"].get(other.removeprefix("runs/").removesuffix("/run.json"), "")
    return listed_anew(members, {other: content.replace(b"DIGEST", json.dumps(digest).encode())})


@pytest.mark.parametrize("half", [0, 1])  # each takes a second
def test_what_is_not_as_it_was_packed_is_refused_and_changes_nothing(packed, here, capsys, half):
    for what, (change, told) in list(OTHERWISE.items())[half::2]:
        assert main(["unpack", str(rewritten(packed, here / "wrong.tar.gz", change))]) == 2, what
        assert told in capsys.readouterr().err, what
        assert [p for p in (here / "results").rglob("*") if p.is_file()] == [], what


def test_a_file_that_is_no_pack_is_named(packed, here, capsys):
    (here / "half.tar.gz").write_bytes(packed.read_bytes()[:2000])
    for name in ("h100", "...tar.gz"):
        shutil.copy(packed, here / name)
    for name, told in (
        ("half.tar.gz", "half.tar.gz: not a whole pack"),
        ("none.tar.gz", "none.tar.gz: no such file"),
        ("h100", "rename it to something like h100.tar.gz"),
        ("...tar.gz", "rename it to something like h100.tar.gz"),
    ):
        assert main(["unpack", name]) == 2
        assert told in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_runs_that_these_sources_define_otherwise_are_refused(packed, monkeypatch):
    monkeypatch.setattr(bench.study.specs, "PROTOCOL", 99)
    with pytest.raises(BenchError, match=r"these sources define 4 of 4 runs differently.*clone of the commit"):
        unpack(packed, Store())


def test_a_study_that_these_sources_do_not_take_names_the_commit(packed, here):
    def foreign(members):
        index = json.dumps({**json.loads(members["pack.json"]), "commit": "4c1ebdf"}).encode()
        study = members["study.yaml"].replace(b"kv_cache_memory", b"kv_memory")
        return listed_anew({**members, "pack.json": index}, {"study.yaml": study})

    with pytest.raises(BenchError, match=r"(?s)reject its study:.*kv_memory.*clone of the commit that packed it, 4c1ebdf"):
        unpack(rewritten(packed, here / "foreign.tar.gz", foreign), Store())


def test_two_measurements_of_a_deployment_are_never_mixed(packed, here, monkeypatch, capsys):
    for what in ("run.json", "launch.json", "deployment.json"):
        (here / what).mkdir()
        monkeypatch.chdir(here / what)
        _, study = unpack(packed, Store())
        assert main(["unpack", str(packed)]) == 0  # the same once more is no other
        run = Plan.of(load_file(study)).runs[0]
        own = run.record if what == "run.json" else Path("results/deployments/d000") / what
        if what != "run.json":
            # With all its runs in place, the pack would put its launch and facts there too.
            shutil.rmtree("results/runs/d000")
        other = own.read_text() + " "
        own.write_text(other)
        capsys.readouterr()
        assert main(["unpack", str(packed)]) == 2
        said = f"deployment d000 was measured differently here ({own}), and measurements are never mixed."
        assert said in capsys.readouterr().err
        assert own.read_text() == other


def test_a_later_pack_of_a_session_that_went_on_replaces_the_earlier_one(copy, here, monkeypatch, capsys):
    """New facts, the same runs and one more; but never into runs that the pack does not have."""
    monkeypatch.chdir(copy)
    assert main(["pack", "--select", "d000/*c0002_r1*", "--output", str(here / "first.tar.gz")]) == 0
    spec = Plan.of(load_file(CONFIG)).deployments["d000"]
    facts = Paths.facts("d000")
    kept_facts(spec, facts).write_text(json.dumps(json.loads(facts.read_text()) | {"ready_s": 99.0}))
    for name, select in (("whole", "d000/*"), ("other", "d000/*c0002_r2*")):
        assert main(["pack", "--select", select, "--output", str(here / f"{name}.tar.gz")]) == 0
    monkeypatch.chdir(here)
    assert main(["unpack", "first.tar.gz"]) == 0
    assert main(["unpack", "other.tar.gz"]) == 2
    assert "deployment d000 was measured differently here (results/deployments/d000/deployment.json)" in capsys.readouterr().err
    shutil.move("whole.tar.gz", "first.tar.gz")  # as `make pack` names both
    assert main(["unpack", "first.tar.gz"]) == 0
    assert json.loads(Path("results/deployments/d000/deployment.json").read_text())["ready_s"] == 99.0
    assert set(states(Path("results/packs/first/study.yaml")).values()) == {"measured"}
    Path("results/packs/first/pack.json").write_text("half of")  # and nobody knows which runs it had
    assert main(["unpack", "first.tar.gz"]) == 2
    assert "results/packs/first has a pack of the same name with other runs" in capsys.readouterr().err


def test_no_pack_is_taken_in_while_a_workflow_runs(packed, here, capsys):
    with (here / ".snakemake.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["unpack", str(packed)]) == 2
    assert "Another workflow runs in this folder" in capsys.readouterr().err


def test_nothing_measured_is_nothing_to_pack(there, here):
    shutil.copy(there / CONFIG, here / "study.yaml")
    with pytest.raises(BenchError, match="no run of this study is measured here"):
        pack(Plan.of(load_file(here / "study.yaml")), {}, here / "x.tar.gz", Store())
    assert not (here / "x.tar.gz").exists()


@pytest.mark.usefixtures("copy")
def test_another_study_s_launch_is_not_packed(capsys):
    launch = Path("results/deployments/d001/launch.json")
    launch.write_text(json.dumps(json.loads(launch.read_text()) | {"digest": "0" * 64}))
    assert main(["pack", "--output", "x.tar.gz"]) == 2
    assert f"{launch} is missing, or belongs to another study with a deployment d001" in capsys.readouterr().err

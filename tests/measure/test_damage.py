"""What has no room, and what is damaged or foreign in the results, made for real. docs/explanation/faults.md lists these faults too."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.findings.registry import draw_figure
from bench.findings.report import write_report
from bench.models.gguf import gguf_of
from bench.models.model import whole_config
from bench.parse.run import parse_run
from bench.parse.table import aggregate
from bench.parse.validity import verdict
from bench.runs.files import write_record
from bench.runs.paths import Paths
from bench.runs.summary import read_run_summary
from bench.study.config import Thresholds
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.state import unmeasured_sessions, write_index
from bench.workflow import job
from tests.support import records
from tests.support.fake_server import fake_server
from tests.support.faulty import EXPOSITION, VERSION, Study
from tests.support.figures import results
from tests.support.made import made_study, make_run
from tests.support.project import BIN
from tests.support.study import ROOT, TINY
from tests.support.summaries import written
from tests.support.verdicts import CALM

KILLS = pytest.mark.long(part="kills")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """Results go below the working directory."""
    monkeypatch.chdir(tmp_path)


# Disks.


@pytest.fixture
def disk(tmp_path):
    """A small disk at `results`, and what changes it."""
    folder = tmp_path / "results"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", folder], check=True)


class Disk:
    def __init__(self, folder):
        self.folder = folder

    def change(self, options):
        subprocess.run(["mount", "-o", f"remount,{options}", self.folder], check=True)

    def files(self):
        """Files and folders that it counts."""
        usage = os.statvfs(self.folder)
        return usage.f_files - usage.f_ffree

    def fill(self):
        with (self.folder / "filler").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def empty(self):
        (self.folder / "filler").unlink()


def refused(call, capfd):
    """What a job of the workflow prints that calls `call` and fails."""
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        with pytest.raises(SystemExit) as ended, job("job.log"):
            call()
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(number, handler)
    told = capfd.readouterr().err
    assert ended.value.code == 1
    assert "Traceback" not in told, told
    return told


@KILLS
def test_a_disk_that_is_full_at_any_file_of_a_session(content, disk, capfd):
    """It takes one file more each time, until all are written."""
    told, kept = [], {}
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION) as server:
        study = Study(content, server.base_url, levels=[2])
        files = disk.files()
        for more in range(1, 40):
            disk.change(f"nr_inodes={files + more}")
            try:
                study.session()
            except Exception as error:  # as a job reports it
                told.append(refused(lambda error=error: raising(error), capfd))
            else:
                break
            assert study.finished().items() >= kept.items()
            kept = study.finished()
            assert not list(study.store.root.glob(".unfinished*"))
    assert study.healed(kept)
    short = [text for text in told if "No space left on device. Make room and run again." not in text]
    assert not short, short
    for name in ("deployments/a/.deployment", "telemetry.jsonl.gz", "requests.jsonl", "run.json"):
        assert any(name in text for text in told), (name, told)


def raising(error):
    raise error


@KILLS
def test_a_disk_that_fills_up_in_a_run_costs_scrapes_and_marks_it(content, disk, capfd):
    def fill():
        disk.fill()
        time.sleep(1.5)
        disk.empty()

    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION, gap_s=0.04) as server:
        study = Study(content, server.base_url, levels=[1])
        study.session(fill)
        assert "the scraper ended: No space left on device" in capfd.readouterr().err
        (run,) = study.plan.runs
        files = {key: Path(key) for key in ("requests", "telemetry", "wide", "summary")}
        summary = parse_run(run.record.parent, **files)
        assert summary["ok"] == 4
        assert not summary["scraped_after"]
        assert verdict(summary, CALM).faults == ["telemetry"]


def test_a_command_names_the_folder_that_is_full(tmp_path, disk, capfd):
    """It has no finished runs that could be kept."""
    load = ["--model", "m", "--num-requests", "20", "--prompt-length", "8", "--output-length", "2"]
    with fake_server() as server:
        disk.change("size=1m")
        disk.fill()
        assert main(["workload", "--base-url", server.base_url, *load, "--output-dir", str(tmp_path / "results/w")]) == 2
    assert f"bench: {tmp_path}/results/w: No space left on device. Make room and run again.\n" in capfd.readouterr().err


def test_a_folder_that_cannot_be_written(content, disk, capfd):
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION) as server:
        study = Study(content, server.base_url, levels=[1])
        disk.change("ro")
        told = refused(study.session, capfd)
        assert "Read-only file system. Give this user access and run again" in told
        assert len(server.bodies) == 1  # what the server accepts; nothing of the run
        disk.change("rw")
        assert study.healed({})


def writers(folder, summary):
    """What writes each kind of file that is made of runs."""
    study = results(summary)
    record = Path("facts.json")
    write_record(records.facts(), record)
    write_record(records.launch(plan={}), Path("launch.json"))
    (Path("run") / "summary.json").write_text(json.dumps(summary))
    run = {key: folder / f"{key}" for key in ("requests", "telemetry", "wide", "summary")}
    tables = {"summary": folder / "s.parquet", "summary_csv": folder / "s.csv", "timeseries": folder / "t.parquet"}
    measured = Path("measured")
    return {
        "run": lambda: parse_run(measured, **run),
        "aggregate": lambda: aggregate([Path("run/summary.json")], launches=[Path("launch.json")], facts=[record], thresholds=Thresholds(), **tables),
        "figure": lambda: draw_figure("kv-saturation", study, folder / "kv-saturation"),
        "report": lambda: write_report(folder / "report.html", title="t", results=study, specs=[], facts=[record]),
        "checkpoint": lambda: gguf_of(folder / "model", whole_config(TINY), "float32"),
        "record": lambda: write_record(records.facts(), folder / "engine.json"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "kinds", [("run", "aggregate", "checkpoint", "record"), pytest.param(("figure", "report"), marks=KILLS)]
)
def test_a_full_disk_is_named_by_what_is_made_of_runs(disk, summary, capfd, kinds):
    Path("measured").mkdir()
    make_run(Plan.of(load_config(made_study(2, 2), source="t")).runs[0], Path("measured"), series=10)
    written(Path("run"), summary)
    ways = writers(disk.folder, summary)
    for kind in kinds:
        write = ways[kind]
        disk.fill()
        told = refused(write, capfd)
        assert "No space left on device" in told, (kind, told)
        assert "Make room and run again" in told, (kind, told)
        disk.empty()
        assert not list(disk.folder.glob(".model*")), kind
        if kind in ("checkpoint", "record"):  # the others' second time would show nothing but their cost
            write()


# What somebody else has put there.


@pytest.mark.workflow
def test_what_is_damaged_foreign_or_missing_in_the_results_is_named_and_measured_again(content):
    with fake_server(metrics=EXPOSITION.read_text(), pages=VERSION, gap_s=0.005) as server:
        study = Study(content, server.base_url)
        study.store.root.mkdir(parents=True)
        one, two = study.plan.runs
        # Foreign: beside the runs, and where a run is to lie.
        (study.store.root / "notes.txt").write_text("mine")
        study.store.folder(one).parent.mkdir()
        study.store.folder(one).write_text("a file where a folder is to be")
        (study.store.root / ".unfinished-a-x").mkdir()
        two.record.mkdir(parents=True)  # no record: measured, and replaced
        study.session()
        assert len(study.finished()) == 2
        assert (study.store.root / "notes.txt").read_text() == "mine"
        # Damaged: a file is cut where it lies.
        files = {key: Path(key) for key in ("requests", "telemetry", "wide", "summary")}
        os.truncate(one.record, 20)
        with pytest.raises(BenchError, match=r"not a valid run.json.*bench runs --discard"):
            parse_run(one.record.parent, **files)
        assert main(["runs", "--configfile", "study.yaml", "--discard", one.key]) == 0
        # Missing: a file of a run that was copied in part.
        (two.record.parent / "requests.jsonl").unlink()
        assert unmeasured_sessions(study.plan, study.store) == [("a", 1)]
        with pytest.raises(BenchError, match="not fully measured"):
            write_index(study.plan, "a", 1, study.store)
        assert study.healed({})
        assert any("is measured again" in line and two.name in line for line in study.said)
        assert parse_run(one.record.parent, **files)["ok"] == 4
        write_index(study.plan, "a", 1, study.store)
        assert set(json.loads(Paths.session("a").read_text())["runs"]) == {one.name, two.name}
        assert main(["runs", "--configfile", "study.yaml", "--discard", one.key]) == 0
        assert one.key in Path(Paths.FORGOTTEN.format(deployment="a", session=1)).read_text()


def test_a_table_that_is_damaged_is_named(tmp_path, summary, capsys):
    folder, record = written(tmp_path / "run", summary), Path("facts.json")
    write_record(records.facts(), record)
    write_record(records.launch(plan={}), Path("launch.json"))
    tables = {"summary": Path("results/summary.parquet"), "summary_csv": Path("s.csv"), "timeseries": Path("t.parquet")}

    read = read_run_summary(folder / "summary.json")

    def aggregated(**options):
        given = {"launches": [Path("launch.json")], "facts": [record], "thresholds": Thresholds(), **tables, **options}
        aggregate([folder / "summary.json"], **given)

    for name in ("requests", "telemetry"):
        file = folder / f"{name}.parquet"
        whole_one = file.read_bytes()
        os.truncate(file, len(whole_one) // 2)
        with pytest.raises(
            BenchError, match=r"run: a table of this run is missing or damaged .* Remove results/sessions/.*/\*-parsed\.json"
        ):
            aggregated(expected={f"{read.deployment}/{read.run}": read.digest})
        file.unlink()
        with pytest.raises(BenchError, match=r"run: a table of this run is missing or damaged .* Parse it again\.$"):
            aggregated()
        file.write_bytes(whole_one)
    aggregated()
    os.truncate(tables["summary"], 100)
    shutil.copy(ROOT / "config/studies/quick.yaml", "study.yaml")
    assert main(["runs", "--configfile", "study.yaml"]) == 2
    assert "results/summary.parquet: damaged" in capsys.readouterr().err


def test_a_second_workflow_in_a_folder_is_refused(tmp_path):
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("config", "src", "Snakefile", "workflow"):
        Path(name).symlink_to(ROOT / name)
    Path(".venv").symlink_to(Path(sys.executable).parent.parent)
    for name in ("requirements.lock", "pyproject.toml"):
        os.utime(name, (0, 0))
    with Path(".snakemake.lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        made, plain = (
            subprocess.run(command, capture_output=True, text=True)
            for command in (
                ["make", "figures"],
                [BIN / "snakemake", "--cores", "1", "--configfile", "config/studies/quick.yaml"],
            )
        )
    assert (made.returncode, plain.returncode) == (2, 1)
    for done in (made, plain):
        assert "Another workflow runs in this folder; wait for it, or end it." in done.stderr
    assert not Path("results").exists()

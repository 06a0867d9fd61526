"""`auto` ladders, as a workflow of their own: against a server whose limit is known, as it refuses from so many in flight on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml

from bench.beside.archive.pack import pack
from bench.beside.archive.unpack import unpack
from bench.runs.files import read_known
from bench.runs.paths import Paths
from bench.runs.run import read_record
from bench.runs.searches import DeploymentSearches
from bench.runs.store import Store
from bench.study.plan import Plan
from bench.study.read import load_config, load_file
from tests.support.auto import searching
from tests.support.fake_server import fake_server
from tests.support.forked import snakemake
from tests.support.server import eventually
from tests.support.study import ROOT

MOST = 6
SEARCH = Paths.SEARCHES.format(deployment="a")


class Folder:
    """A folder in which the study is measured, up to the summary table."""

    def __init__(self, path, content):
        self.path, self.content = path, content

    def _arguments(self):
        (self.path / "study.yaml").write_text(yaml.safe_dump(self.content))
        study = ["--snakefile", str(ROOT / "workflow/Snakefile"), "--configfile", "study.yaml", "--cores", "1"]
        return [*study, "--workflow-profile", "none", "--rerun-incomplete", Paths.SUMMARY, Paths.session("a")]

    def start(self, *, group=False):
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *self._arguments()], cwd=self.path, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=group,
        )  # fmt: skip

    def run(self, status=0):
        done = snakemake(*self._arguments(), folder=self.path)
        assert done.returncode == status, (done.stdout + done.stderr)[-6000:]
        return done.stdout + done.stderr

    def stored(self):
        """When each run was measured, by its digest."""
        records = map(read_record, (self.path / Paths.RUNS).glob("a/*/run.json"))
        return {record.digest: record.started for record in records}

    @property
    def search(self):
        (found,) = read_known(DeploymentSearches, self.path / SEARCH).searches
        return found


@pytest.fixture
def server():
    with fake_server(first_s=0.02, gap_s=0.002, pages={"/v1/models": '{"data": [{"id": "m"}]}'}) as running:
        running.refuse = lambda _: (503, {}) if running.in_flight > MOST else None
        yield running


@pytest.mark.long(part="workflows")
@pytest.mark.workflow
def test_a_search_killed_in_a_run_goes_on_and_its_runs_are_runs_like_all_others(server, tmp_path, content, monkeypatch):
    folder = Folder(tmp_path, searching(content, server.base_url))
    workflow = folder.start()
    eventually(lambda: len(folder.stored()) >= 3, within=120)
    os.kill(workflow.pid, signal.SIGKILL)
    said, _ = workflow.communicate(timeout=60)  # its job ends with it
    assert said.count("probe of") == 1
    shutil.rmtree(tmp_path / ".snakemake/locks")  # as `make figures` does
    kept = folder.stored()
    assert len(kept) >= 3
    assert not (tmp_path / SEARCH).exists()

    assert "prob" not in folder.run()  # the first run has what the probe showed
    found = folder.search
    assert (found.why, found.low <= MOST <= found.high, found.high - found.low <= 1) == ("found", True, True), found
    assert folder.stored().items() >= kept.items()
    assert {run.digest for run in found.runs} == set(folder.stored())
    summary = pl.read_parquet(tmp_path / Paths.SUMMARY)
    assert sorted(summary["level"]) == sorted(run.level for run in found.runs)
    assert set(summary["digest"]) == set(folder.stored())

    # Nothing more is measured; where a run is gone, on which the answer rests, the search goes on without it.
    sent = len(server.requests)
    assert "Nothing to be done" in folder.run()
    assert len(server.requests) == sent
    plan = Plan.of(load_config(folder.content, source="test"), results=tmp_path / "results")
    shutil.rmtree((tmp_path / plan.runs[0].record).parent)
    (tmp_path / Paths.session("a")).unlink()
    kept = {digest: at for digest, at in folder.stored().items() if digest != plan.runs[0].digest}
    folder.run()
    found = folder.search
    assert (found.why, found.low <= MOST <= found.high) == ("found", True)
    assert folder.stored().items() >= kept.items()
    assert {run.digest for run in found.runs} == set(folder.stored())

    # A pack has the search and its runs.
    monkeypatch.chdir(tmp_path)
    there = pack(Plan.of(load_file(Path("study.yaml"))), folder.content, tmp_path / "all.tar.gz", Store())
    assert (len(there.runs), there.missing) == (len(found.runs), ())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    _, study = unpack(tmp_path / "all.tar.gz", Store())
    assert [run.key for run in Plan.of(load_file(study)).runs] == list(there.runs)
    assert all(Path(run.record).exists() for run in Plan.of(load_file(study)).runs)
    monkeypatch.undo()

    # A higher precision and another SLO go on from what is measured; a level by hand is a run of both.
    folder.content["study"]["ladders"][0]["search"] = {"slo": ["ttft_p50=400ms"], "precision": 0.02}
    folder.content["study"]["ladders"].append({"deployment": "a", "workload": "w", "concurrency": [3]})
    folder.run()
    assert folder.search.slos == ("TTFT P50 ≤ 400 ms",)
    assert folder.stored().keys() > kept.keys()
    assert {run.digest for run in found.runs} <= {run.digest for run in folder.search.runs}
    by_hand = next(run for run in Plan.of(load_config(folder.content, source="test")).listed)
    assert by_hand.digest in {run.digest for run in folder.search.runs}


def results(folder, plan, *runs):
    """Results with records of runs of the plan's search: levels, requests and repeats, in their order."""
    (search,) = plan.searches
    for number, (level, requests, repeat) in enumerate(runs):
        run = search.run(level, requests, repeat)
        path = folder / "runs/a" / run.name / "run.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"digest": run.digest, "definition": run.definition, "started": f"2026-01-0{number + 1}"}))
    return folder


def plan_of(content, **where):
    return Plan.of(load_config(content, source="test"), **where)


def test_found_runs_are_runs_of_the_plan_and_the_digest_is_that_of_the_study(content, tmp_path):
    before = plan_of(searching(content), results=tmp_path)
    assert (before.runs, len(before.rows)) == ((), 4)
    results(tmp_path, before, (4, 50, 1), (6, 200, 1))
    (tmp_path / "runs/a/odd").mkdir()
    (tmp_path / "runs/a/odd/run.json").write_text("{")
    plan = plan_of(content, results=tmp_path)
    assert [(run.level, run.workload.num_requests, run.searched) for run in plan.runs] == [(4, 50, True), (6, 200, True)]
    assert (plan.listed, plan.digest, plan.rows) == ((), before.digest, before.rows)
    assert [plan.place_of(run).position for run in plan.runs_of("a")] == [1, 2]
    assert plan.sessions == [("a", 1)]
    # They are selected with the search or by their own names.
    assert [run.level for run in plan_of({**content, "select": "a/*_auto"}, results=tmp_path).runs] == [4, 6]
    one = plan_of({**content, "select": "*_c0004_*"}, results=tmp_path)
    assert ([run.level for run in one.runs], one.searches, [row["level"] for row in one.rows]) == ([4], (), [4])
    # Runs that are defined otherwise by now are no part of the plan.
    content["workloads"]["w"]["output_tokens"] = 5
    assert plan_of(content, results=tmp_path).runs == ()


def test_a_level_that_the_study_lists_as_well_is_one_run(content, tmp_path):
    config = searching(content)
    config["workloads"]["w"]["num_requests"] = 50
    results(tmp_path, plan_of(config), (4, 50, 1), (5, 50, 1))
    config["study"]["ladders"].append({"deployment": "a", "workload": "w", "concurrency": [4]})
    assert [(run.level, run.searched) for run in plan_of(config, results=tmp_path).runs] == [(4, False), (5, True)]

"""`auto` ladders, as a workflow of their own: against a server whose limit is known, as it refuses from so many in flight on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml

from bench.errors import BenchError
from bench.records.files import typed
from bench.records.run import read_record
from bench.records.searches import DeploymentSearches, read_searches
from bench.store import Store
from bench.store.pack import pack
from bench.store.unpack import unpack
from bench.study import Paths, Plan, load_config, load_file
from bench.words.searches import answer
from tests.conftest import CONTENT, ROOT
from tests.fake_server import fake_server
from tests.forked import snakemake

MOST = 6
SEARCH = Paths.SEARCHES.format(deployment="a")


def searching(content, url="http://127.0.0.1:1", **search):
    """`content` with a search for the highest concurrency in place of its ladder."""
    content["study"]["ladders"] = [{"deployment": "a", "workload": "w", "concurrency": "auto", "search": search}]
    content["workloads"] = {"w": {"arrival": "closed", "prompt_tokens": 16, "output_tokens": 4, "num_requests": "auto"}}
    content["engines"]["e"] = {"source": "external", "base_url": url, "metrics": "none"}
    content["deployments"]["a"] = {"model": "m", "engine": "e", "served_name": "m"}
    content["decision"] = {"slo": ["ttft_p90=500ms"]}
    # A quiet machine is no condition of these tests.
    content["thresholds"] = dict.fromkeys(("loop_lag_p99_s", "loop_lag_max_s", "client_cpu_share", "drift"), 30) | {
        "other_share": 1
    }
    content["measurement"] = {"warmup_requests": 3, "reference_requests": 0}
    return content


class Folder:
    """A folder in which the study is measured, up to the summary table."""

    def __init__(self, path, content):
        self.path, self.content = path, content

    def _arguments(self):
        (self.path / "study.yaml").write_text(yaml.safe_dump(self.content))
        study = ["--snakefile", str(ROOT / "Snakefile"), "--configfile", "study.yaml", "--cores", "1"]
        return [*study, "--workflow-profile", "none", "--rerun-incomplete", Paths.SUMMARY]

    def start(self, *, group=False):
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *self._arguments()],
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=group,
        )

    def run(self):
        done = snakemake(*self._arguments(), folder=self.path)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        return done.stdout + done.stderr

    def stored(self):
        """When each run was measured, by its digest."""
        return {path.parent.name: read_record(path).started for path in (self.path / Paths.STORE).glob("*/run.json")}

    @property
    def search(self):
        (found,) = read_searches(self.path / SEARCH).searches
        return found


@pytest.fixture
def server():
    with fake_server(first_s=0.02, gap_s=0.002, pages={"/v1/models": '{"data": [{"id": "m"}]}'}) as running:
        running.refuse = lambda _: (503, {}) if running.in_flight > MOST else None
        yield running


@pytest.mark.workflow
def test_a_search_killed_in_a_run_goes_on_and_its_runs_are_runs_like_all_others(server, tmp_path, content, monkeypatch):
    folder = Folder(tmp_path, searching(content, server.base_url))
    workflow = folder.start()
    end = time.monotonic() + 120
    while len(folder.stored()) < 3 and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(workflow.pid, signal.SIGKILL)
    workflow.communicate(timeout=60)  # its job ends with it
    shutil.rmtree(tmp_path / ".snakemake/locks")  # as `make figures` does
    kept = folder.stored()
    assert len(kept) >= 3
    assert not (tmp_path / SEARCH).exists()

    folder.run()
    found = folder.search
    assert (found.why, found.low <= MOST <= found.high, found.high - found.low <= 1) == ("found", True, True), found
    assert folder.stored().items() >= kept.items()
    assert {run.digest for run in found.runs} == set(folder.stored())
    summary = pl.read_parquet(tmp_path / Paths.SUMMARY)
    assert sorted(summary["level"]) == sorted(run.level for run in found.runs)
    assert set(summary["digest"]) == set(folder.stored())

    # Nothing more is measured, not even where a run is gone from its place.
    sent = len(server.requests)
    assert "Nothing to be done" in folder.run()
    plan = Plan.of(load_config(folder.content, source="test"), records=tmp_path / Paths.SEARCHES)
    shutil.rmtree((tmp_path / plan.runs[0].record).parent)
    (tmp_path / Paths.SUMMARY).unlink()
    folder.run()
    assert (tmp_path / plan.runs[0].record).exists()
    assert len(server.requests) == sent

    # A pack has the search and its runs.
    monkeypatch.chdir(tmp_path)
    there = pack(Plan.of(load_file(Path("study.yaml"))), folder.content, tmp_path / "all.tar.gz", Store(Path(Paths.STORE)))
    assert (len(there.runs), there.missing) == (len(found.runs), ())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    packed = unpack(tmp_path / "all.tar.gz", Store(Path(Paths.STORE)))
    assert [run.key for run in Plan.of(load_file(packed.study)).runs] == list(there.runs)
    assert all(Path(run.record).exists() for run in Plan.of(load_file(packed.study)).runs)
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


def record(plan, *runs):
    """A record of a search that measured `runs`: levels, requests and repeats."""
    (search,) = plan.searches
    measured = [
        {"level": level, "requests": n, "repeat": r, "digest": search.run(level, n, r).digest, "excess": {}}
        for level, n, r in runs
    ]
    answer = {"why": "found", "limit": 6, "low": 6, "high": 7, "seconds": 9.0}
    of = {"name": search.name, "workload": "w", "digest": search.digest, "axis": "concurrency", "slos": [], "precision": 0.1}
    return {"deployment": "a", "digest": search.deployment.digest, "searches": [{**of, **answer, "runs": measured}]}


def written(folder, content):
    path = folder / "search.json"
    path.write_text(json.dumps(content))
    return path


def test_found_runs_are_runs_of_the_plan_and_the_digest_is_that_of_the_study(content, tmp_path):
    config = load_config(searching(content), source="test")
    before = Plan.of(config, records=tmp_path / "none.json")
    assert (before.runs, len(before.rows)) == ((), 4)
    path = written(tmp_path, record(before, (4, 50, 1), (6, 200, 1)))
    plan = Plan.of(config, records=path)
    assert [(run.level, run.workload.num_requests, run.searched) for run in plan.runs] == [(4, 50, True), (6, 200, True)]
    assert plan.listed == ()
    assert plan.digest == before.digest
    assert plan.rows == before.rows
    assert [plan.place_of(run).position for run in plan.runs_of("a")] == [1, 2]
    assert plan.sessions == [("a", 1)]


def test_runs_that_are_defined_otherwise_by_now_are_no_part_of_the_plan(content, tmp_path):
    config = searching(content)
    path = written(tmp_path, record(Plan.of(load_config(config, source="test")), (4, 50, 1)))
    config["workloads"]["w"]["output_tokens"] = 5
    assert Plan.of(load_config(config, source="test"), records=path).runs == ()


def test_a_level_that_the_study_lists_as_well_is_one_run(content, tmp_path):
    config = searching(content)
    config["workloads"]["w"]["num_requests"] = 50
    path = written(tmp_path, record(Plan.of(load_config(config, source="test")), (4, 50, 1), (5, 50, 1)))
    config["study"]["ladders"].append({"deployment": "a", "workload": "w", "concurrency": [4]})
    plan = Plan.of(load_config(config, source="test"), records=path)
    assert [(run.level, run.searched) for run in plan.runs] == [(4, False), (5, True)]


def test_select_narrows_searches_by_their_names(content):
    config = searching(content)
    key = "a/w_closed_p16_o4_auto"
    config["study"]["ladders"].append({"deployment": "a", "workload": "w", "concurrency": [4]})
    whole = Plan.of(load_config(config, source="test"))
    assert [search.key for search in whole.searches] == [key]
    assert Plan.of(load_config({**config, "select": "*c0004*"}, source="test")).searches == ()
    only = Plan.of(load_config({**config, "select": key}, source="test"))
    assert (only.runs, [search.key for search in only.searches]) == ((), [key])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["decision"].pop("slo"), "auto searches for the highest load within SLOs, and there are none"),
        (lambda c: c["study"]["ladders"][0].update(repeats=2), "a search repeats by itself what is in doubt"),
        (lambda c: c["study"]["ladders"][0].update(concurrency=[1]), "search belongs to `concurrency: auto`"),
        (lambda c: c["study"]["ladders"][0]["search"].update(start=9, highest=8), "start is 9, which does not lie between"),
        (lambda c: c["workloads"].update(w=CONTENT["workloads"]["short"]), "sends bursts"),
        (lambda c: c["workloads"]["w"].update(turns={"count": 2, "new_tokens": 4}), "has turns, a step or a ramp"),
        (lambda c: c["study"]["ladders"][0].update(concurrency="Auto"), "concurrency"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_its_reason(content, change, words):
    config = searching(content, precision=0.1)
    change(config)
    with pytest.raises(BenchError, match=words.replace("(", r"\(")):
        load_config(config, source="test")


def test_answers_say_what_is_known_and_how_the_search_ended(content):
    plan = Plan.of(load_config(searching(content), source="test"))
    content = record(plan, (4, 50, 1), (7, 50, 1))
    content["searches"][0]["slos"] = ["TTFT P90 ≤ 500 ms"]
    (found,) = typed(DeploymentSearches, content).searches
    said = answer([("a", found)])
    assert said.question == "What is the highest load within TTFT P90 ≤ 500 ms?"
    assert said.lines == ("a: 6 in flight (6 to 7 at 95 % confidence).",)
    assert said.sure == ("a: 2 runs, 9 s under load: as precise as asked (± 10 %).",)
    above = replace(found, why="above", limit=64.0, low=64.0, high=None)
    assert answer([("a", found), ("a", replace(above, workload="v"))]).lines[1] == "a, v: 64 in flight or more."
    assert "not yet ± 10 %" in answer([("a", replace(found, why="runs"))]).sure[0]
    assert answer([]).lines == ()

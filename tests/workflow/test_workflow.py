"""The workflow where no engine of ours is needed: a server that runs already, faults of what is asked for, and what is built anew."""

import json
import os
import shutil
import signal
import sys
import time

import polars as pl
import pytest

from bench.findings.trust import warnings
from bench.study.begin import begin
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.project import Project, external
from tests.support.server import eventually
from tests.support.snapshots import same
from tests.support.study import ROOT

EXPOSITION = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A project and a server that runs already."""
    with fake_server(metrics=EXPOSITION, pages={"/version": '{"version": "0.32.0"}'}, gap_s=0.01) as server:
        study = {"title": "A study", "ladders": [{"deployment": "a", "workload": "loop", "concurrency": [1, 2]}]}
        loop = {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": 8}
        content = external(server.base_url, study=study, workloads={"loop": loop})
        yield Project(tmp_path_factory.mktemp("project").resolve(), content)


@pytest.fixture
def project(copied):
    """A study of that server, two levels of a closed loop, seconds each; nothing of it is measured."""
    before = json.dumps(copied.config)
    yield copied
    for process in copied.processes():
        process.kill()
    copied.config = json.loads(before)
    for path in [*(copied.folder / "results").iterdir(), copied.folder / ".snakemake", copied.folder / "logs"]:
        if path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith(".vega"):
            path.unlink(missing_ok=True)
    (copied.folder / "results/engines").mkdir()


@pytest.mark.workflow
def test_make_killed_in_a_run_leaves_nothing_and_keeps_what_is_done(project):
    """SIGKILL reaches make alone; its workflow and all below it end by themselves."""
    project.config["workloads"]["loop"]["num_requests"] = 20
    workflow = project.start()
    project.wait_for_stored(1, workflow)
    assert eventually(lambda: any(each.run == 2 for each in project.watched()))
    workflow.send_signal(signal.SIGKILL)
    workflow.wait(10)
    assert project.nothing_left()
    assert project.stored() == 1
    shown = project.said().splitlines()
    assert any(line.endswith("] Measuring a") for line in shown), shown
    assert any(line.startswith("        a: run 1 of 2, loop, concurrency") for line in shown), shown
    assert not [line for line in shown if line.startswith(("localrule", "rule ", "Job stats", "Select jobs"))]


@pytest.mark.long(part="kills")
def test_a_folder_of_ones_own_ends_on_sigterm_as_a_clone_does(project):
    """The workflow is a module there, of which Snakemake starts no handler by itself."""
    project.config["workloads"]["loop"]["num_requests"] = 200
    shipped = project.folder / "workflow/Snakefile"
    text = shipped.read_text()
    begin(project.folder / "own")
    shutil.copy(project.folder / "own/Snakefile", shipped)
    workflow = project.start("measured")
    project.wait_for_stored(1, workflow)
    workflow.send_signal(signal.SIGTERM)
    workflow.wait(60)
    shipped.write_text(text)
    assert "ending on SIGTERM; what is finished is kept" in project.said()
    assert project.nothing_left()
    assert project.stored() == 1


@pytest.mark.workflow
def test_bench_speaks_of_the_study_that_a_workflow_ran_last(project):
    project.command()
    shutil.copy(project.folder / "config/config.yaml", project.folder / "mine.yaml")
    project.run("--configfile", "mine.yaml", "--", target="results/deployments/a/launch.json")
    done = bench("runs", cwd=project.folder)
    assert done.stdout.startswith("Study: mine.yaml (the study measured last here)\n"), done.stderr


@pytest.mark.workflow
def test_an_engine_is_built_anew_by_what_its_locks_hold_and_not_by_their_times(project):
    folder, record = project.folder, "results/engines/e/engine.json"
    lock = folder / "empty.lock"
    lock.write_text("# nothing\n")
    # Its environment is this one: making one takes ten seconds, and tests/servers/test_engine.py makes one.
    python = folder / "python"
    python.write_text(
        f"""#!/bin/sh
if [ "$2" = venv ]; then for folder; do :; done; mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python"
elif [ "$2" != pip ]; then exec {sys.executable} "$@"; fi
"""
    )
    python.chmod(0o755)
    project.config["engines"]["e"] = {"source": "lock", "locks": ["empty.lock"], "backend": "cuda", "python": str(python)}
    assert project.run(target=record) == ["engine:engine=e"]
    newer = time.time() + 60
    os.utime(lock, (newer, newer))
    assert project.run("--dry-run", target=record) == []
    lock.write_text("# something\n")
    assert project.run("--dry-run", target=record) == ["engine:engine=e"]
    shutil.rmtree(folder / ".snakemake")  # a checkout that knows nothing of what was built; deploy looks into the record
    assert project.run("--dry-run", target=record) == []


LATE, UNSCRAPED = (
    "client.loop_lag: the client's event loop was late: P99 0.2 s, over 0.1 s",
    "telemetry.scrape_gap: no scrape for 3 s, over 0.5 s",
)


def test_what_a_workflow_says_last():
    busy = [
        f"machine.other_processes: other processes took {share} of the cores' time, over 15 %"
        for share in ("70 %", "25 %", "70 %")
    ]
    lines = []
    for reasons, shares, figures in (
        ([[], []], [0, 0], 3), ([[LATE], []], [0, 0], 3), ([[LATE], [LATE, UNSCRAPED]], [0, 0], 3),
        ([busy[:1], busy[1:2]], [0.7, 0.25], 3), ([busy[2:], []], [0.7001, 0], 3), ([[]], [0], 0),
    ):  # fmt: skip
        valid = [not each for each in reasons]
        faults = [["machine"] if each else [] for each in reasons]
        runs = pl.DataFrame(
            {
                "valid": valid,
                "counts_valid": valid,
                "reasons": reasons,
                "failed": 0,
                "faults": faults,
                "host_other_share": shares,
            },
            schema_overrides={"reasons": pl.List(pl.String), "faults": pl.List(pl.String), "host_other_share": pl.Float64},
        )
        lines += [f"# {reasons}", *warnings(runs, figures=figures)]
    # Failures and missing counts are no reason to say that nothing can be shown.
    runs = pl.DataFrame(
        {"valid": [True] * 3, "counts_valid": [False, False, True], "reasons": [[UNSCRAPED]] * 2 + [[]],
         "failed": [2, 0, 0], "faults": [["telemetry"]] * 2 + [[]], "host_other_share": [0.0] * 3}
    )  # fmt: skip
    same("last-words", [*lines, "# failures", *warnings(runs, figures=3), "# of two", *warnings(runs[:2], figures=3)])

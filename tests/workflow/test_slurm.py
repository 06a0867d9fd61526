"""A study on a SLURM cluster of two nodes: its jobs, and what may happen to them. The tests build on one another, in this order.

What is read of a cluster, and a dry run: tests/workflow/test_cluster.py.
"""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import polars as pl
import pytest

from tests.support.cluster import ACCOUNTING, Cluster, missing, until
from tests.support.slurm import command

pytestmark = [pytest.mark.long(part="slurm"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    yield from begun(Cluster(tmp_path_factory.mktemp("slurm")))


@pytest.fixture(scope="module")
def with_accounts(tmp_path_factory):
    """A second cluster, which keeps accounts."""
    yield from begun(Cluster(tmp_path_factory.mktemp("accounts"), accounting=True), *ACCOUNTING)


def begun(cluster, *further):
    if absent := missing(*further):
        pytest.fail(
            f"{', '.join(absent)}: not installed: apt-get install slurm-wlm munge slurmdbd mariadb-server", pytrace=False
        )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def run(project, cluster, *arguments, target="results/figures/all", status=0):
    done = subprocess.run(
        command(project, *arguments, target=target, accounting=cluster.accounting),
        cwd=project.folder,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    project.output = done.stdout + done.stderr
    assert done.returncode == status, project.output[-6000:]


@contextmanager
def running(project, cluster, *arguments, target="results/figures/all"):
    """A workflow in the background."""
    with (project.folder / "workflow.out").open("w") as out:
        workflow = subprocess.Popen(
            command(project, *arguments, target=target, accounting=cluster.accounting),
            cwd=project.folder,
            env=cluster.environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield workflow
    finally:
        workflow.kill()
        cluster.cancel_all()  # jobs outlive their workflow, and would measure beside the next test


def measured(project, deployment):
    """When each run of a deployment in the store was measured, by its digest."""
    records = (json.loads(path.read_text()) for path in project.folder.glob("results/runs/[!.]*/[!.]*/run.json"))
    return {record["digest"]: record["clock_start_s"] for record in records if record["definition"]["deployment"] == deployment}


def test_a_study_survives_all_that_may_end_its_jobs(project, cluster):
    """One session reaches its time limit. The other is cancelled, loses its node, is preempted, and ends on a node that is drained."""
    kept = {}

    def session(deployment, attempt=1):
        """Job and node of a session, once it runs for the `attempt`-th time."""
        rule = f"measure_wildcards_{deployment}_1"
        until(lambda: cluster.states(rule)[attempt - 1 :] == ["RUNNING"], f"session {attempt} of {deployment}", workflow)
        return cluster.last(rule)

    def runs(deployment):
        """Wait for one run more than there were; from now on none of them may be measured again."""
        known = len(kept.get(deployment, ()))
        until(lambda: len(measured(project, deployment)) > known, f"further run of {deployment}", workflow)
        kept[deployment] = measured(project, deployment)

    with running(project, cluster, target="results/figures/memory-pressure.svg") as workflow:
        runs("two")
        cluster.ask("scancel", session("two")[0])
        runs("one")
        soon = time.strftime("%FT%T", time.localtime(time.time() + 1))
        cluster.update(f"JobId={session('one')[0]}", f"EndTime={soon}")  # SLURM looks every 30 s
        _, node = session("two", 2)
        runs("two")
        cluster.update(f"NodeName={node}", "State=DOWN", "Reason=test")
        until(lambda: cluster.states("measure_wildcards_two_1")[1:2] != ["RUNNING"], "lost node", workflow)
        cluster.update(f"NodeName={node}", "State=RESUME")
        _, node = session("two", 2)
        runs("two")
        cluster.ask("sbatch", "--partition=urgent", f"--nodelist={node}", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
        until(lambda: cluster.states("measure_wildcards_two_1")[1:2] != ["RUNNING"], "preemption", workflow)
        _, node = session("two", 2)
        cluster.update(f"NodeName={node}", "State=DRAIN", "Reason=test")
        assert workflow.wait(timeout=300) == 0, project.said()[-6000:]
    cluster.update(f"NodeName={node}", "State=RESUME")
    assert cluster.states("measure_wildcards_one_1") == ["TIMEOUT", "COMPLETED"]
    assert cluster.states("measure_wildcards_two_1") == ["CANCELLED", "COMPLETED"]
    for deployment, before in kept.items():
        after = measured(project, deployment)
        assert {digest: after[digest] for digest in before} == before  # what was finished was not measured again
    assert project.servers("llama") == []
    summary = pl.read_parquet(project.folder / "results/summary.parquet")
    assert summary["ok"].to_list() == [10] * 11
    assert (project.folder / "results/figures/memory-pressure.svg").stat().st_size > 500


def test_models_are_added_and_their_sessions_run_side_by_side_on_gpus_of_their_own(project, cluster, with_accounts):
    before = {name: measured(project, name) for name in ("one", "two")}
    project.config["engines"]["gpu"] = {
        "source": "command",
        "command": [sys.executable, "-m", "bench.servers.planted"],
        "backend": "cuda",
    }
    for name in ("three", "four"):
        project.config["deployments"][name] = {"model": "one", "engine": "gpu", "kv_cache_memory": "1MiB", "tensor_parallel": 2}
        project.config["study"]["ladders"].append({"deployment": name, "workload": "steady", "request_rate": [10]})
    run(project, cluster, "--profile", "profiles/slurm", "--default-resources", "gpu_model=h100", "--jobs", "2", status=1)
    assert "has no job accounting: start with --profile profiles/slurm-no-accounting" in project.output
    run(
        project,
        with_accounts,
        "--default-resources",
        "slurm_account=research",
        "gpu_model=h100",
        "--jobs",
        "2",
        target="measured",
    )
    jobs = {name: (state, node) for name, state, node in with_accounts.jobs().values() if name.endswith(("three_1", "four_1"))}
    assert jobs == {f"rule_measure_wildcards_{name}_1": ("COMPLETED", "alpha") for name in ("three", "four")}
    assert {name: measured(project, name) for name in ("one", "two")} == before
    facts = [
        json.loads((project.folder / f"results/deployments/{name}/deployment.json").read_text()) for name in ("three", "four")
    ]
    assert sorted(each["inherited"]["CUDA_VISIBLE_DEVICES"] for each in facts) == ["0,1", "2,3"]


def test_sessions_that_no_node_can_hold_are_refused_before_anything_is_submitted(project, cluster):
    deployments, known = project.config["deployments"], cluster.jobs()
    project.config["deployments"] = {
        **deployments,
        "two": {**deployments["two"], "cores": 7},
        "three": {**deployments["three"], "tensor_parallel": 1, "pipeline_parallel": 2, "data_parallel": 4},
    }
    run(project, cluster, "--set-resources", "measure:gpu_model=h100", "--jobs", "2", status=1)
    project.config["deployments"] = deployments
    assert "two: partition main: 9 cores needed, a node has 8" in project.output
    assert "8 GPUs of type h100 needed, a node has 4" in project.output
    assert cluster.jobs().keys() <= known.keys()

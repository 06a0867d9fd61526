"""A study on a SLURM cluster of one node: its jobs, and what may happen to them. The tests build on one another, in this order."""

import json
import subprocess
import time

import polars as pl
import pytest
import yaml

from bench.cluster import Needs, partitions, refusal
from tests.cluster import Cluster, missing
from tests.project import Project
from tests.test_study_grows import CONFIG

SINFO = """\
cpu|up|1-00:00:00|64|256000|(null)|idle
gpu|up|2:30:00|32|512000|gpu:h100:4(S:0-1),gpu:a100:2|mixed
gpu|up|2:30:00|32|512000|gpu:h100:4|down*
night|down|infinite|128|1024000|(null)|idle
"""


def needs(**given):
    return Needs(**{"cores": 4, "memory_mb": 8000, "gpus": 0, "minutes": 60, **given})


def test_partitions_are_read_as_sinfo_prints_them():
    cpu, gpu, down, night = partitions(SINFO)
    assert (cpu.minutes, cpu.cores, cpu.memory_mb, cpu.gpus, cpu.up) == (1440, 64, 256000, 0, True)
    assert (gpu.minutes, gpu.gpus, gpu.up) == (150, 6, True)
    assert (down.up, night.up, night.minutes) == (False, False, None)


@pytest.mark.parametrize(
    ("given", "partition", "reason"),
    [
        ({}, None, None),
        ({"gpus": 6}, None, None),
        ({"gpus": 8}, None, "8 GPUs needed, a node has 6"),
        ({"gpus": 2, "minutes": 151}, None, "151 minutes needed, its time limit is 150"),
        ({"cores": 65}, "cpu", "65 cores needed, a node has 64"),
        ({"memory_mb": 256001}, "cpu", "256001 MB of memory needed, a node has 256000"),
        ({"memory_mb": None}, "cpu", None),
        ({}, "night", "its nodes are"),
        ({}, "fast", "there is no partition fast; the cluster has cpu, gpu, night"),
    ],
)
def test_what_no_partition_takes_is_refused(given, partition, reason):
    said = refusal(needs(**given), partitions(SINFO), partition)
    assert (said is None) if reason is None else reason in said


# What follows needs SLURM's programs, and an account that may start them.
ABSENT = missing()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if ABSENT:
        pytest.skip(f"SLURM is not installed ({', '.join(ABSENT)}): apt-get install slurm-wlm munge")
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("project").resolve(), CONFIG)
    profile = project.folder / "profiles/slurm/config.yaml"
    settings = yaml.safe_load(profile.read_text())
    profile.write_text(
        yaml.safe_dump({**settings, "slurm-init-seconds-before-status-checks": 2, "seconds-between-status-checks": 2})
    )
    yield project
    for process in project.processes():
        process.kill()


def command(project, *arguments, target="results/figures/all"):
    words = project.command("--profile", "profiles/slurm", *arguments, target=target)
    at = words.index("--cores")
    return words[:at] + words[at + 2 :]


def run(project, cluster, *arguments, status=0):
    done = subprocess.run(
        command(project, *arguments), cwd=project.folder, env=cluster.environment, capture_output=True, text=True, timeout=300
    )
    project.output = done.stdout + done.stderr
    assert done.returncode == status, project.output[-6000:]


@pytest.mark.engine
def test_a_study_is_one_job_a_session(project, cluster):
    run(project, cluster)
    assert list(cluster.jobs().values()) == ["COMPLETED"]
    job = cluster.ask("scontrol", "show", "job", *cluster.jobs())
    assert "OverSubscribe=NO" in job
    assert "NumCPUs=8" in job  # the whole node
    assert len(project.records()) == 3
    summary = pl.read_parquet(project.folder / "results/summary.parquet")
    assert summary["ok"].sort().to_list() == [2, 6, 12]
    assert json.loads((project.folder / "results/figures/all").read_text())["figures"]


@pytest.mark.engine
def test_a_session_survives_its_job_and_its_node(project, cluster):
    """A model is added; its session's job is cancelled, then its node fails: each time the rest is submitted again by itself."""
    before = project.stored_at()
    project.config["deployments"]["two"] = project.config["deployments"]["one"] | {"max_num_seqs": 2}
    project.config["workloads"]["steady"] = {"arrival": "constant", "prompt_tokens": 32, "output_tokens": 8, "num_requests": 30}
    project.config["study"]["ladders"].append({"deployment": "two", "workload": "steady", "request_rate": [10], "repeats": 8})
    known = set(cluster.jobs())
    with (project.folder / "workflow.out").open("w") as out:
        workflow = subprocess.Popen(
            command(project, target="results/summary.parquet"),
            cwd=project.folder,
            env=cluster.environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        project.wait_for_stored(len(before) + 1, workflow)
        cluster.ask("scancel", *running(cluster))
        project.wait_for_stored(len(before) + 4, workflow)
        kept = project.stored_at()
        node = f"NodeName={cluster.host}"
        cluster.ask("scontrol", "update", node, "State=DOWN", "Reason=test")
        wait(lambda: not running(cluster))
        cluster.ask("scontrol", "update", node, "State=RESUME")
        assert workflow.wait(timeout=300) == 0, project.said()[-6000:]
    finally:
        workflow.kill()
    ended = {job: state for job, state in cluster.jobs().items() if job not in known}
    assert sorted(ended.values()) == ["CANCELLED", "COMPLETED", "NODE_FAIL"]
    after = project.stored_at()
    assert {digest: after[digest] for digest in kept} == kept  # what was finished was not measured again
    assert len(after) == len(before) + 8
    assert project.servers("llama") == []


@pytest.mark.engine
def test_a_session_that_no_node_can_hold_is_refused_before_anything_is_submitted(project, cluster):
    project.config["deployments"]["two"]["cores"] = 7
    known = cluster.jobs()
    run(project, cluster, status=1)
    assert "9 cores needed, a node has 8" in project.output
    assert cluster.jobs() == known


def running(cluster):
    return [job for job, state in cluster.jobs().items() if state in ("RUNNING", "COMPLETING")]


def wait(happens, within=60):
    end = time.monotonic() + within
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.1)

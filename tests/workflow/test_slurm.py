"""A study on a SLURM cluster of two nodes: its jobs, and what may happen to them. The tests build on one another, in this order."""

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

import polars as pl
import pytest

from bench.cluster import Needs, gpu_types, has_accounting, left_jobs, partition_for, partitions, refusal
from bench.errors import BenchError
from bench.published import accelerators
from tests.support.cluster import ACCOUNTING, Cluster, missing, until
from tests.support.end_to_end import CONFIG
from tests.support.project import Project
from tests.support.slurm import OFTEN, STEADY, command
from tests.support.study import ROOT

SINFO = """\
cpu*|up|1-00:00:00|64|256000|(null)|idle|1
gpu|up|2:30:00|32|512000|gpu:h100:4(S:0-1),gpu:a100:2|mixed|1
gpu|up|2:30:00|32|512000|gpu:h100:4|down*|1
night|down|infinite|128|1024000|(null)|idle|1
"""


def needs(**given):
    return Needs(**{"cores": 4, "memory_mb": 8000, "gpus": 0, "minutes": 60, **given})


def test_partitions_are_read_as_sinfo_prints_them():
    cpu, gpu, down, night = partitions(SINFO)
    assert (cpu.minutes, cpu.cores, cpu.memory_mb, cpu.gpus, cpu.up) == (1440, 64, 256000, 0, True)
    assert (cpu.name, cpu.default, gpu.default) == ("cpu", True, False)
    assert (gpu.minutes, gpu.gpus, gpu.gpu_types, gpu.up) == (150, 6, {"h100": 4, "a100": 2}, True)
    assert (down.up, night.up, night.minutes) == (False, False, None)


@pytest.mark.parametrize(
    ("given", "partition", "reason"),
    [
        ({}, None, None),
        ({"gpus": 6}, None, None),
        ({"gpus": 8}, None, "8 GPUs needed, a node has 6"),
        ({"gpus": 2, "gpu_type": "a100"}, None, None),
        ({"gpus": 4, "gpu_type": "a100"}, None, "4 GPUs of type a100 needed, a node has 2"),
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


@pytest.mark.parametrize(
    ("given", "partition"),
    [
        ({}, None),  # the default one can
        ({"gpus": 1}, "gpu"),
        ({"minutes": 2000}, "long"),
        ({"cores": 100}, None),  # its nodes are down
        ({"gpus": 8}, None),  # none can
    ],
)
def test_the_partition_is_one_that_takes_the_session(given, partition):
    assert partition_for(needs(**given), partitions(SINFO + "long|up|infinite|64|256000|(null)|mixed|1\n")) == partition


@pytest.mark.parametrize(
    ("accelerator", "gres", "types"),
    [
        ("h100", "gpu:h100:4", ["h100"]),
        ("h100", "gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", ["nvidia_h100_80gb_hbm3"]),
        ("h100", "gpu:H100_NVL:2", []),  # another one
        ("h100-nvl", "gpu:H100_NVL:2", ["H100_NVL"]),
        ("a100-80g", "gpu:a100:4", ["a100"]),
        ("a100-80g", "gpu:a100_40gb:4,gpu:a100_80gb:4", ["a100_80gb"]),
        (
            "a100-80g",
            "gpu:nvidia_a100_80gb_pcie:4,gpu:nvidia_a100-sxm4-80gb:4",
            ["nvidia_a100-sxm4-80gb", "nvidia_a100_80gb_pcie"],
        ),
        ("l4", "gpu:l40s:4", []),
        ("h100", "gpu:4", []),
        # MIG slices as clusters name them: SLURM's own names, then sites'.
        ("h100", "gpu:nvidia_h100_80gb_hbm3_4g.40gb:2", []),
        ("h100", "gpu:nvidia_h100_80gb_hbm3_1g.10gb:7(S:0-1),gpu:nvidia_h100_80gb_hbm3_3g.40gb:8", []),
        ("h100", "gpu:nvidia_h100_80gb_hbm3:3,gpu:nvidia_h100_80gb_hbm3_3g.40gb:2", ["nvidia_h100_80gb_hbm3"]),
        ("a100-80g", "gpu:nvidia_a100_80gb_pcie_2g.20gb:3", []),
        ("a100-80g", "gpu:nvidia_a100_80gb_pcie:1,gpu:nvidia_a100_80gb_pcie_1g.10gb:7", ["nvidia_a100_80gb_pcie"]),
        ("a100-80g", "gpu:a100_1g.5gb:7,gpu:A100_1g.10gb:7,gpu:a100-mig-3g.20gb:2,gpu:a100_3g_20gb:2", []),
        ("h100", "gpu:3g.40gb:8(S:0-1),gpu:1g.10gb+me:1,gpu:1c.3g.40gb:2,gpu:h100.1g.10gb:7", []),
        ("h200", "gpu:nvidia_h200_1g.18gb:7,gpu:nvidia_h200:4", ["nvidia_h200"]),
        ("h100", "gpu:h100_mig:14", []),
        ("h100", "vgpu:h100:2", []),
    ],
)
def test_the_cluster_s_name_of_an_accelerator(accelerator, gres, types):
    known = partitions(f"gpu|up|infinite|32|512000|{gres}|idle|1\n")
    assert gpu_types(accelerator, known, accelerators()) == types


def test_a_slice_is_the_accelerator_that_names_its_profile():
    """As one's own hardware has it, with the slice's memory."""
    own = {"h100-3g.40gb": {**accelerators()["h100"].model_dump(exclude_none=True), "memory": "40448MiB"}}
    known = partitions(
        "gpu|up|infinite|32|512000|gpu:nvidia_h100_80gb_hbm3_3g.40gb:4,gpu:nvidia_h100_80gb_hbm3_1g.10gb:2|idle|1\n"
    )
    assert gpu_types("h100-3g.40gb", known, accelerators(own)) == ["nvidia_h100_80gb_hbm3_3g.40gb"]
    assert gpu_types("h100", known, accelerators(own)) == []


def test_a_slice_is_not_a_gpu():
    known = partitions((ROOT / "tests/data/environment/sinfo_mig.txt").read_text())
    (part,) = known
    assert (part.gpus, part.gpu_types) == (0, {"nvidia_h100_80gb_hbm3_4g.40gb": 2})
    assert gpu_types("h100", known, accelerators()) == []
    assert "its GPUs may be MIG slices (nvidia_h100_80gb_hbm3_4g.40gb): name the type" in refusal(needs(gpus=1), known)
    assert "1 GPUs of type h100 needed, a node has 0" in refusal(needs(gpus=1, gpu_type="h100"), known)
    assert refusal(needs(gpus=2, gpu_type="nvidia_h100_80gb_hbm3_4g.40gb"), known) is None  # asked for by its name
    assert refusal(needs(), known) is None
    assert partition_for(needs(gpus=1), known) is None


def test_rows_of_nodes_that_differ_have_the_least_of_each():
    (part,) = partitions("gpu|up|infinite|64+|256000+|gpu:h100:4(S:0,1)|mixed|12\n")
    assert (part.cores, part.memory_mb, part.gpus, part.nodes) == (64, 256000, 4, 12)


def row(name="gpu", available="up", limit="infinite", cores="64", memory="500000", gres="gpu:h100:4", state="idle", nodes="2"):
    """A row of sinfo."""
    return f"{name}|{available}|{limit}|{cores}|{memory}|{gres}|{state}|{nodes}\n"


@pytest.mark.parametrize(
    ("states", "up"),
    [
        ("idle mixed allocated allocated+ completing planned reserved blocked perfctrs cloud n/a", True),
        ("idle~ idle# idle! idle% idle@ idle^ idle- mixed- mixed# allocated~ mixed^ planned~", True),  # back by themselves
        ("power_down power_down~ powered_down powered_down~ powering_down% power_up# powering_up# reboot^ IDLE+CLOUD", True),
        (
            "inval inval* invalid_reg future futr future~ error unknown unk* down down* down~ down$ drained drained~ draining@",
            False,
        ),
        ("drained* fail failing* maint maint* idle* idle$ mixed$ allocated* powering_up* idle~* DOWN+CLOUD", False),
        ("IDLE+DRAIN IDLE+MAINTENANCE IDLE+NOT_RESPONDING IDLE+INVALID_REG", False),
    ],
)
def test_nodes_are_up_that_a_job_may_get_without_anybody_s_help(states, up):
    for state in states.split():
        (part,) = partitions(row(state=state))
        assert part.up == up, state
        said = refusal(needs(), [part])
        assert said == (None if up else f"partition gpu: its nodes are {state}"), state


@pytest.mark.parametrize("available", ["down", "drain", "inact"])
def test_a_partition_that_is_not_up_says_so(available):
    assert refusal(needs(), partitions(row(available=available))) == f"partition gpu: its nodes are {available}"


EMPTY = {"cores": "0", "memory": "0", "gres": "(null)", "state": "n/a", "nodes": "0"}


@pytest.mark.parametrize(
    ("rows", "wanted", "said", "partition"),
    [
        # Workers that start on demand: what they will have is not known.
        ([row("slinky*", **EMPTY)], None, None, None),
        ([row("slinky", **EMPTY)], "slinky", None, None),
        ([row("slinky", **EMPTY), row("cpu*", gres="(null)")], "slinky,cpu", None, None),
        ([row("slinky*", available="down", **EMPTY)], None, "partition slinky: its nodes are down", None),
        # One that a job is not sent to is no reason to send it.
        (
            [row("cpu*", gres="(null)"), row("old", **EMPTY)],
            None,
            "partition cpu: 1 GPUs of type h100 needed, a node has 0; partition old: it has no node",
            None,
        ),
        ([row("slinky*", **EMPTY), row("gpu")], None, None, "gpu"),
        ([row("gpu*"), row("slinky", **EMPTY)], None, None, None),
    ],
)
def test_a_partition_without_nodes_may_get_some(rows, wanted, said, partition):
    known, asked = partitions("".join(rows)), needs(gpus=1, gpu_type="h100")
    assert refusal(asked, known, wanted) == said
    assert partition_for(asked, known) == partition


@pytest.mark.parametrize(
    ("gres", "gpus", "types"),
    [
        ("gpu:h100:4(S:0),gpu:h100:4(S:1)", 8, {"h100": 8}),
        ("gpu:h100:2(S:0),gpu:a100:2,gpu:h100:1", 5, {"h100": 3, "a100": 2}),
        ("gpu:h100:no_consume:4", 4, {"h100": 4}),
        ("gpu:no_consume:4,nic:2", 4, {}),
        ("gres:x:1,gpu:1K", 1024, {}),
        ("gpu:h100:0", 0, {"h100": 0}),
        ("(null)", 0, {}),
        ("N/A", 0, {}),
        ("", 0, {}),
    ],
)
def test_gpus_of_one_type_count_together(gres, gpus, types):
    (part,) = partitions(row(gres=gres))
    assert (part.gpus, part.gpu_types) == (gpus, types)


def test_nodes_of_one_type_in_several_rows_count_together():
    known = partitions(
        row() + row(state="mixed", nodes="1") + row(gres="gpu:h100:8", nodes="1") + row(state="inval", nodes="9")
    )
    for nodes, gpus, able in ((4, 4, True), (5, 4, False), (1, 8, True), (2, 8, False)):
        assert (refusal(needs(nodes=nodes, gpus=gpus, gpu_type="h100"), known) is None) == able, (nodes, gpus)


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        *(("limit", text, None) for text in ("infinite", "UNLIMITED", "n/a", "N/A", "INVALID", "soon", "", "1:2:3:4", "-1")),
        *(("limit", text, m) for text, m in {"30:00": 30, "2:30:00": 150, "1-00:00:00": 1440, "2-12": 3600, "90": 90, "1-1:30": 1530}.items()),
        *(("cores", text, None) for text in ("N/A", "n/a", "UNLIMITED", "", "many", "-1", "+")),
        *(("cores", text, n) for text, n in {"64": 64, "1+": 1, "1K": 1024, "1K+": 1024, "1.5K": 1536, "64-128": 64, " 64 ": 64}.items()),
        *(("memory", text, None) for text in ("N/A", "UNLIMITED", "(null)")),
        *(("memory", text, n) for text, n in {"1+": 1, "512000+": 512_000, "1M": 2**20, "2T": 2 * 2**40}.items()),
        *(("nodes", text, n) for text, n in {"1K": 1024, "N/A": 1, "0": 0, "12+": 12}.items()),
    ],
)  # fmt: skip
def test_a_number_is_read_as_slurm_writes_it_and_an_odd_one_costs_itself(column, text, value):
    cpu = row("cpu", gres="(null)")
    part, other = partitions(row(**{column: text}) + "a banner of the site\n" + cpu)
    name = {"limit": "minutes", "memory": "memory_mb"}.get(column, column)
    assert getattr(part, name) == value
    assert other == partitions(cpu)[0]
    if value is None:  # which keeps no job away
        assert refusal(needs(), [part]) is None


@pytest.mark.parametrize("text", ["", "slurm_load_partitions: nothing\n", "gpu|up|1\n"])
def test_what_is_no_partition_is_quoted(text):
    with pytest.raises(BenchError, match="sinfo prints no partition, but '" + re.escape(text.strip())):
        partitions(text)


def programs(folder, monkeypatch, **scripts):
    """SLURM's programs are these and no others."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_programs_that_are_missing_or_fail_are_named(tmp_path, monkeypatch):
    programs(tmp_path, monkeypatch)
    with pytest.raises(BenchError, match=r"^sinfo is not on PATH\. Start the workflow on a login node"):
        partitions()
    with pytest.raises(BenchError, match=r"^squeue is not on PATH\. Start the workflow on a login node"):
        left_jobs(tmp_path)
    assert not has_accounting()
    refused = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
    programs(tmp_path, monkeypatch, squeue=refused, sinfo=refused, scontrol="echo AccountingStorageType = slurmdbd")
    for asked in (partitions, lambda: left_jobs(tmp_path)):
        with pytest.raises(BenchError, match="failed: slurm_load_jobs error: Unable to contact slurm controller"):
            asked()
    assert not has_accounting()  # without sacct nobody can ask


@pytest.mark.workflow
@pytest.mark.parametrize(("there", "said"), [({}, "squeue is not on PATH"), ({"squeue": "exit 0"}, "sinfo is not on PATH")])
def test_a_workflow_without_slurm_s_programs_says_which(tmp_path, monkeypatch, content, there, said):
    project = Project(tmp_path / "project", content)
    (tmp_path / "bin").mkdir()
    for name, script in there.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for name in ("sh", "bash", "which", "env", "git", "mktemp"):  # what Snakemake calls; SLURM may be installed beside them
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    project.command()
    words = [project.folder / ".venv/bin/snakemake", "--profile", "profiles/slurm", "results/figures/all"]
    done = subprocess.run(words, cwd=project.folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        f"nothing was submitted: {said}. Start the workflow on a login node of the cluster."
    )
    assert "Traceback" not in done.stderr
    assert "File " not in done.stderr


def test_jobs_of_an_earlier_workflow_are_those_of_this_folder(tmp_path):
    told = f"7|rule_measure_wildcards_one_1|{tmp_path}\n8|rule_measure_wildcards_one_1|{tmp_path}-2\n9|(null)|{tmp_path}\n"
    assert left_jobs(tmp_path, told) == {"7": "one_1"}


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
def with_accounts(tmp_path_factory, cluster):
    """A second cluster, which keeps accounts; the first one where they cannot be had."""
    if missing(*ACCOUNTING):
        yield cluster
        return
    other = Cluster(tmp_path_factory.mktemp("accounts"), accounting=True)
    try:
        other.start()
        yield other
    finally:
        other.stop()


def run(project, cluster, *arguments, target="results/figures/all", status=0):
    done = subprocess.run(
        command(project, *arguments, target=target),
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
            command(project, *arguments, target=target),
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
    records = (json.loads(path.read_text()) for path in project.folder.glob("results/runs/*/*/run.json"))
    return {record["digest"]: record["clock_start_s"] for record in records if record["definition"]["deployment"] == deployment}


@pytest.mark.engine
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

    with running(project, cluster, target="results/figures/throughput-over-time.svg") as workflow:
        runs("two")
        cluster.ask("scancel", session("two")[0])
        runs("one")
        soon = time.strftime("%FT%T", time.localtime(time.time() + 1))
        cluster.update(f"JobId={session('one')[0]}", f"EndTime={soon}")  # SLURM looks every 30 s
        _, node = session("two", 2)
        runs("two")
        cluster.update(f"NodeName={node}", "State=DOWN", "Reason=test")
        until(lambda: cluster.states("measure_wildcards_two_1")[1:2] == ["NODE_FAIL"], "lost node", workflow)
        cluster.update(f"NodeName={node}", "State=RESUME")
        _, node = session("two", 3)
        runs("two")
        cluster.ask("sbatch", "--partition=urgent", f"--nodelist={node}", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
        _, node = session("two", 4)
        cluster.update(f"NodeName={node}", "State=DRAIN", "Reason=test")
        assert workflow.wait(timeout=300) == 0, project.said()[-6000:]
    cluster.update(f"NodeName={node}", "State=RESUME")
    assert cluster.states("measure_wildcards_one_1") == ["TIMEOUT", "COMPLETED"]
    assert cluster.states("measure_wildcards_two_1") == ["CANCELLED", "NODE_FAIL", "PREEMPTED", "COMPLETED"]
    for deployment, before in kept.items():
        after = measured(project, deployment)
        assert {digest: after[digest] for digest in before} == before  # what was finished was not measured again
    assert project.servers("llama") == []
    summary = pl.read_parquet(project.folder / "results/summary.parquet")
    assert summary["ok"].to_list() == [10] * 11
    assert (project.folder / "results/figures/throughput-over-time.svg").stat().st_size > 500


@pytest.mark.engine
def test_models_are_added_and_their_sessions_run_side_by_side_on_gpus_of_their_own(project, with_accounts):
    before = {name: measured(project, name) for name in ("one", "two")}
    project.config["engines"]["gpu"] = {
        "source": "command",
        "command": [sys.executable, "-m", "tests.support.gpu_server"],
        "backend": "cuda",
    }
    project.config["decision"] = {"accelerator": "h100"}
    for name in ("three", "four"):
        project.config["deployments"][name] = {"model": "one", "engine": "gpu", "kv_cache_memory": "1MiB", "tensor_parallel": 2}
        project.config["study"]["ladders"].append({"deployment": name, "workload": "steady", "request_rate": [10]})
    account = [] if missing(*ACCOUNTING) else ["--default-resources", "slurm_account=research", "--jobs", "2"]
    run(project, with_accounts, *account, target="measured")
    jobs = {name: (state, node) for name, state, node in with_accounts.jobs().values() if name.endswith(("three_1", "four_1"))}
    assert jobs == {f"rule_measure_wildcards_{name}_1": ("COMPLETED", "alpha") for name in ("three", "four")}
    assert {name: measured(project, name) for name in ("one", "two")} == before
    facts = [
        json.loads((project.folder / f"results/deployments/{name}/deployment.json").read_text()) for name in ("three", "four")
    ]
    assert sorted(each["inherited"]["CUDA_VISIBLE_DEVICES"] for each in facts) == ["0,1", "2,3"]


def ranks(project):
    """The processes of a server on two nodes by their nodes, without their guards."""
    return {process.environ()["SLURMD_NODENAME"]: process for process in project.servers("tests.support.gpu_server")}


WIDE = {"tensor_parallel": 2, "pipeline_parallel": 2}
FLEET = {"tensor_parallel": 2, "replicas": 2, "router": "haproxy"}


@pytest.mark.engine
@pytest.mark.parametrize(
    ("deployment", "lost"), [(WIDE, "lost its process on node beta, which"), (FLEET, "lost its replica 2 of 2, which")]
)
def test_a_server_or_fleet_on_two_nodes_loses_one_of_its_processes_and_then_its_session(tmp_path, cluster, deployment, lost):
    if deployment is FLEET and shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("HAProxy is not installed: apt-get install haproxy")
    project = Project(tmp_path.resolve(), CONFIG)
    project.config["study"]["ladders"] = [{"deployment": "wide", "workload": "steady", "request_rate": [10], "repeats": 12}]
    command = [sys.executable, "-m", "tests.support.gpu_server"]
    project.config["engines"] = {"gpu": {"source": "command", "command": command, "backend": "cuda"}}
    project.config["deployments"] = {
        "wide": {"model": "one", "engine": "gpu", "kv_cache_memory": "1MiB", "nodes": 2, **deployment}
    }
    project.config["workloads"] = {"steady": STEADY}
    with (project.folder / "Snakefile").open("a") as file:
        file.write(OFTEN)
    log, told = (project.folder / name for name in ("results/deployments/wide/server.log", "logs/measure/wide/1.log"))
    jobs = cluster.jobs().keys()
    with running(project, cluster, "--retries", "0", target="measured") as workflow:
        until(project.stored, "run", workflow)
        first = ranks(project)
        assert {node: each.environ()["CUDA_VISIBLE_DEVICES"] for node, each in first.items()} == {"alpha": "0,1", "beta": "0,1"}
        assert ("--headless" in first["beta"].cmdline()) == (deployment is WIDE)
        # What runs on the other node is a step of the job.
        steps = cluster.ask("squeue", "--steps", "--noheader", "--format=%i %N").splitlines()
        assert any(step.split()[1] == "beta" and step.split(".")[0] not in jobs for step in steps), steps
        first["beta"].kill()
        until(lambda: log.read_text().count("\n--- ") == 2 and len(ranks(project)) == 2, "second start", workflow)
        second = ranks(project)
        assert f"{lost} was killed by SIGKILL" in told.read_text()
        assert not first["alpha"].is_running()
        (session,) = [each for each in project.processes() if each.cmdline()[-1].endswith(".measure.py")]
        session.kill()
        until(lambda: not any(each.is_running() for each in second.values()), "end of both", workflow, within=30)
        assert workflow.wait(timeout=120) == 1, project.said()[-6000:]
    assert cluster.states("measure_wildcards_wide_1")[-1] == "FAILED"
    (facts,) = project.folder.glob("results/deployments/wide/deployment-*.json")
    assert json.loads(facts.read_text())["nodes"] == ["alpha", "beta"]
    (record, *_) = map(json.loads, (path.read_text() for path in project.folder.glob("results/runs/wide/*/run.json")))
    assert [each["name"] for each in record.get("workers", [])] == (["replica 1", "replica 2"] if deployment is FLEET else [])
    assert project.nothing_left()


@pytest.mark.engine
def test_whether_a_cluster_keeps_accounts_is_found_out(cluster, with_accounts):
    def found(on):
        asked = [sys.executable, "-c", "from bench.cluster import has_accounting; print(has_accounting())"]
        return subprocess.run(asked, env=on.environment, capture_output=True, text=True, check=True).stdout.strip()

    assert found(cluster) == "False"
    if absent := missing(*ACCOUNTING):
        pytest.skip(f"SLURM's accounting is not installed ({', '.join(absent)}): apt-get install slurmdbd mariadb-server")
    assert found(with_accounts) == "True"
    kept = with_accounts.ask("sacct", "--allocations", "--noheader", "--parsable2", "--format=Comment,Account,State")
    assert sorted(kept.split()) == [f"rule_measure_wildcards_{name}_1|research|COMPLETED" for name in ("four", "three")]


@pytest.mark.engine
def test_sessions_that_no_node_can_hold_are_refused_before_anything_is_submitted(project, cluster):
    deployments, known = project.config["deployments"], cluster.jobs()
    project.config["deployments"] = {
        **deployments,
        "two": {**deployments["two"], "cores": 7},
        "three": {**deployments["three"], "tensor_parallel": 1, "pipeline_parallel": 2, "data_parallel": 4},
    }
    run(project, cluster, status=1)
    project.config["deployments"] = deployments
    assert "two: partition main: 9 cores needed, a node has 8" in project.output
    assert "8 GPUs of type h100 needed, a node has 4" in project.output
    assert cluster.jobs().keys() <= known.keys()


@pytest.mark.engine
def test_a_session_whose_job_outlived_its_workflow_is_not_started_twice(project, cluster):
    project.command()  # writes the study's file
    project.bench("discard", "two/*")
    cluster.ask(
        "sbatch", "--comment=rule_measure_wildcards_two_1", f"--chdir={project.folder}", "--output=/dev/null", "--wrap=sleep 60"
    )
    known = cluster.jobs()
    run(project, cluster, status=1)
    (job,) = [
        job
        for job, (name, state, _) in known.items()
        if name == "rule_measure_wildcards_two_1" and state in ("PENDING", "RUNNING")
    ]
    assert f"scancel {job}" in project.output
    assert cluster.jobs().keys() <= known.keys()

"""What is read of a SLURM cluster, and what a session asks of it: without one, from what its programs print.

A real cluster: tests/workflow/test_slurm.py.
"""

import os
import re
import shutil

import pytest

from bench.errors import BenchError
from bench.measure.slurm import Needs, partitions, refusal, refuse_wrong_profile
from tests.support.forked import snakemake
from tests.support.project import Project
from tests.support.study import ROOT

SINFO = """\
cpu*|up|1-00:00:00|64|256000|(null)|idle|1
gpu|up|2:30:00|32|512000|gpu:h100:4(S:0-1),gpu:a100:2|mixed|1
gpu|up|2:30:00|32|512000|gpu:h100:4|down*|1
night|down|infinite|128|1024000|(null)|idle|1
"""


def needs(**given):
    return Needs(**{"cores": 4, "memory_mb": 8000, "gpus": 0, "minutes": 60, **given})


def row(name="gpu", available="up", limit="infinite", cores="64", memory="500000", gres="gpu:h100:4", state="idle", nodes="2"):
    """A row of sinfo."""
    return f"{name}|{available}|{limit}|{cores}|{memory}|{gres}|{state}|{nodes}\n"


# --- What sinfo prints


def test_partitions_are_read_as_sinfo_prints_them():
    cpu, gpu, down, night = partitions(SINFO)
    assert (cpu.minutes, cpu.cores, cpu.memory_mb, cpu.gpus(None), cpu.up) == (1440, 64, 256000, 0, True)
    assert (cpu.name, cpu.default, gpu.default) == ("cpu", True, False)
    assert (gpu.minutes, gpu.gpus(None), gpu.gpus("a100"), gpu.gpus("b200"), gpu.up) == (150, 6, 2, 0, True)
    assert (down.up, night.up, night.minutes) == (False, False, None)
    (least,) = partitions("gpu|up|infinite|64+|256000+|gpu:h100:4(S:0,1)|mixed|12\n")  # of nodes that differ
    assert (least.cores, least.memory_mb, least.gpus("h100")) == (64, 256000, 4)


# Column, and value by text; None is what keeps no job away.
NUMBERS = {
    "limit": {**dict.fromkeys(("infinite", "UNLIMITED", "n/a", "N/A", "INVALID", "soon", "", "1:2:3:4", "-1")),
              "30:00": 30, "2:30:00": 150, "1-00:00:00": 1440, "2-12": 3600, "90": 90, "1-1:30": 1530},
    "cores": {**dict.fromkeys(("N/A", "n/a", "UNLIMITED", "", "many", "-1", "+")),
              "64": 64, "1+": 1, "1K": 1024, "1K+": 1024, "1.5K": 1536, "64-128": 64, " 64 ": 64},
    "memory": {**dict.fromkeys(("N/A", "UNLIMITED", "(null)")), "1+": 1, "512000+": 512_000, "1M": 2**20, "2T": 2 * 2**40},
}  # fmt: skip


def test_a_number_is_read_as_slurm_writes_it_and_an_odd_one_costs_itself():
    cpu = row("cpu", gres="(null)")
    for column, values in NUMBERS.items():
        name = {"limit": "minutes", "memory": "memory_mb"}.get(column, column)
        for text, value in values.items():
            part, other = partitions(row(**{column: text}) + "a banner of the site\n" + cpu)
            assert getattr(part, name) == value, (column, text)
            assert other == partitions(cpu)[0]
            assert value is not None or refusal(needs(), [part], "gpu") is None, (column, text)


def test_gpus_of_one_type_count_together():
    for gres, gpus, of_h100 in (
        ("gpu:h100:4(S:0),gpu:h100:4(S:1)", 8, 8),
        ("gpu:h100:2(S:0),gpu:a100:2,gpu:h100:1", 5, 3),
        ("gpu:h100:no_consume:4", 4, 4),
        ("gpu:no_consume:4,nic:2", 4, 0),
        ("gres:x:1,gpu:12", 12, 0),
        ("(null)", 0, 0),
        ("N/A", 0, 0),
    ):
        (part,) = partitions(row(gres=gres))
        assert (part.gpus(None), part.gpus("h100")) == (gpus, of_h100), gres


def test_nodes_are_up_that_a_job_may_get_without_anybody_s_help():
    up = "idle mixed allocated allocated+ completing planned reserved blocked perfctrs cloud n/a "
    up += "idle~ idle# idle! idle% idle@ idle^ idle- mixed- mixed# allocated~ mixed^ planned~ "  # back by themselves
    up += "power_down power_down~ powered_down powered_down~ powering_down% power_up# powering_up# reboot^ IDLE+CLOUD"
    down = "inval inval* invalid_reg future futr future~ error unknown unk* down down* down~ down$ drained drained~ draining@ "
    down += "drained* fail failing* maint maint* idle* idle$ mixed$ allocated* powering_up* idle~* DOWN+CLOUD "
    down += "IDLE+DRAIN IDLE+MAINTENANCE IDLE+NOT_RESPONDING IDLE+INVALID_REG"
    for state, able in [*((state, True) for state in up.split()), *((state, False) for state in down.split())]:
        said = refusal(needs(), partitions(row(state=state)), "gpu")
        assert said == (None if able else "partition gpu: it is not up"), state


def test_what_is_no_partition_is_quoted():
    for text in ("", "slurm_load_partitions: nothing\n", "gpu|up|1\n"):
        with pytest.raises(BenchError, match="sinfo prints no partition, but '" + re.escape(text.strip())):
            partitions(text)


# --- Where a session may run


def test_what_no_partition_takes_is_refused():
    known = partitions(SINFO)
    for given, partition, model, reason in (
        ({}, None, None, None),  # the default one takes it
        ({}, "gpu", None, None),
        ({"gpus": 2}, None, None, "partition cpu: 2 GPUs needed, a node has 0"),
        ({"gpus": 2}, "", "", None),  # of each session another one
        ({"gpus": 8}, "", "", "8 GPUs needed, a node has 6"),
        ({"gpus": 2}, "gpu", "a100", None),
        ({"gpus": 4}, "gpu", "a100", "4 GPUs of type a100 needed, a node has 2"),
        ({"gpus": 2, "minutes": 151}, "gpu", "h100", "151 minutes needed, its time limit is 150"),
        ({"cores": 65}, "cpu", None, "65 cores needed, a node has 64"),
        ({"memory_mb": 256001}, "cpu", None, "256001 MB of memory needed, a node has 256000"),
        ({"memory_mb": None}, "cpu", None, None),
        ({}, "night", None, "partition night: it is not up"),
        ({}, "fast", None, "there is no partition fast; the cluster has cpu, gpu, night"),
    ):
        said = refusal(needs(**given), known, partition, model)
        assert said is None if reason is None else reason in (said or ""), (given, partition, model, said)


def test_a_partition_without_nodes_may_get_some():
    empty = {"cores": "0", "memory": "0", "gres": "(null)", "state": "n/a", "nodes": "0"}
    known = partitions(row("slinky", **empty) + row("cpu*", gres="(null)"))
    assert refusal(needs(gpus=1), known, "slinky,cpu", "h100") is None
    assert refusal(needs(gpus=1), known, None, "h100") == "partition cpu: 1 GPUs of type h100 needed, a node has 0"


def test_a_slice_is_no_gpu_and_is_asked_for_by_its_type():
    """MIG slices as clusters name them: SLURM's own names, then sites'."""
    for gres, gpus in (
        ("gpu:nvidia_h100_80gb_hbm3_4g.40gb:2", 0),
        ("gpu:nvidia_h100_80gb_hbm3:3,gpu:nvidia_h100_80gb_hbm3_3g.40gb:2", 3),
        ("gpu:a100_1g.5gb:7,gpu:A100_1g.10gb:7,gpu:a100-mig-3g.20gb:2,gpu:a100_3g_20gb:2,gpu:h100_mig:14", 0),
        ("gpu:3g.40gb:8(S:0-1),gpu:1g.10gb+me:1,gpu:1c.3g.40gb:2,gpu:h100.1g.10gb:7", 0),
        ("gpu:nvidia_a100-sxm4-80gb:4", 4),
    ):
        assert partitions(row(gres=gres))[0].gpus(None) == gpus, gres
    known = partitions((ROOT / "tests/data/environment/sinfo_mig.txt").read_text())
    asked = needs(gpus=2)
    assert refusal(asked, known, "gpu") == "partition gpu: 2 GPUs needed, a node has 0"
    assert refusal(asked, known, "gpu", "nvidia_h100_80gb_hbm3_4g.40gb") is None
    assert refusal(asked, known, "", "") is None  # each session names its own
    assert refusal(needs(), known, "gpu") is None


# --- SLURM's programs, and a workflow without a cluster


def programs(folder, **scripts):
    """SLURM's programs are these and no others, and what Snakemake calls is there too; the PATH."""
    folder.mkdir(exist_ok=True)
    for name in ("sh", "bash", "which", "env", "git", "mktemp"):
        if not (folder / name).exists():
            (folder / name).symlink_to(shutil.which(name))
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_sinfo_that_is_missing_or_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", programs(tmp_path))
    with pytest.raises(BenchError, match=r"^sinfo does not answer: .*No such file.*Start the workflow on a login node"):
        partitions()
    programs(tmp_path, sinfo="echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(BenchError, match=r"answer: slurm_load_jobs error: Unable to contact slurm controller\. Start"):
        partitions()


def test_the_profile_that_a_cluster_does_not_take_is_refused_with_the_other_ones_name(tmp_path, monkeypatch):
    def kept(profile, status_command, **there):
        monkeypatch.setenv("PATH", programs(tmp_path / str(len(there)), **there))
        for other in {"sacct", "squeue"} - {status_command}:
            with pytest.raises(BenchError, match=rf"job accounting: start with --profile profiles/{profile}\.$"):
                refuse_wrong_profile(other)
        refuse_wrong_profile(status_command)

    def storage(kind):
        return f"echo 'AccountingStorageType   = {kind}'"

    kept("slurm-no-accounting", "squeue")
    kept("slurm-no-accounting", "squeue", scontrol=storage("accounting_storage/slurmdbd"))  # nobody can ask
    kept("slurm", "sacct", scontrol=storage("accounting_storage/slurmdbd"), sacct="exit 0")
    for kind in ("accounting_storage/none", "(null)"):
        kept("slurm-no-accounting", "squeue", scontrol=storage(kind), sacct="exit 0")


@pytest.mark.workflow
def test_what_the_profile_would_submit(tmp_path, content):
    """A dry run, which asks no cluster; and a workflow that finds none."""
    content["engines"]["gpu"] = {"source": "command", "command": ["true"], "backend": "cuda"}
    content["deployments"]["wide"] = {**content["deployments"]["a"], "engine": "gpu", "tensor_parallel": 2}
    content["study"]["ladders"].append({"deployment": "wide", "workload": "short", "concurrency": [1]})
    project = Project(tmp_path / "project", content)
    project.command()  # writes the study's file
    environment = {**os.environ, "PATH": programs(tmp_path / "bin")}

    def ran(*words):
        done = snakemake("--profile", "profiles/slurm", *words, folder=project.folder, environment=environment)
        return done.returncode, done.stdout + done.stderr

    status, said = ran("results/figures/all")
    assert (status, "Traceback" in said, "File " in said) == (1, False, False), said
    last = said.splitlines()[-1]
    assert "nothing was submitted: sinfo does not answer" in last and last.endswith("on a login node of the cluster.")
    programs(tmp_path / "bin", sinfo="echo 'main*|up|infinite|64|256000|(null)|idle|1'")
    for words, short in (
        ((), "wide: partition main: 2 GPUs needed, a node has 0"),  # a profile that names none takes the default one
        (
            ("--set-resources", "measure:gpu_model=h100", "--jobs=2"),
            "wide: partition main: 2 GPUs of type h100 needed, a node has 0",
        ),
        (
            ("--set-resources", "measure:slurm_partition='night'", "--jobs=2"),
            "wide: there is no partition night; the cluster has main",
        ),
    ):
        status, said = ran(*words, "measured")
        assert (status, short in said) == (1, True), said
    status, said = ran("--dry-run", "measured")
    assert status == 0, said
    asked = dict(
        re.findall(r"^rule measure:\n(?:    .*\n)*?    wildcards: deployment=(\w+).*\n    resources: (.*)$", said, re.M)
    )
    for deployment, words in (
        ("a", ["nodes=1", "gpu=0", "runtime=30", "slurm_extra=--exclusive"]),
        ("wide", ["nodes=1", "gpu=2", "cpus_per_task=4", "runtime=30"]),
    ):
        assert set(words) <= set(asked[deployment].split(", ")), asked
    assert not re.search(r"rule (parse|figure|report):", said)

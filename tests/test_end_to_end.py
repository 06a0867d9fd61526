"""The whole path on the real engine, in a copy of the project: from nothing to figures, and every way in which it must go on.

The tests build on one another, in this order; each states what the ones before it left. One engine environment serves all.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import psutil
import pytest
import yaml

from tests.conftest import ROOT

pytestmark = pytest.mark.engine

SNAKEMAKE = Path(sys.executable).parent / "snakemake"
ARCHITECTURE = {
    "layers": 2, "hidden_size": 256, "heads": 4, "kv_heads": 4, "head_dim": 64, "intermediate_size": 512,
    "vocabulary": 512, "context": 512,
}  # fmt: skip
# 4 KiB a token: 4 MiB hold 1,024 tokens, 10.7 requests of 96 tokens.
CONFIG = {
    "study": {
        "title": "End to end",
        "ladders": [
            {"deployment": "one", "workload": "burst", "concurrency": [2, 24]},
            {"deployment": "one", "workload": "closed", "concurrency": [2]},
        ],
    },
    "models": {"one": {"architecture": ARCHITECTURE}},
    "engines": {"vllm-cpu": yaml.safe_load((ROOT / "config/config.yaml").read_text())["engines"]["vllm-cpu"]},
    "deployments": {"one": {"model": "one", "engine": "vllm-cpu", "kv_cache_memory": "4MiB"}},
    "workloads": {
        "burst": {"arrival": "burst", "prompt_tokens": 32, "output_tokens": 64},
        "closed": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": 6},
    },
    # What is tested here is the path; a busy machine must not make its runs invalid.
    "thresholds": {
        **dict.fromkeys(("loop_lag_p99_s", "loop_lag_max_s", "send_spread_s", "schedule_delay_p99_s", "scrape_gap_s"), 60.0),
        **{"clock_skew_s": 1.0, "in_flight_error": 10.0, "scrape_share": 0.0, "other_share": 1.0},
    },
}


class Project:
    """A copy of the project's tracked and new files, with a configuration of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ended = 0  # workflows ended by force
        self.config = json.loads(json.dumps(CONFIG))
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        # The environment is built once, in the project itself, and shared.
        (ROOT / "results/engines").mkdir(parents=True, exist_ok=True)
        (folder / "results").mkdir()
        (folder / "results/engines").symlink_to(ROOT / "results/engines")
        (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)

    def command(self, *arguments: str) -> list[str]:
        (self.folder / "config/config.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))
        return [str(SNAKEMAKE), "--nolock", "--cores", "1", *arguments, "results/figures/all"]

    def start(self) -> subprocess.Popen:
        """`make figures` in the background; what it says goes to a file, since a full pipe would stop it."""
        self.command()
        with (self.folder / "workflow.out").open("w") as out:
            return subprocess.Popen(
                ["make", "figures"], cwd=self.folder, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def said(self) -> str:
        return (self.folder / "workflow.out").read_text()

    def run(self, *arguments: str, status: int = 0) -> list[str]:
        """Run the workflow; the jobs that it ran, as `rule` or `rule:wildcards`."""
        done = subprocess.run(self.command(*arguments), cwd=self.folder, capture_output=True, text=True)
        self.told = done.stdout + done.stderr
        assert done.returncode == status, self.told[-6000:]
        return [
            rule + (f":{wildcards}" if wildcards else "")
            for rule, wildcards in re.findall(
                r"^(?:local)?rule (\w+):\n(?:    (?!wildcards).*\n)*(?:    wildcards: (.*)\n)?", self.told, re.M
            )
        ]

    def server_starts(self, deployment: str) -> int:
        log = self.folder / f"results/deployments/{deployment}/server.log"
        return log.read_text(errors="replace").count("\n--- ") if log.exists() else 0

    def records(self) -> dict[str, float]:
        """When each run was measured, by its name."""
        return {
            path.parent.name.rsplit("_", 1)[0] + "@" + path.parent.parent.name: json.loads(path.read_text())["clock_start_s"]
            for path in self.folder.glob("results/runs/*/*/run.json")
        }

    def stored(self) -> int:
        return len([d for d in self.folder.glob("results/.store/*") if not d.name.startswith(("deployment-", "."))])

    def stored_at(self) -> dict[str, float]:
        """When each run in the store was measured, by its digest."""
        records = (json.loads(path.read_text()) for path in self.folder.glob("results/.store/*/run.json"))
        return {record["digest"]: record["clock_start_s"] for record in records}

    def processes(self) -> list[psutil.Process]:
        """What runs in this folder, or serves a model of it."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and (
                    Path(process.cwd()) == self.folder or str(self.folder) in " ".join(process.cmdline())
                ):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def wait_for_stored(self, count: int, workflow: subprocess.Popen, within: float = 300) -> None:
        end = time.monotonic() + within
        while self.stored() < count:
            assert workflow.poll() is None, self.said()[-6000:]
            assert time.monotonic() < end, f"{self.stored()} of {count} runs after {within} s"
            time.sleep(0.05)

    def nothing_left(self, within: float = 45) -> bool:
        end = time.monotonic() + within
        while self.processes():
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        return True


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("project").resolve())
    yield project
    for process in project.processes():
        process.kill()


def test_from_nothing_to_figures(project):
    jobs = project.run()
    assert jobs.count("measure_one") == 1
    assert sum(job.startswith("parse:") for job in jobs) == 3
    assert project.server_starts("one") == 1
    summary = pl.read_parquet(project.folder / "results/summary.parquet").sort("num_requests")
    assert summary["valid"].to_list() == [True] * 3, summary["reasons"].to_list()
    assert summary["ok"].to_list() == summary["num_requests"].to_list() == [2, 6, 24]
    assert summary["wrong_prompt_tokens"].to_list() == summary["wrong_output_tokens"].to_list() == [0, 0, 0]
    # The server's own counters agree with what was sent: every token of every request, and no other.
    assert summary["server_generation_tokens"].to_list() == [2 * 64, 6 * 32, 24 * 64]
    prompts = summary["server_prompt_tokens"].to_list()
    assert prompts[:2] == [2 * 32, 6 * 32]
    assert prompts[2] >= 24 * 32  # a preempted prompt is computed again
    assert summary["in_flight_peak"].to_list()[:2] == [2, 2]  # the closed loop held two
    assert max(summary["running_peak"].to_list()[:2]) <= 2
    # Planned from geometry, and as the server says it has it.
    assert summary["kv_tokens_planned"].to_list() == summary["kv_tokens"].to_list() == [1024] * 3
    assert summary["predicted_saturation"].to_list() == [1024 / 96, 1024 / 64, 1024 / 96]
    assert summary["saturated"].to_list() == [False, False, True]
    facts = json.loads((project.folder / "results/deployments/one/deployment.json").read_text())
    assert facts["engine_version"].startswith("0.32.0")
    manifest = json.loads((project.folder / "results/figures/all").read_text())
    assert len(manifest["figures"]) == 18
    for name in manifest["figures"]:
        assert (project.folder / "results/figures" / name).stat().st_size > 500
    page = (project.folder / "results/report.html").read_text()
    assert "End to end" in page
    assert not re.findall(r'(?:src|href)="https?:', page)


def test_a_second_time_nothing_is_done(project):
    assert project.run() == []
    assert "Nothing to be done" in project.told


def test_a_level_more_is_one_run_with_one_server_start(project):
    before, starts = project.records(), project.server_starts("one")
    project.config["study"]["ladders"][0]["concurrency"].append(4)
    jobs = project.run()
    after = project.records()
    assert {name for name in after if after[name] != before.get(name)} == {"burst_burst_p32_o64_c0004_r1@one"}
    assert project.server_starts("one") == starts + 1
    assert jobs.count("measure_one") == 1
    assert not [job for job in jobs if job.startswith(("engine", "checkpoint", "deploy"))]


def test_a_model_more_runs_only_its_jobs(project):
    before, starts = project.records(), project.server_starts("one")
    project.config["models"]["two"] = {"architecture": {**ARCHITECTURE, "kv_heads": 1}}
    project.config["deployments"]["two"] = {"model": "two", "engine": "vllm-cpu", "kv_cache_memory": "4MiB"}
    project.config["study"]["ladders"].append({"deployment": "two", "workload": "burst", "concurrency": [2]})
    jobs = project.run()
    of_the_study = {"aggregate", "report", "manifest"}
    mine = [job for job in jobs if job.split(":")[0] not in of_the_study | {"figure"}]
    assert len(mine) == 4
    assert mine[:3] == ["checkpoint:model=two", "deploy:deployment=two", "measure_two"]
    assert mine[3].startswith("parse:deployment=two")
    assert {name: at for name, at in project.records().items() if name.endswith("@one")} == before
    assert (project.server_starts("one"), project.server_starts("two")) == (starts, 1)


def test_an_edit_of_a_figure_redraws_figures_only(project):
    chart = project.folder / "src/bench/figures/charts/ttft.py"
    chart.write_text(chart.read_text() + "# an edit\n")
    assert project.run() == ["figure:figure=ttft", "report", "manifest"]
    theme = project.folder / "src/bench/figures/theme.py"
    theme.write_text(theme.read_text() + "# an edit\n")
    assert {job.split(":")[0] for job in project.run()} == {"figure", "report", "manifest"}


def test_a_discarded_run_is_measured_again_and_no_other(project):
    before = project.records()
    subprocess.run(
        [Path(sys.executable).parent / "bench", "discard", "one/*_c0004_*"], cwd=project.folder, check=True, capture_output=True
    )
    project.run()
    after = project.records()
    assert {name for name in after if after[name] != before[name]} == {"burst_burst_p32_o64_c0004_r1@one"}


def more_levels(project, *levels):
    """Ask for levels that take a while each, so that there is a middle in which to end something."""
    project.config["study"]["ladders"][1]["concurrency"] += levels
    project.config["workloads"]["closed"]["num_requests"] = 150
    project.config["study"]["ladders"] = [x for x in project.config["study"]["ladders"] if x["deployment"] == "one"]


@pytest.mark.parametrize(
    ("whom", "number"),
    [("make", signal.SIGTERM), ("snakemake", signal.SIGKILL), ("make", signal.SIGKILL)],
    ids=["SIGTERM", "SIGKILL", "SIGKILL of make"],
)
def test_the_workflow_ended_in_a_run_leaves_nothing_and_keeps_what_is_done(project, whom, number):
    if not project.ended:
        more_levels(project, 3, 4, 5, 6)
    project.ended += 1
    known = project.stored()
    workflow = project.start()
    project.wait_for_stored(known + 1, workflow)
    time.sleep(0.5)  # into the next run
    if whom == "make":
        workflow.send_signal(number)
    else:
        next(p for p in project.processes() if "bin/snakemake" in " ".join(p.cmdline()[:2])).send_signal(number)
    workflow.wait(60)
    assert project.nothing_left()
    port = int(re.findall(r"ready after .* at http://127.0.0.1:(\d+)", project.said())[-1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)
    assert workflow.returncode != 0
    assert known + 1 <= project.stored() <= known + 2


def test_a_server_killed_in_a_run_is_started_again_and_the_rest_is_completed(project):
    known, starts = project.stored(), project.server_starts("one")
    kept = project.stored_at()
    project.config["study"]["ladders"][1]["concurrency"] += [7, 8]
    workflow = project.start()
    project.wait_for_stored(known + 1, workflow)
    time.sleep(0.3)
    servers = [
        p
        for p in project.processes()
        if any("api_server" in part for part in p.cmdline()) and "guard.py" not in str(p.cmdline())
    ]
    servers[0].send_signal(signal.SIGKILL)
    assert workflow.wait(timeout=600) == 0, project.said()[-6000:]
    assert "starting it once more" in project.said()
    assert project.server_starts("one") == starts + 2
    assert project.stored_at().items() >= kept.items()
    assert project.nothing_left()
    summary = pl.read_parquet(project.folder / "results/summary.parquet")
    assert summary["failed"].sum() == 0  # the dead server's failures are no run's
    assert len(summary) == 10
    assert project.run() == []


def test_a_server_that_will_not_start_ends_the_workflow_with_its_last_words(project):
    project.config["deployments"]["one"]["flags"] = {"no-such-flag": 1}
    project.run(status=1)
    assert "unrecognized arguments: --no-such-flag" in project.told
    starts = project.server_starts("one")
    assert "runs are measured and kept" in project.told
    assert project.nothing_left()
    del project.config["deployments"]["one"]["flags"]
    jobs = project.run()  # back to the deployment whose runs are in the store: nothing is measured again
    assert "10 of 10 runs are measured already" in project.told
    assert project.server_starts("one") == starts
    assert jobs.count("measure_one") == 1


def test_every_kind_of_load_is_what_it_says_on_a_real_engine(project):
    """One more deployment, whose prefix cache is on: paced, chat, whole answers, conversations, and prompts that are alike."""
    lengths = {"prompt_tokens": 96, "output_tokens": 16}
    loads = {
        "paced": {"arrival": "poisson", "duration_s": 3, **lengths},
        "stepped": {"arrival": "constant", "num_requests": 90, "step": {"factor": 4, "start_s": 2, "duration_s": 1}, **lengths},
        "spread": {
            "arrival": "gamma", "burstiness": 0.5, "num_requests": 12, "output_tokens": 8,
            "prompt_tokens": {"distribution": "lognormal", "median": 60, "sigma": 0.5, "max": 200},
        },
        "replayed": {"arrival": "trace", "trace": "trace.csv"},
        "talk": {"arrival": "burst", "endpoint": "chat", **lengths},
        "whole": {"arrival": "burst", "stream": False, **lengths},
        "alike": {"arrival": "burst", "cache": "shared", "shared_prefix": 0.7, **lengths},
        "same": {"arrival": "closed", "num_requests": 6, "cache": "repeated", **lengths},
        "turns": {"arrival": "closed", "num_requests": 4, "turns": {"count": 3, "new_tokens": 40}, **lengths},
    }  # fmt: skip
    levels = {"request_rate": [10], "time_scale": [2], "concurrency": [2]}
    axes = {"paced": "request_rate", "stepped": "request_rate", "spread": "request_rate", "replayed": "time_scale"}
    (project.folder / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,40,4\n0.5,50,5\n1.5,60,6\n")
    project.config["deployments"]["cached"] = {
        **project.config["deployments"]["one"],
        "prefix_caching": True,
        "kv_cache_memory": "16MiB",
    }
    project.config["workloads"] |= loads
    project.config["study"]["ladders"] = [
        {"deployment": "cached", "workload": name, axis: levels[axis]}
        for name in loads
        for axis in [axes.get(name, "concurrency")]
    ]
    project.run()
    rows = {row["workload"]: row for row in pl.read_parquet(project.folder / "results/summary.parquet").to_dicts()}
    assert {name: row["reasons"] for name, row in rows.items() if not row["valid"]} == {}
    assert all(row["failed"] == row["wrong_prompt_tokens"] == row["wrong_output_tokens"] == 0 for row in rows.values())
    assert rows["replayed"]["prompt_tokens"] == 50
    assert rows["replayed"]["offered_rate"] == pytest.approx(2 / 0.75)
    assert (rows["whole"]["ttft_n"], rows["whole"]["e2e_n"]) == (0, 2)
    assert (rows["talk"]["ttft_n"], rows["talk"]["prompt_tokens"]) == (2, 96)
    assert rows["stepped"]["recovered"] is not None  # there is load after the step; how long it takes is the machine's affair
    # Blocks of 32: 67 of 96 tokens are two blocks; a repeated prompt keeps its last block to compute; turns reuse 96 and 152 of 152 and 208.
    assert rows["alike"]["prefix_hit_rate"] == pytest.approx(64 / 96)
    assert rows["same"]["prefix_hit_rate"] == pytest.approx(64 / 96)
    assert rows["turns"]["prefix_hit_rate"] == pytest.approx((96 + 128) / (96 + 152 + 208))
    assert rows["paced"]["prefix_hit_rate"] == 0

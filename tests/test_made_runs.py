"""What the benchmarks make up is what the project reads: runs that every check passes, placed and drawn by the real workflow."""

import re
import subprocess
from pathlib import Path

import polars as pl
import pytest
from benchmarks.made import made_study, make_run
from benchmarks.workflow import SNAKEMAKE, copy_project, fill_store, write_study

from bench.analysis import verdict
from bench.parse import parse_run
from bench.study import Plan, load_config
from bench.study.config import Thresholds


@pytest.mark.parametrize("level", [2, 50])
def test_a_made_run_is_read_and_trusted(tmp_path, level):
    plan = Plan.of(load_config(made_study(50, 50), source="made"))
    run = next(run for run in plan.runs if run.level == level)
    make_run(run, tmp_path)
    files = {"requests": "requests.parquet", "telemetry": "telemetry.parquet", "wide": "metrics.csv", "summary": "summary.json"}
    told = parse_run(tmp_path, **{key: tmp_path / name for key, name in files.items()})
    assert verdict(told, Thresholds()).reasons == []
    assert (told["requests"], told["ok"], told["scrapes"], told["in_flight_peak"]) == (300, 300, 302, level)
    assert 55 < told["duration_s"] <= 60
    assert (told["kv_usage_peak"] == 1.0) == (told["preemptions"] > 0) == (told["waiting_peak"] > 0) == (level == 50)
    telemetry = pl.read_parquet(tmp_path / "telemetry.parquet")
    assert telemetry.group_by("scrape").len()["len"].unique().to_list() == [350]
    assert len(pl.read_csv(tmp_path / "metrics.csv").columns) == 351


class Project:
    """A copy of the project with a study of two runs, which its store already has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_project(folder)
        fill_store(write_study(folder, 2, 2), folder, series=350)

    def jobs(self, *arguments: str) -> set[str]:
        """What Snakemake does, as `rule` or `rule:figure`."""
        targets = ["results/figures/kv-saturation.svg", "results/figures/ttft.svg"]
        command = [str(SNAKEMAKE), "--nolock", "--cores", "1", *arguments, *targets]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        told = done.stdout + done.stderr
        assert done.returncode == 0, told[-3000:]
        found = set()
        for rule, facts in re.findall(r"^(?:local)?rule (\w+):\n((?:    .*\n)*)", told, re.M):
            figure = re.search(r"wildcards: figure=(\S+)", facts)
            found.add(f"{rule}:{figure[1]}" if figure else rule)
        return found

    def edit(self, file: str) -> None:
        path = self.folder / "src/bench" / file
        path.write_text(path.read_text() + "# an edit\n")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("project").resolve())
    first = {"engine", "checkpoint", "deploy", "measure_d000", "parse", "aggregate", "figure:kv-saturation", "figure:ttft"}
    assert project.jobs() == first
    assert project.jobs("--dry-run") == set()
    return project


@pytest.mark.parametrize(
    ("file", "jobs"),
    [
        ("figures/charts/ttft.py", {"figure:ttft"}),
        ("figures/theme.py", {"figure:ttft", "figure:kv-saturation"}),
        ("analysis/validity.py", {"aggregate", "figure:ttft", "figure:kv-saturation"}),
        ("parse/latency.py", {"parse", "aggregate", "figure:ttft", "figure:kv-saturation"}),
        ("telemetry/engines.toml", {"parse", "aggregate", "figure:ttft", "figure:kv-saturation"}),
        ("measure/session.py", set()),
        ("wire/loop.py", set()),
    ],
)
def test_an_edit_does_again_what_it_decides(project, file, jobs):
    path = project.folder / "src/bench" / file
    before = path.read_text()
    project.edit(file)
    assert project.jobs("--dry-run") == jobs
    path.write_text(before)


def test_the_same_content_again_is_no_change(project):
    path = project.folder / "src/bench/parse/latency.py"
    path.write_text(path.read_text())
    assert project.jobs("--dry-run") == set()


def test_scheduling_is_left_to_what_happens(project):
    """Snakemake's limit of jobs a second would have it look for jobs once a second for every job that ended, while others are measured."""
    rules = project.folder / "workflow/rules/common.smk"
    rules.write_text(rules.read_text() + "\n\nonsuccess:\n    print('limiter', workflow.scheduler.job_rate_limiter)\n")
    project.edit("figures/charts/ttft.py")
    done = subprocess.run(
        [str(SNAKEMAKE), "--nolock", "--cores", "1", "results/figures/ttft.svg"],
        cwd=project.folder,
        capture_output=True,
        text=True,
    )
    assert "limiter None" in done.stdout + done.stderr

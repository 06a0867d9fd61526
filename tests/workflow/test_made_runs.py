"""What the benchmarks make up is what the project reads: runs that every check passes, placed and drawn by the real workflow."""

import re
import shutil
from pathlib import Path

import polars as pl
import pytest
import yaml

from bench.analysis import verdict
from bench.parse import parse_run
from bench.study import Plan, load_config
from bench.study.config import Thresholds
from tests.support.forked import snakemake
from tests.support.made import made_study, make_run
from tests.support.planted import reasons
from tests.support.project import drawn_project

pytestmark = pytest.mark.workflow


@pytest.mark.parametrize("level", [2, 50])
def test_a_made_run_is_read_and_trusted(tmp_path, level):
    plan = Plan.of(load_config(made_study(50, 50), source="made"))
    run = next(run for run in plan.runs if run.level == level)
    make_run(run, tmp_path)
    files = {"requests": "requests.parquet", "telemetry": "telemetry.parquet", "wide": "metrics.csv", "summary": "summary.json"}
    told = parse_run(tmp_path, **{key: tmp_path / name for key, name in files.items()})
    assert reasons(verdict(told, Thresholds())) == []
    assert (told["requests"], told["ok"], told["scrapes"], told["in_flight_peak"]) == (300, 300, 302, level)
    assert 55 < told["duration_s"] <= 60
    assert (told["kv_usage_peak"] == 1.0) == (told["preemptions"] > 0) == (told["waiting_peak"] > 0) == (level == 50)
    telemetry = pl.read_parquet(tmp_path / "telemetry.parquet")
    assert telemetry.group_by("scrape").len()["len"].unique().to_list() == [350]
    assert len(pl.read_csv(tmp_path / "metrics.csv").columns) == 351


class Project:
    """A copy of the project that is drawn, to edit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def jobs(self, *arguments: str, target: str = "results/figures/latencies.svg") -> set[str]:
        """The rules that Snakemake runs; `drawn` has the figures among them."""
        done = snakemake("--nolock", "--cores", "1", "--printshellcmds", *arguments, target, folder=self.folder)
        told = done.stdout + done.stderr
        assert done.returncode == 0, told[-3000:]
        return self.rules(told)

    def rules(self, told: str) -> set[str]:
        self.said = told
        self.drawn = set(re.findall(r"^    wildcards: figure=(.*)$", told, re.M))
        return set(re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", told, re.M))

    def edit(self, file: str) -> None:
        path = self.folder / "src/bench" / file
        path.write_text(path.read_text() + "# an edit\n")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project").resolve() / "copy"
    shutil.copytree(drawn_project(tmp_path_factory), folder, symlinks=True)
    project = Project(folder)
    drawn = {"parse", "aggregate", "analyse", "relieve", "findings", "calibrate", "figure", "report", "manifest"}
    assert project.rules((folder / "first.out").read_text()) == {"engine", "weights", "deploy", "measure", *drawn}
    assert {"latencies", "fleet"} <= project.drawn
    assert project.jobs("--dry-run") == set()
    return project


@pytest.mark.parametrize(
    ("file", "jobs"),
    [
        ("figures/charts/latencies.py", {"figure"}),
        ("figures/theme.py", {"figure"}),
        ("predict/replay.py", set()),  # which this figure does not use
        ("analysis/validity.py", {"aggregate", "analyse", "figure"}),
        ("aggregate/deployed.py", {"aggregate", "analyse", "figure"}),
        ("words/verdicts.py", {"figure"}),
        ("analysis/regions.py", {"aggregate", "analyse", "figure"}),
        ("analyse/comparisons.py", {"analyse", "figure"}),
        ("words/regions.py", {"figure"}),
        ("records/columns.toml", {"aggregate", "analyse", "figure"}),
        ("parse/latency.py", {"parse", "aggregate", "analyse", "figure"}),
        # Its flags, and its names of metrics. A dry run cannot know what is parsed after a session.
        ("engines/vllm.py", {"deploy", "measure", "aggregate", "analyse", "figure"}),
        # A figure that this study does not have, and code that measures: one dry run for all that decides nothing here.
        ("figures/charts/streaming.py measure/session.py load/loop.py", set()),
    ],
)
def test_an_edit_does_again_what_it_decides(project, file, jobs):
    paths = [project.folder / "src/bench" / name for name in file.split()]
    before = [path.read_text() for path in paths]
    for name in file.split():
        project.edit(name)
    assert project.jobs("--dry-run") == jobs
    for path, content in zip(paths, before, strict=True):
        path.write_text(content)


@pytest.mark.parametrize(
    ("file", "drawn"),
    [
        ("figures/charts/latencies.py", {"latencies"}),
        ("engines/vllm.py", {"latencies"}),  # Snakemake runs what follows a job, whether its files came out the same or not
    ],
)
def test_an_edit_draws_what_comes_out_otherwise(project, file, drawn):
    project.edit(file)
    project.jobs()
    assert project.drawn == drawn
    assert project.jobs("--dry-run") == set()


def test_a_file_that_is_gone_is_drawn_alone(project):
    """And scheduling is left to what happens: Snakemake's limit of jobs a second would have it look for jobs once a second for every job
    that ended, while others are measured.
    """
    rules = project.folder / "workflow/rules/common.smk"
    rules.write_text(rules.read_text() + "\n\nonsuccess:\n    print('limiter', workflow.scheduler.job_rate_limiter)\n")
    (project.folder / "results/figures/latencies.png").unlink()
    assert project.jobs(target="results/figures/latencies.png") == {"figure"}
    assert project.drawn == {"latencies"}
    assert "limiter None" in project.said


def test_another_peak_draws_the_fleet_alone(project):
    """And Snakemake's own report has each by its name."""
    config = project.folder / "config/config.yaml"
    content = yaml.safe_load(config.read_text())

    def decide(**decision):
        content["decision"] |= decision
        config.write_text(yaml.safe_dump(content, sort_keys=False))

    project.jobs(target="results/figures/all")  # what the edits before outdated: an engine decides a server's model, too
    decide(slo=["ttft_p99=9s"])
    assert project.jobs("--dry-run", target="results/figures/all") == {
        "aggregate",
        "analyse",
        "relieve",
        "findings",
        "calibrate",
        "figure",
        "report",
        "manifest",
    }
    decide(slo=["ttft_p99=10s"], peak_rps=20)
    assert project.jobs(target="results/figures/all") == {"findings", "figure", "report", "manifest"}
    assert project.drawn == {"fleet"}
    assert project.jobs("--dry-run", target="results/figures/all") == set()
    snakemake("--nolock", "--report", "report.html", "results/figures/all", folder=project.folder).check_returncode()
    page = (project.folder / "report.html").read_text()
    assert '"Figures"' in page
    for name in ("fleet", "latencies", "kv-saturation"):
        assert re.search(rf'"labels": ?\{{"figure": ?"{name}"', page)


def test_the_same_content_again_is_no_change(project):
    path = project.folder / "src/bench/parse/latency.py"
    path.write_text(path.read_text())
    assert project.jobs("--dry-run") == set()

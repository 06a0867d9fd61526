"""What an edit does again, of a study that the real workflow drew from made runs; and that made runs are what the project reads."""

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from bench.cli import main
from tests.support.forked import snakemake

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(300)]  # whoever is first draws the study


class Project:
    """A copy of the project that is drawn, to edit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before: dict[Path, str] = {}

    def jobs(self, *arguments: str, target: str | None = "results/figures/ttft.svg") -> set[str]:
        """The rules that Snakemake runs; `drawn` has the figures among them."""
        targets = [target] if target else []
        done = snakemake("--nolock", "--cores", "1", "--printshellcmds", *arguments, *targets, folder=self.folder)
        told = done.stdout + done.stderr
        assert done.returncode == 0, told[-3000:]
        return self.rules(told)

    def rules(self, told: str) -> set[str]:
        self.said = told
        self.drawn = set(re.findall(r"^    wildcards: figure=(.*)$", told, re.M))
        return set(re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", told, re.M))

    def keep(self, path: Path) -> Path:
        """A file that is to be as it was."""
        self.before.setdefault(path, path.read_text())
        return path

    def edit(self, *files: str) -> None:
        for path in (self.keep(self.folder / "src/bench" / file) for file in files):
            path.write_text(path.read_text() + "# an edit\n")


@pytest.fixture(scope="module")
def copied(tmp_path_factory, drawn_study):
    folder = tmp_path_factory.mktemp("project").resolve() / "copy"
    shutil.copytree(drawn_study, folder, symlinks=True)
    return Project(folder)


@pytest.fixture
def project(copied):
    """A project that is drawn; files of its library that a test edits are as they were afterwards."""
    yield copied
    for path, content in copied.before.items():
        path.write_text(content)
    copied.before = {}


def test_a_study_is_drawn_by_these_jobs_and_then_there_are_none(project):
    drawn = {"parse", "aggregate", "analyse", "findings", "calibrate", "figure", "report"}
    assert project.rules((project.folder / "first.out").read_text()) == {"engine", "weights", "deploy", "measure", *drawn}
    assert {"ttft", "throughput"} <= project.drawn
    path = project.folder / "src/bench/parse/latency.py"
    path.write_text(path.read_text())  # the same content again is no change
    assert project.jobs("--dry-run") == set()


AGAIN = {"aggregate", "analyse", "figure"}


@pytest.mark.parametrize(
    ("file", "jobs"),
    [
        ("findings/ttft.py", {"figure"}),
        ("findings/advice.py", {"analyse", "figure"}),
        ("parse/latency.py", {"parse", *AGAIN}),
        # Its flags, and its names of metrics.
        ("servers/vllm.py", {"deploy", "measure", "parse", *AGAIN}),
        # A figure that this study does not have, code that measures, and sentences and a replay that this figure does not use.
        ("findings/speculation.py measure/session.py load/loop.py search/words.py predict/fleet.py", set()),
        *(
            pytest.param(file, jobs, marks=pytest.mark.long(part="workflows"))
            for file, jobs in {
                "report/theme.py": {"figure"},
                "parse/validity.py": AGAIN,
                "parse/deployed.py": AGAIN,
                "findings/regions.py": {"analyse", "figure"},
                "report/figure.py": {"figure"},
                "runs/columns.toml": {"deploy", "measure", "parse", *AGAIN},
            }.items()
        ),
    ],
)
def test_an_edit_does_again_what_it_decides(project, file, jobs):
    project.edit(*file.split())
    assert project.jobs("--dry-run") == jobs


def test_a_session_is_planned_for_another_level_and_where_an_index_is_gone(project):
    config = project.keep(project.folder / "config/config.yaml")
    content = yaml.safe_load(config.read_text())
    content["study"]["ladders"][0]["concurrency"].append(6)
    config.write_text(yaml.safe_dump(content, sort_keys=False))
    assert project.jobs("--dry-run", target="measured") == {"measure", "measured"}
    config.write_text(project.before[config])
    index = project.keep(project.folder / "results/sessions/d000/1.json")
    moment = index.stat().st_mtime_ns
    assert project.jobs("--dry-run", target="measured") == set()
    index.unlink()
    assert project.jobs("--dry-run", target="measured") == {"measure", "measured"}
    index.write_text(project.before[index])
    os.utime(index, ns=(moment, moment))


def test_a_file_that_is_gone_is_drawn_alone(project):
    """And a finished workflow ends: Snakemake's limit of jobs would have it look for jobs as long as that lasts."""
    rules = project.folder / "workflow/rules/common.smk"
    project.keep(rules).write_text(
        rules.read_text() + "\n\nonsuccess:\n    print('limiter', workflow.scheduler.job_rate_limiter)\n"
    )
    (project.folder / "results/figures/ttft.png").unlink()
    assert project.jobs(target="results/figures/ttft.png") == {"figure"}
    assert project.drawn == {"ttft"}
    assert "limiter None" in project.said


def test_another_limit_or_peak_draws_what_depends_on_it(project):
    config = project.keep(project.folder / "config/config.yaml")
    content = yaml.safe_load(config.read_text())

    def would(**decision):
        content["decision"] |= decision
        config.write_text(yaml.safe_dump(content, sort_keys=False))
        return project.jobs("--dry-run", target="results/figures/all")

    drawn = {"findings", "figure", "report"}
    assert would(slo=["ttft_p99=9s"]) == {"aggregate", "analyse", "calibrate", *drawn}
    assert would(slo=["ttft_p99=10s"], peak_rps=20) == drawn - {"figure"}  # no figure is drawn from it


def test_a_run_that_is_forgotten_is_measured_again_for_whatever_rests_on_it(drawn_study, tmp_path, monkeypatch):
    project = Project(tmp_path / "copy")
    shutil.copytree(drawn_study, project.folder, symlinks=True)
    monkeypatch.chdir(project.folder)
    assert main(["runs", "--discard", "d000/*_r1_*"]) == 0
    again = {"measure", "parse", "aggregate", "analyse", "figure"}
    assert project.jobs("--dry-run") == again
    assert project.jobs("--dry-run", target=None) == again | {
        "default",
        "calibrate",
        "findings",
        "report",
    }  # without a target, all


def test_a_job_that_failed_runs_again(drawn_study, tmp_path):
    """Though its results are there from before: what was measured since would be left out for good."""
    project = Project(tmp_path / "copy")
    shutil.copytree(drawn_study, project.folder, symlinks=True)
    (record,) = project.folder.glob("results/runs/d000/*_c0002_r1_*/run.json")
    (record.parent / "metrics.csv").unlink()
    away = record.rename(record.with_name("away.json"))
    index = project.folder / "results/sessions/d000/1.json"
    index.write_text(index.read_text() + "\n")  # a session has been measured
    asked = ("--nolock", "--cores", "1", "results/summary.parquet")
    assert snakemake(*asked, folder=project.folder).returncode
    away.rename(record)
    assert project.jobs("--dry-run", target="results/summary.parquet") == {"parse", "aggregate"}
    others = {path: path.stat().st_mtime_ns for path in project.folder.glob("results/runs/d000/*/metrics.csv")}
    assert project.jobs(target="results/summary.parquet") == {"parse", "aggregate"}
    assert (record.parent / "metrics.csv").is_file()
    assert {path: path.stat().st_mtime_ns for path in others} == others  # what had been parsed is kept

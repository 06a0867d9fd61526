"""The tutorial's path, as a reader walks it: its own study on a real llama.cpp, a level more and a decision."""

import os
import re
import subprocess

import pytest
import yaml

from tests.support.command import bench
from tests.support.forked import snakemake
from tests.support.project import LENIENT, Project
from tests.support.study import ROOT

pytestmark = pytest.mark.engine

BLOCK = re.compile(r"^```(\w+)(?: title=\"my-study.yaml.*?\")\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def texts():
    """The study's file as the tutorial has it, and what is appended to it."""
    return [BLOCK.search((ROOT / f"docs/tutorial/{page}.md").read_text())[2] for page in ("own-model", "decision")]


@pytest.fixture(scope="module")
def project(tmp_path_factory, texts):
    project = Project(tmp_path_factory.mktemp("tutorial").resolve(), yaml.safe_load(texts[0]))
    yield project
    for process in project.processes():
        process.kill()


def write(project, text):
    """The study's file. A busy machine makes no run invalid here: what is tested is the path."""
    (project.folder / "my-study.yaml").write_text(f"{text}\nthresholds: {LENIENT}\n")


def said(project, *words):
    done = snakemake("--cores", "1", "--nolock", *words, "--configfile", "my-study.yaml", folder=project.folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_the_study_is_measured(project, texts):
    write(project, texts[0])
    said(project, "results/summary.parquet")
    listed = bench("runs", "--configfile", "my-study.yaml", cwd=project.folder)
    assert "7 runs: 7 measured" in listed.stdout


def test_a_level_and_a_decision_measure_that_level_alone(project, texts):
    """`make figures CONFIG=my-study.yaml`, once for both pages; beside a cluster's profile in the environment."""
    write(project, texts[0].replace("[1, 4, 8, 12]", "[1, 4, 6, 8, 12]") + texts[1])
    profile = project.folder / "cluster/config.yaml"
    profile.parent.mkdir()
    profile.write_text((ROOT / "tests/data/environment/dry-run.yaml").read_text())
    done = subprocess.run(
        ["make", "figures", "CONFIG=my-study.yaml"],
        cwd=project.folder,
        capture_output=True,
        text=True,
        env={**os.environ, "SNAKEMAKE_PROFILE": str(profile.parent)},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "SNAKEMAKE_PROFILE is set and not used" in done.stderr
    assert "The report: results/report.html" in done.stdout + done.stderr
    assert project.stored() == 8
    report = (project.folder / "results/report.md").read_text()
    assert re.search(r"- mine · burst: the KV cache is full at (8|12) in flight", report)
    assert "how many does a peak of 500 requests/s take?" in report
    assert "a peak of 500 requests/s takes" in report
    size = "size results:mine --workload chat --slo ttft_p90=150ms --slo tpot_p90=25ms --peak-rps 800"
    assert f"bench {size}" in (ROOT / "docs/tutorial/decision.md").read_text()
    sized = bench(*size.split(), cwd=project.folder)
    # A slow machine carries nothing within these limits; the tutorial says what to do then.
    assert "instances" in sized.stdout or "no measured load meets the SLOs" in sized.stderr


def test_the_report_is_named_only_if_it_was_made(project):
    assert "The report: results/report.html" in said(project, "results/figures/all")  # nothing to be done
    (project.folder / "results/report.html").unlink()
    # Snakemake takes it for intermediate, and finds nothing to do
    assert "The report:" not in said(project, "results/figures/all")
    (project.folder / "results/figures/all").unlink()
    assert "The report:" not in said(project, "results/figures/all", "--dry-run")
    assert "The report: results/report.html" in said(project, "results/figures/all")

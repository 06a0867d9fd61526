"""What `make` is told reaches the workflow."""

import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

BIN = Path(sys.executable).parent


def command(*words):
    """The workflow's command, as `make` would run it."""
    told = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    line = next(line for line in told.splitlines() if "bin/snakemake" in line)
    parts = shlex.split(line)
    return parts[next(i for i, part in enumerate(parts) if part.endswith("bin/snakemake")) + 1 :]


def test_a_study_and_a_selection_reach_the_workflow():
    words = command("figures", "CONFIG=config/studies/concurrency-small.yaml", "SELECT=falcon*_c0002_*")
    told = subprocess.run([BIN / "snakemake", *words, "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "falcon-40b-small/short_burst_p32_o64_c0002" in told.stdout
    assert "c0004" not in told.stdout


def test_a_study_that_is_none_lists_those_that_are():
    told = subprocess.run(["make", "study", "STUDY=nope"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode != 0
    assert "NAME one of: archetypes-small archetypes concurrency-small" in told.stderr

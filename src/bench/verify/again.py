"""The workflow once more, in another folder, on what was measured."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.records.checksums import files_of
from bench.records.run import RECORD
from bench.shipped import SNAKEFILE
from bench.store.pack import STUDY
from bench.study import Paths

__all__ = ["at", "copy_measurements", "key_of", "run_workflow", "summary_of", "why_not_parsed"]

_OF_A_WORKFLOW = {".snakemake", ".snakemake.lock", "logs", "results"}


def at(folder: Path, path: str | Path) -> Path:
    """Where a result lies in a folder of results, which may have another name."""
    return folder / Path(path).relative_to(Paths.RESULTS)


def key_of(run: Path) -> str:
    """How a run is called, by its folder."""
    return f"{run.parent.name}/{run.name}"


def summary_of(run: Path) -> str:
    """The file that the workflow makes last of a run's raw records."""
    return Paths.RUN_SUMMARY.format(deployment=run.parent.name, run=run.name)


def copy_measurements(folder: Path, runs: Collection[Path], beside: Path, to: Path) -> None:
    """Put into `to` what a study's sessions left in `folder`, with nothing that was made of it.

    Args:
        folder: of results, or of a pack. runs: folders in it, of those whose raw records are whole. beside: the working directory in
            which the study's files are. to: a new one.
    """
    results = to / Paths.RESULTS
    for run in runs:
        copy = results / "runs" / key_of(run)
        copy.mkdir(parents=True)
        for name in (*files_of(run / RECORD), RECORD):
            (copy / name).symlink_to(run / name)
    shutil.copytree(folder / "deployments", results / "deployments", ignore=shutil.ignore_patterns("*.log"))
    # Traces, prompts and locks, which the study names by their paths from its working directory.
    for entry in beside.iterdir():
        if entry != folder and entry.name not in _OF_A_WORKFLOW:
            (to / entry.name).symlink_to(entry)


def run_workflow(study: Mapping[str, Any], targets: Collection[str], to: Path, say: Callable[[str], None]) -> str | None:
    """Run the workflow on the copies in `to`.

    Args:
        study: a pack's study: it measures nothing. targets: the files to make. say: takes progress lines.

    Returns:
        None, or what it said where a job failed.
    """
    file = to / f".{STUDY}"
    file.write_text(yaml.safe_dump(dict(study), sort_keys=False, allow_unicode=True), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "--nolock", "--cores", str(os.cpu_count() or 1), "--snakefile", SNAKEFILE]
    environment = {key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"}
    with subprocess.Popen(
        [*command, "--configfile", file.name, "--", *targets],
        cwd=to,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as workflow:
        assert workflow.stderr is not None
        said = []
        for line in workflow.stderr:
            said.append(line)
            say(line.strip())
    return "".join(said) if workflow.returncode else None


def why_not_parsed(to: Path, run: Path) -> str:
    """Why a run has no tables in `to`, as its job's log says it."""
    try:
        lines = (to / f"logs/parse/{key_of(run)}.log").read_text(encoding="utf-8").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1].partition(" ")[2] if lines else "its job did not run"  # without the time

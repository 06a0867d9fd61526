"""The workflow once more, in another folder, on what was measured."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.beside.archive.check import key_of
from bench.runs.files import files_of
from bench.runs.paths import Paths
from bench.runs.run import RECORD
from bench.shipped import ROOT, SNAKEFILE
from bench.study.plan import Plan

_CONFIG = ".verified.yaml"
_LAST_CHARACTERS = 600


def at(folder: Path, path: str | Path) -> Path:
    """Where a result lies in a folder of results, which may have another name."""
    return folder / Path(path).relative_to(Paths.RESULTS)


def summary_of(run: Path) -> str:
    """The file that the workflow makes last of a run's raw records."""
    return Paths.RUN_SUMMARY.format(deployment=run.parent.name, run=run.name)


def parsed_of(plan: Plan, runs: Iterable[Path]) -> list[str]:
    """The lists that the workflow makes of parsed runs, of the sessions that these are of."""
    keys = set(map(key_of, runs))
    places = {(run.deployment.name, plan.place_of(run).session) for run in plan.every if run.key in keys}
    return [Paths.PARSED.format(deployment=deployment, session=session) for deployment, session in sorted(places)]


def copy_measurements(folder: Path, runs: Collection[Path], files: Collection[str], to: Path) -> Path:
    """Put into a new working directory what a study's sessions left in `folder`, with nothing that was made of it.

    All of it is copies: a record names any file beside it, and no job may reach what was measured.

    Args:
        folder: of results. runs: folders in it, of those whose raw records are whole.
        files: that the study names, by their paths from this working directory; those that are not here are left out.
        to: an empty folder.

    Returns:
        The working directory: so deep below `to` that paths such as `../prompts.jsonl` stay in it.
    """
    own = [file for file in files if not Path(file).is_absolute()]
    here = to.joinpath("study", *max((_ups(file) for file in own), key=len, default=[]))
    here.mkdir(parents=True)
    for file in own:
        if Path(file).is_file():
            (here / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, here / file)
    results = here / Paths.RESULTS
    for run in runs:
        copy = results / "runs" / key_of(run)
        copy.mkdir(parents=True)
        for name in (*files_of(run / RECORD), RECORD):
            shutil.copyfile(run / name, copy / name)
    if (folder / "deployments").is_dir():
        shutil.copytree(folder / "deployments", results / "deployments", ignore=shutil.ignore_patterns("*.log"))
    if (grades := at(folder, Paths.GRADES)).is_file():  # answers are not run again, and what is drawn of their grades is
        (results / "analysis").mkdir()
        shutil.copyfile(grades, results / "analysis" / grades.name)
    if (tuning := at(folder, Paths.TUNING)).is_file():  # nor are servers started
        (results / "tuning").mkdir()
        shutil.copyfile(tuning, results / "tuning" / tuning.name)
    return here


def _ups(file: str) -> list[str]:
    """A folder for each of those above the working directory through which a path leads."""
    return ["study" for part in Path(os.path.normpath(file)).parts if part == ".."]


def run_workflow(study: Mapping[str, Any], asked: Iterable[str], to: Path, say: Callable[[str], None]) -> str:
    """Run the workflow on the copies in `to`. It measures and starts nothing, whatever the study says: it is taken for a pack's.

    Args:
        asked: the files to make. say: takes progress lines.

    Returns:
        An empty text where all are made; else the end of what the workflow said.
    """
    content, targets = {**study, "packed": True}, list(asked)
    (to / _CONFIG).write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "--nolock", "--cores", str(os.cpu_count() or 1), "--snakefile", SNAKEFILE]
    profile = str(ROOT / "profiles/default")
    environment = {key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"}
    with subprocess.Popen(
        [*command, "--workflow-profile", profile, "--configfile", _CONFIG, "--", *targets],
        cwd=to,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as workflow:
        assert workflow.stderr is not None
        said = []
        for line in workflow.stderr:
            said.append(line.strip())
            say(line.strip())
    made = workflow.returncode == 0 and all((to / target).is_file() for target in targets)
    return "" if made else " ".join(said)[-_LAST_CHARACTERS:] or f"it ended with {workflow.returncode}"


def why_not_parsed(to: Path, run: Path) -> str | None:
    """Why the raw records of a run cannot be parsed, as its job's log in `to` says it; None where no job tried."""
    for log in (to / "logs/parse" / run.parent.name).glob("*.log"):
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.partition(" ")[2].startswith(f"{run.name}: "):  # after the time
                return line.partition(f"{run.name}: ")[2]
    return None

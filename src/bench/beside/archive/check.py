"""How a pack or a folder of results is checked: its records against their checksums and digests, and its numbers, made again by the
workflow in another folder.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from bench.errors import BenchError, shown
from bench.runs.deployment import DeploymentFacts
from bench.runs.environment import counted
from bench.runs.files import UNREADABLE, checksum, digest, files_of, read, read_object
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.runs.run import RECORD, RunRecord, read_record
from bench.servers.spec import DeploymentSpec
from bench.shipped import ROOT, SNAKEFILE
from bench.study.plan import Plan

_CLOSE = 1e-9  # by which results of other processors may differ, relative to themselves


@dataclass
class Check:
    """One kind of thing that is checked.

    Attributes:
        what: it is. checked: how many were compared, those that differ too.
        differs: each with its file and what is wrong. unchecked: what could not be checked, and why.
    """

    what: str
    checked: int = 0
    differs: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def compare(self, difference: str | None) -> None:
        """Count a comparison, and keep what it found."""
        self.checked += 1
        if difference:
            self.differs.append(difference)

    def compare_numbers(self, stored: Path, again: Path) -> None:
        """Compare a table or a summary with the same made again, by what both have: another version's may have other columns."""
        try:
            old, new = _content(stored), _content(again)
        except (*UNREADABLE, pl.exceptions.PolarsError) as error:
            return self.compare(f"{stored}: not readable: {str(error).partition(chr(10))[0][:200]}")
        differing = next((key for key in old if key in new and not same_numbers(old[key], new[key])), None)
        if others := sorted(old.keys() ^ new.keys()):
            self.unchecked.append(f"{stored}: {shown(', '.join(others), 400)}, which only one of the two has")
        self.compare(
            f"{stored}: {differing} is {shown(old[differing])}, and the raw records give {shown(new[differing])}"
            if differing
            else None
        )


def _content(path: Path) -> Mapping[str, Any]:
    return pl.read_parquet(path).to_dict(as_series=False) if path.suffix == ".parquet" else read_object(path)


def same_numbers(one: Any, other: Any) -> bool:
    """Whether two structures are the same, numbers to 1 in 10⁹."""
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers and (math.isclose(one, other, rel_tol=_CLOSE) or (math.isnan(one) and math.isnan(other)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_numbers(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_numbers, one, other))
    return type(one) is type(other) and bool(one == other)


def key_of(run: Path) -> str:
    """How a run is called, by its folder."""
    return f"{run.parent.name}/{run.name}"


def check_runs(folder: Path) -> tuple[Check, dict[Path, RunRecord], list[Path]]:
    """Each run below `folder`: its files against the checksums in its record, its definition and its place against its digest.

    Returns:
        The check; the record of each run's folder, where it can be read; the folders in which nothing differs.
    """
    check, records, intact = Check("runs as measured"), {}, []
    for path in sorted(folder.glob(f"runs/*/*/{RECORD}")):
        run = path.parent
        try:
            record = records[run] = read_record(path)
        except BenchError as error:
            check.compare(str(error))
            continue
        load = {key: value for key, value in record.definition.items() if key != "run"}  # whose name ends with the digest
        whole = {"protocol": record.protocol, "deployment": record.deployment_digest, "run": load}
        wrong = {
            f"{path}: its definition does not match its digest": digest(whole) != record.digest,
            f"{path}: it belongs to another run": (record.definition.get("deployment"), record.definition.get("run"))
            != (run.parent.name, run.name),
            f"{path}: its environment does not match its digest": record.environment_digest
            not in (None, digest(counted(record.environment))),
            **{f"{run / name}: missing": not (run / name).is_file() for name in record.files},
        }
        differing = [text for text, differs in wrong.items() if differs] + [
            f"{run / name}: not what was measured (SHA-256)"
            for name, sha in record.files.items()
            if (run / name).is_file() and checksum(run / name) != sha
        ]
        check.checked += 1
        check.differs += differing
        if not differing:
            intact.append(run)
    return check, records, intact


def check_deployments(folder: Path, records: Mapping[Path, RunRecord], specs: Mapping[str, DeploymentSpec]) -> Check:
    """Whether launches and facts are of the deployments that were measured.

    Args:
        specs: by name, as the study defines them; those that are not known are left out.
    """
    check, described = Check("deployments"), set()
    known: dict[str, set[str | None]] = {}
    for run, record in records.items():
        known.setdefault(run.parent.name, set()).add(record.deployment_digest)
    own = folder / "deployments"
    for path in sorted([*own.glob("*/launch.json"), *own.glob("*/**/deployment.json")]):
        name = path.relative_to(own).parts[0]
        described.add(name)
        try:
            found: Launch | DeploymentFacts
            found = read(Launch, path) if path.name == "launch.json" else read(DeploymentFacts, path)
        except BenchError as error:
            check.compare(str(error))
            continue
        digests = (known.get(name, set()) | {specs[name].digest if name in specs else None}) - {None}
        if found.deployment != name:
            check.compare(f"{path}: it is of {found.deployment}")
        elif digests and found.digest not in digests:
            check.compare(f"{path}: its definition matches neither a run here nor the study")
        elif isinstance(found, DeploymentFacts) and found.environment_digest not in (None, digest(counted(found.inherited))):
            check.compare(f"{path}: its environment does not match its digest")
        else:
            check.compare(None)
    for name in sorted(known.keys() - described):
        check.compare(f"{own / name}: missing, though its runs are here")
    return check


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

"""What was measured: records against the checksums and the digests in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.errors import BenchError, count_text
from bench.runs.checksums import checksum
from bench.runs.deployment import DeploymentFacts
from bench.runs.environment import counted
from bench.runs.files import digest, read
from bench.runs.launch import Launch
from bench.runs.run import RECORD, RunRecord, read_record
from bench.servers.spec import DeploymentSpec
from bench.verify.check import Check


def check_raw(folder: Path) -> tuple[Check, dict[Path, RunRecord], set[Path]]:
    """The raw records of every run below `folder`.

    Returns:
        The check; each run's folder with its record, where that can be read; those of them whose files are whole.
    """
    check, records, intact = Check("raw records"), {}, set()
    for path in sorted(folder.glob(f"runs/*/*/{RECORD}")):
        run = path.parent
        try:
            records[run] = read_record(path)
        except BenchError as error:
            check.compare(str(error))
            continue
        differing = [difference for name, sha in records[run].files.items() if (difference := _changed(run / name, sha))]
        check.checked += 1
        check.differs += differing
        if not differing:
            intact.add(run)
    return check, records, intact


def _changed(file: Path, sha: str) -> str | None:
    if not file.is_file():
        return f"{file}: missing"
    return None if checksum(file) == sha else f"{file}: not what was measured (SHA-256)"


def check_definitions(records: Mapping[Path, RunRecord]) -> Check:
    """Whether each run is what its digest says: its workload, its load, its deployment and the protocol."""
    check = Check("definitions of runs")
    for run, record in records.items():
        load = {key: value for key, value in record.definition.items() if key != "run"}  # whose name ends with the digest
        of = {"protocol": record.protocol, "deployment": record.deployment_digest, "run": load}
        place = (record.definition.get("deployment"), record.definition.get("run"))
        if digest(of) != record.digest:
            check.compare(f"{run / RECORD}: its definition is not the one of its digest")
        elif place != (run.parent.name, run.name):
            check.compare(f"{run / RECORD}: it is of {place[0]}/{place[1]}")
        elif record.environment_digest is not None and digest(counted(record.environment)) != record.environment_digest:
            check.compare(f"{run / RECORD}: its environment is not the one of its digest")
        else:
            check.compare(None)
    return check


def check_deployments(
    folder: Path, records: Mapping[Path, RunRecord], specs: Mapping[str, DeploymentSpec] | None = None
) -> Check:
    """Whether launches and facts are of the deployments that were measured.

    Args:
        specs: by name, as the study defines them; None where that is not known.
    """
    check = Check("deployments")
    measured: dict[str, dict[str, list[Path]]] = {}
    for run, record in records.items():
        if record.deployment_digest:
            measured.setdefault(run.parent.name, {}).setdefault(record.deployment_digest, []).append(run)
    for path, name, found in _described(folder):
        if isinstance(found, str):
            check.compare(found)
            continue
        defined = specs[name].digest if specs and name in specs else None
        of_runs = measured.get(name, {})
        if found.deployment != name:
            check.compare(f"{path}: it is of {found.deployment}")
        elif (of_runs or defined) and found.digest not in (*of_runs, defined):
            check.compare(f"{path}: of a definition that neither a run here nor the study has")
        elif isinstance(found, DeploymentFacts) and not _environment_holds(found):
            check.compare(f"{path}: its environment is not the one of its digest")
        else:
            check.compare(None)
        earlier = [run for known, runs in of_runs.items() if known != found.digest for run in runs]
        if (
            isinstance(found, Launch) and earlier
        ):  # a setting that is changed keeps the runs before it, and writes the launch anew
            check.unchecked.append(
                f"{path}: of other settings than {count_text(len(earlier), 'run')}, such as {min(earlier)}. The workflow keeps the "
                "runs of earlier settings, and not their launch"
            )
    for name in sorted(measured.keys() - {name for _, name, _ in _described(folder)}):
        check.compare(f"{folder / 'deployments' / name}: missing, and runs of it are here")
    return check


def _described(folder: Path) -> Iterator[tuple[Path, str, Launch | DeploymentFacts | str]]:
    """Each launch and each session's facts, with the name of its deployment's folder; in their place what is wrong with the file."""
    for own in sorted(path for path in folder.glob("deployments/*") if path.is_dir()):
        launches = sorted(own.glob("launch.json"))
        facts = [*sorted(own.glob("deployment.json")), *sorted(own.glob("session-*/deployment.json"))]
        for path in (*launches, *facts):
            try:
                yield path, own.name, read(Launch, path) if path in launches else read(DeploymentFacts, path)
            except BenchError as error:
                yield path, own.name, str(error)


def _environment_holds(facts: DeploymentFacts) -> bool:
    return facts.environment_digest is None or digest(counted(facts.inherited)) == facts.environment_digest

"""A study's measurements in one file: from a machine that measures, to one that parses and draws.

A pack is a tar file: `pack.json` (what was measured, by which sources, with every file's SHA-256), `study.yaml` (the configuration,
narrowed to the runs that are in it), and what sessions leave: `runs/`, `deployments/`, `engines/`, `logs/`. Nothing in it is parsed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.commit import commit_of
from bench.errors import BenchError
from bench.measure.state import facts_key, record_digest
from bench.measure.store import Store
from bench.study import DeploymentSpec, Paths, Plan, RunSpec, load_config
from bench.study.plan import PROTOCOL
from bench.study.yaml_file import read_yaml

__all__ = ["Packed", "pack", "unpack"]

_FORMAT = 1
_INDEX, _STUDY = "pack.json", "study.yaml"
_BESIDE = (_INDEX, _STUDY, "engines", "logs")  # what has no place among the results, and is kept beside them


@dataclass(frozen=True)
class Packed:
    """What a pack holds.

    Attributes:
        runs: those in it, as `deployment/run`. missing: those of its study that are not.
        study: where its configuration lies after `unpack`.
    """

    runs: tuple[str, ...]
    missing: tuple[str, ...]
    study: Path | None = None


def pack(plan: Plan, content: Mapping[str, Any], output: Path, store: Store) -> Packed:
    """Write every run of `plan` that is measured, and all that says how, into one compressed tar file.

    Args:
        content: the configuration of `plan`, as its file has it.

    Raises:
        BenchError: no run is measured, or a file that belongs to one is missing.
    """
    folders = {run.key: folder for run in plan.runs if (folder := _measured(run, store))}
    missing = tuple(run.key for run in plan.runs if run.key not in folders)
    if not folders:
        raise BenchError("no run of this study is measured here, so there is nothing to pack; `bench runs` lists them.")
    measured = [run for run in plan.runs if run.key in folders]
    files: dict[str, Path] = {}
    for spec in dict.fromkeys(run.deployment.name for run in measured):
        files |= _files_of_deployment(plan.deployments[spec], store)
    for run in measured:
        record = folders[run.key] / run.record.name
        for name in (*json.loads(record.read_text()).get("files", {}), record.name):
            files[f"runs/{run.key}/{name}"] = folders[run.key] / name
    if lost := [str(file) for file in files.values() if not file.is_file()]:
        raise BenchError(
            f"{lost[0]} is missing ({len(lost)} of {len(files)} files are); measure its run again, after `bench discard`."
        )
    narrowed = {**content, "select": list(folders) if missing else plan.config.select}
    study = yaml.safe_dump(narrowed, sort_keys=False, allow_unicode=True)
    index = {
        "format": _FORMAT,
        "title": plan.config.study.title,
        "packed": time.strftime("%FT%TZ", time.gmtime()),
        "commit": commit_of(),
        "protocol": PROTOCOL,
        "runs": {run.key: run.digest for run in measured},
        "missing": list(missing),
        "files": {_STUDY: _sha256(study.encode()), **{name: _sha256(file.read_bytes()) for name, file in files.items()}},
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".unfinished-{output.name}")
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(unfinished, "w:gz", compresslevel=6) as tar:
        for own, text in ((_INDEX, json.dumps(index, indent=1) + "\n"), (_STUDY, study)):
            written = Path(scratch) / own
            written.write_text(text, encoding="utf-8")
            tar.add(written, arcname=own)
        for name, file in files.items():
            tar.add(file, arcname=name)
    unfinished.replace(output)
    return Packed(tuple(folders), missing)


def unpack(file: Path, store: Store, *, replace: bool = False) -> Packed:
    """Put what `pack` wrote among the results, as if it had been measured here; the next workflow parses and draws it.

    Args:
        replace: put it over measurements of the same runs that are here already, from another machine or another time.

    Raises:
        BenchError: it is no pack, or not whole; these sources define its runs otherwise; or other measurements of the same runs are
            here. Nothing is changed then.
    """
    results = Path(Paths.STORE).parent
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=results) as name:
        folder = Path(name)
        index = _extract(file, folder)
        plan = Plan.of(load_config(read_yaml(folder / _STUDY), source=f"{file}: {_STUDY}"))
        runs = _runs_of(plan, index, file)
        if not replace:
            _refuse_others(runs, folder, store, file)
        for spec in plan.deployments.values():
            _place_deployment(spec, folder / "deployments" / spec.name, store)
        for run in runs:
            _place(run.digest, folder / "runs" / run.key, run.record, store)
        beside = results / "packs" / file.name.removesuffix(".tar.gz")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for part in _BESIDE:
            if (folder / part).exists():
                shutil.move(folder / part, beside / part)
    return Packed(tuple(run.key for run in runs), tuple(index["missing"]), beside / _STUDY)


def _measured(run: RunSpec, store: Store) -> Path | None:
    """Where the files of `run` lie: among the results, or, after a session that did not end, in the store alone."""
    if record_digest(run.record) == run.digest:
        return run.record.parent
    return store.folder(run.digest) if store.holds(run.digest) else None


def _files_of_deployment(spec: DeploymentSpec, store: Store) -> dict[str, Path]:
    """By their names in the pack; logs only where there are any."""
    name, engine = spec.name, spec.deployment.engine
    facts = Path(Paths.FACTS.format(deployment=name))
    held = store.folder(facts_key(spec)) / facts.name
    files = {
        f"deployments/{name}/{facts.name}": held if held.is_file() else facts,
        f"deployments/{name}/launch.json": Path(Paths.LAUNCH.format(deployment=name)),
    }
    if spec.engine.source != "external":
        files[f"engines/{engine}.json"] = Path(Paths.ENGINE.format(engine=engine))
    logs = {
        f"deployments/{name}/server.log": facts.with_name("server.log"),
        f"logs/{name}.log": Path(f"logs/measure/{name}.log"),
    }
    return files | {name: file for name, file in logs.items() if file.is_file()}


def _extract(file: Path, folder: Path) -> dict[str, Any]:
    """Unpack a tar file whose every member its index names, with its digest; the index."""
    try:
        with tarfile.open(file) as tar:
            tar.extractall(folder, filter="data")
        index: dict[str, Any] = json.loads((folder / _INDEX).read_text())
        expected = dict(index["files"])
        known = index["format"]
    except FileNotFoundError:
        what = "it has no pack.json" if file.is_file() else "no such file"
        raise BenchError(f"{file}: {what}; `bench pack` writes such files.") from None
    except (OSError, tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{file}: no pack, or not whole ({error}); `bench pack` writes such files. Copy it again.") from None
    if known != _FORMAT:
        raise BenchError(
            f"{file}: a pack of format {known}, and this version reads {_FORMAT}; unpack it with the version that packed it."
        )
    found = {str(path.relative_to(folder)): path for path in _files(folder) if path.name != _INDEX or path.parent != folder}
    wrong = {name for name in expected.keys() & found.keys() if _sha256(found[name].read_bytes()) != expected[name]}
    wrong |= expected.keys() ^ found.keys()
    if wrong:
        raise BenchError(
            f"{file}: {len(wrong)} of its files are missing or are not what was packed, such as {min(wrong)}. Copy it again."
        )
    return index


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _runs_of(plan: Plan, index: Mapping[str, Any], file: Path) -> list[RunSpec]:
    """The plan's runs, if they are those that were measured."""
    here = {run.key: run.digest for run in plan.runs}
    if here != index["runs"]:
        differing = len(here.items() ^ index["runs"].items()) // 2
        raise BenchError(
            f"{file}: {differing} of its {len(index['runs'])} runs are defined otherwise by these sources (a lock, a default or the "
            "protocol), which would measure them again. Unpack it in a clone of the commit that packed it, "
            f"{index['commit'] or 'which is unknown'}."
        )
    return list(plan.runs)


def _refuse_others(runs: list[RunSpec], folder: Path, store: Store, file: Path) -> None:
    others = [
        run.key
        for run in runs
        if (own := _measured(run, store))
        and (own / run.record.name).read_bytes() != (folder / "runs" / run.key / run.record.name).read_bytes()
    ]
    if others:
        raise BenchError(
            f"{file}: {len(others)} of its {len(runs)} runs are here in another measurement, such as {others[0]}, made on another "
            "machine or at another time. --replace puts the pack's in their place; or unpack it in another clone."
        )


def _place_deployment(spec: DeploymentSpec, folder: Path, store: Store) -> None:
    """The launch, the log, and then the facts: each younger than what the workflow makes it from."""
    facts = Path(Paths.FACTS.format(deployment=spec.name))
    facts.parent.mkdir(parents=True, exist_ok=True)
    for name in ("launch.json", "server.log"):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, facts.with_name(name))
            (folder / name).unlink()
    _place(facts_key(spec), folder, facts, store)


def _place(key: str, folder: Path, last: Path, store: Store) -> None:
    with store.adding(key) as target:
        for file in folder.iterdir():
            os.replace(file, target / file.name)
    store.place(key, last.parent, last=last.name)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

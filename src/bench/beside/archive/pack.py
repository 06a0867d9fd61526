"""A study's measurements in one file: from a machine that measures, to one that parses and draws.

A pack is a tar file: `study.yaml` (the configuration, narrowed to the runs that are in it), what sessions leave (`runs/`,
`deployments/`, `engines/`, `logs/`), what a tuning found, and `pack.json` with the runs' digests and every file's
SHA-256. Nothing in it is parsed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from bench.errors import BenchError, count_text, is_are, shown
from bench.runs.environment import redacted, without_secrets
from bench.runs.files import files_of, read_object, record_digest, typed, whole
from bench.runs.paths import Paths
from bench.runs.run import RECORD
from bench.runs.store import Store
from bench.servers.spec import DeploymentSpec
from bench.shipped import commit_of
from bench.study.plan import Plan
from bench.study.read import at_scale
from bench.study.searches import search_record
from bench.study.specs import PROTOCOL
from bench.study.state import kept_facts
from bench.study.sweep import expand

STUDY, INDEX, TUNING = "study.yaml", "pack.json", "tuning/tuning.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class PackIndex:
    """A pack's contents.

    Attributes:
        format: of the pack. title: the study's. packed: when (UTC, ISO). commit: of the sources that packed it; None where that is
            not known. protocol: of the measurement.
        runs: digest of each run in it by `deployment/run`. missing: runs of the study that are not in it.
        files: SHA-256 of each file in it by its name; all but this one.
    """

    format: int = FORMAT
    title: str | None = None
    packed: str | None = None
    commit: str | None = None
    protocol: int | None = None
    runs: Mapping[str, str]
    missing: tuple[str, ...]
    files: Mapping[str, str]


def read_index(path: Path) -> PackIndex:
    """The index in `path`.

    Raises:
        OSError, ValueError, RecursionError: there is none, or one of another format; where a key is wrong, its place is named.
    """
    content = read_object(path)
    if content.get("format") != FORMAT:
        raise ValueError(f"its format is {shown(content.get('format'))}, but this version reads {FORMAT}")
    return typed(PackIndex, content)


def pack(plan: Plan, content: Mapping[str, Any], output: Path, store: Store) -> PackIndex:
    """Write every run of `plan` that is measured, and all that describes how, into one compressed tar file.

    Runs whose files do not match their record count as missing.

    Args:
        content: the configuration of `plan`, as its file has it.

    Raises:
        BenchError: no run is measured; or the launch or the facts of a deployment are missing, or another study's.
    """
    found = [(run, store.folder(run)) for run in plan.runs if store.holds(run) and whole(store.folder(run), RECORD)]
    digests = {run.key: run.digest for run, _ in found}
    missing = tuple(run.key for run in plan.runs if run.key not in digests)
    ended = [search.key for search in plan.searches if search_record(search)]
    missing += tuple(search.key for search in plan.searches if search.key not in ended)
    if not found:
        raise BenchError("no run of this study is measured here, so there is nothing to pack; `bench runs` lists them.")
    files: dict[str, Path] = {}
    for spec in {run.deployment.name: run.deployment for run, _ in found}.values():
        sessions = {1, *(plan.place_of(run).session for run, _ in found if run.deployment == spec)}
        files |= _files_of_deployment(spec, sorted(sessions))
        place = Path(Paths.SEARCHES.format(deployment=spec.name))
        if any(key.startswith(f"{spec.name}/") for key in ended):
            files[str(place.relative_to(Paths.RESULTS))] = place
    if plan.tuned and record_digest(Path(Paths.TUNING)) == plan.tuning_digest:
        files[TUNING] = Path(Paths.TUNING)
    for run, folder in found:
        files |= {f"runs/{run.key}/{name}": folder / name for name in (*files_of(folder / RECORD), RECORD)}
    narrowed = packed_study(content, plan, [*digests, *ended] if missing else plan.config.select)
    packed = time.strftime("%FT%TZ", time.gmtime())
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".unfinished-{output.name}")
    own = [spec.deployment.environment for spec in plan.started.values()]
    with tarfile.open(unfinished, "w:gz", compresslevel=6) as tar:
        # Each file is read once: a session that goes on may write to its log meanwhile.
        sums = {STUDY: _add(tar, STUDY, yaml.safe_dump(narrowed, sort_keys=False, allow_unicode=True).encode())}
        for name, file in files.items():
            content_of = file.read_bytes()
            sums[name] = _add(tar, name, without_secrets(content_of, os.environ, *own) if file.suffix == ".log" else content_of)
        index = PackIndex(
            title=plan.config.study.title,
            packed=packed,
            commit=commit_of(),
            protocol=PROTOCOL,
            runs=digests,
            missing=missing,
            files=sums,
        )
        _add(tar, INDEX, (json.dumps(asdict(index), indent=1) + "\n").encode())
    unfinished.replace(output)
    return index


def packed_study(content: Mapping[str, Any], plan: Plan, select: Any) -> dict[str, Any]:
    """The configuration of `plan`, narrowed to what is measured: the workflow measures nothing of it, and asks for no model's files.

    It has what elsewhere nobody can read (digests of the files that it names, also of models, and block lengths of traces), and
    `<secret>` in place of what looks like one; a deployment's digest is the same with it.
    """
    every = [*(run.files for run in plan.every), *(search.files for search in plan.every_search)]
    files = {file: digest for of_one in every for file, digest in of_one.items()}
    specs = [*plan.started.values(), *plan.deployments.values()]
    files |= {str(spec.model.here): spec.checkpoint for spec in specs if spec.checkpoint}
    content = expand(at_scale({**content, "scale": plan.config.scale})).content
    packed = {key: value for key, value in content.items() if key != "scale"}
    blocks = {
        run.family: {"trace_block": run.workload.trace_block} for run in plan.every if run.workload.trace_block is not None
    }
    packed["workloads"] = {name: {**entry, **blocks.get(name, {})} for name, entry in packed.get("workloads", {}).items()}
    packed["deployments"] = {
        name: {**entry, **({"environment": redacted(entry["environment"])} if entry.get("environment") else {})}
        for name, entry in packed.get("deployments", {}).items()
    }
    return {**packed, **({"files": files} if files else {}), "select": select, "packed": True}


def _files_of_deployment(spec: DeploymentSpec, sessions: Iterable[int]) -> dict[str, Path]:
    """By their names in the pack; logs, and the engine's record, only where there are any."""
    name, engine = spec.name, spec.deployment.engine
    files = {f"deployments/{name}/launch.json": Path(Paths.LAUNCH.format(deployment=name))}
    further = {f"engines/{engine}.json": Path(Paths.ENGINE.format(engine=engine))}
    for session in sessions:
        facts = Paths.facts(name, session)
        inside = packed_facts(name, session)
        kept = kept_facts(spec, facts)  # of a session that has not ended, it is all there is
        files[str(inside)] = kept if kept.is_file() else facts
        further[str(inside.with_name("server.log"))] = facts.with_name("server.log")
        further[f"logs/{name}_{session}.log"] = Path(f"logs/measure/{name}/{session}.log")
    for file in files.values():
        if record_digest(file) != spec.digest:
            raise BenchError(
                f"{file} is missing, or belongs to another study with a deployment {name}. Run the same `make pack` again: it "
                "writes this study's, and measures nothing."
            )
    return files | {name: file for name, file in further.items() if file.is_file()}


def packed_facts(deployment: str, session: int) -> PurePosixPath:
    """Where a pack has the facts of a session: as they lie among the results."""
    return PurePosixPath(Paths.facts(deployment, session)).relative_to("results")


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> str:
    """Put a file into the tar; its SHA-256."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), int(time.time())
    tar.addfile(member, io.BytesIO(content))
    return hashlib.sha256(content).hexdigest()


def packed_text(index: PackIndex) -> str:
    """The runs of a pack, and how many it lacks."""
    text = count_text(len(index.runs), "run")
    if left := len(index.missing):
        text += f"; {left} of the study {is_are(left)} left out, not measured or damaged, such as {index.missing[0]}"
    return text

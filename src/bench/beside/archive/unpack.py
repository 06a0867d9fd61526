"""Take in what `pack` wrote: all of it or nothing, and never into another measurement."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePath

import yaml

from bench.beside.archive.check import check_runs
from bench.beside.archive.pack import INDEX, STUDY, TUNING, PackIndex, packed_facts, read_index
from bench.errors import BenchError, count_text, shown
from bench.runs.files import UNREADABLE, checksum, files_of, record_digest
from bench.runs.paths import Paths
from bench.runs.run import RECORD
from bench.runs.store import Store
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.read import load_file
from bench.study.state import kept_facts
from bench.yaml_file import read_yaml

# Request records and logs compress 5 to 20 times, and telemetry is compressed already; gzip reaches 1,000 on zeros.
_MOST_RATIO, _SMALLEST, _MOST_BYTES, _MOST_FILES = 100, 2**20, 64 * 2**30, 500_000
_PART = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
_MEMBER = re.compile(
    rf"{re.escape(INDEX)}|{re.escape(STUDY)}|engines/{_PART}\.json|logs/{_PART}\.log"
    rf"|deployments/{_PART}/search\.json|{re.escape(TUNING)}"
    rf"|deployments/{_PART}/(session-[0-9]+/)?(launch\.json|deployment\.json|server\.log)|runs/{_PART}/{_PART}/{_PART}"
)
_TOO_LARGE = (
    f"it would grow more than {_MOST_RATIO} times, beyond {_MOST_BYTES // 2**30} GiB, or to more than {_MOST_FILES:,} files"
)
# What reading a file may raise that is not one of ours.
_ODD = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
# What has no place among the results: records of engines would say that these are built here.
_BESIDE = (INDEX, STUDY, "engines", "logs")


def unpack(file: Path, store: Store) -> tuple[PackIndex, Path]:
    """Put the runs of a pack among the results, as if they had been measured here; the next workflow parses and draws them.

    Returns:
        What it holds, and where its study lies.

    Raises:
        BenchError: it is not a whole pack; these sources define its runs otherwise; or a deployment of the same name, in another
            measurement, is here. Nothing is changed then.
    """
    if not file.exists():  # before a folder is made for what it does not hold
        raise BenchError(f"{file}: no such file; `bench pack` writes such files.")
    results = Path(Paths.RESULTS)
    for left in results.glob(".unpacking-*"):  # of a killed one
        shutil.rmtree(left)
    store.sweep()
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=results) as scratch:
        folder = Path(scratch)
        index, wrong = extract(file, folder)
        if wrong:
            which = f"{len(wrong)} of its files are missing or are not what was packed, such as {min(wrong)}"
            raise BenchError(f"{file}: {which}. Copy it again.")
        plan = _plan_of(folder, index, file)
        beside = _beside(file, index)
        for spec in plan.deployments.values():
            _refuse_another(spec, plan, folder, store, file)
        own = results / TUNING
        if own.is_file() and (folder / TUNING).is_file() and not _same(folder / TUNING, own):
            raise BenchError(f"{file}: {own} is already here, from another tuning. Unpack elsewhere.")
        _place_all(plan, folder, store)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for part in _BESIDE:
            if (folder / part).exists():
                shutil.move(folder / part, beside / part)
    return index, beside / STUDY


def extract(file: Path, folder: Path) -> tuple[PackIndex, set[str]]:
    """Unpack a tar file into `folder`; its index, and the names of files that are missing or are not those in the index.

    What is not a plain file, comes twice, or has a name that `pack` does not give, is never written; nor is more than a pack of this
    size can hold.

    Raises:
        BenchError: it is not a whole pack.
    """
    found: dict[str, str] = {}
    try:
        room = min(_MOST_BYTES, _SMALLEST + _MOST_RATIO * file.stat().st_size)
        with gzip.open(file) as stream, tarfile.open(fileobj=_Bounded(stream, room), mode="r|") as tar:
            for member in tar:
                if not member.isreg() or member.issparse() or not _MEMBER.fullmatch(member.name) or member.name in found:
                    raise ValueError(f"{shown(member.name)} does not belong in a pack, or appears twice")
                if len(found) >= _MOST_FILES:
                    raise ValueError(_TOO_LARGE)
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with tar.extractfile(member) as content, target.open("xb") as written:  # type: ignore[union-attr] # of a file
                    shutil.copyfileobj(content, written, 1 << 20)
                found[member.name] = checksum(target)
        index = read_index(folder / INDEX)
    except FileNotFoundError:
        raise BenchError(f"{file}: it has no {INDEX}; `bench pack` writes such files.") from None
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, *_ODD) as error:
        reason = str(error).partition("\n")[0][:200]
        raise BenchError(f"{file}: not a whole pack ({reason}); `bench pack` writes such files. Copy it again.") from None
    except OSError as error:
        raise BenchError(f"{file}: cannot be unpacked: {error.strerror or error}.") from None
    found.pop(INDEX)
    return index, {name for name, _ in found.items() ^ index.files.items()}


class _Bounded(io.RawIOBase):
    """A stream that may not grow beyond `room` bytes, whatever is in it: tarfile reads some headers whole."""

    def __init__(self, stream: gzip.GzipFile, room: int) -> None:
        self._stream, self._room = stream, room

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, 1 << 20) if size >= 0 else 1 << 20)
        self._room -= len(data)
        if self._room < 0:
            raise ValueError(_TOO_LARGE)
        return data


def study_of(folder: Path) -> Plan:
    """The plan of the study of a pack that lies in `folder`.

    Raises:
        BenchError: these sources do not take it.
    """
    study = folder / STUDY
    content = read_yaml(study)
    if content.get("packed") is not True:  # nothing of a pack is measured here, whatever its study says
        study.write_text(yaml.safe_dump({**content, "packed": True}, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return Plan.of(load_file(study), results=folder)


def _plan_of(folder: Path, index: PackIndex, file: Path) -> Plan:
    """The plan of the pack's study, if these sources define its runs as those did that measured, and each of them is there."""
    elsewhere = f"Unpack it in a clone of the commit that packed it, {index.commit or 'which is unknown'}."
    try:
        plan = study_of(folder)
    except BenchError as error:
        raise BenchError(f"{file}: these sources reject its study:\n{error}\n{elsewhere}") from None
    here = {run.key: run.digest for run in plan.runs}
    if differing := index.runs.items() - here.items() or here.items() - index.runs.items():
        raise BenchError(
            f"{file}: these sources define {count_text(len(differing), 'run', of=len(index.runs))} differently (a lock, a default, the "
            f"protocol), and would measure again. {elsewhere}"
        )
    raw, intact = check_runs(folder)
    differs = list(raw.differs)
    for spec in plan.deployments.values():
        needed = [PurePath(f"deployments/{spec.name}/launch.json")]
        needed += [packed_facts(spec.name, session) for session in plan.sessions_of(spec.name)]
        differs += [f"{name}: not that of the pack's study" for name in needed if record_digest(folder / name) != spec.digest]
    differs += [f"runs/{key}: not the run that the pack's study defines" for key in here if intact.get(key) != here[key]]
    if differs:
        raise BenchError(f"{file}: {differs[0].replace(f'{folder}/', '')}. Pack it again where it was measured.")
    return plan


def _beside(file: Path, index: PackIndex) -> Path:
    """Where the pack's study, logs, and records of engines go."""
    name = file.name.removesuffix(".tar.gz")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name == file.name:
        raise BenchError(
            f"{file}: its study goes into results/packs by the pack's name; rename it to something like h100.tar.gz."
        )
    beside = Path(Paths.RESULTS) / "packs" / name
    try:
        another = not read_index(beside / INDEX).runs.items() <= index.runs.items()
    except UNREADABLE:
        another = beside.exists()
    if another:
        raise BenchError(
            f"{file}: {beside} has a pack of the same name with other runs; rename this one, or remove that folder."
        )
    return beside


def _refuse_another(spec: DeploymentSpec, plan: Plan, folder: Path, store: Store, file: Path) -> None:
    """Refuse a deployment that is here in another measurement: its runs would stand beside another machine's, or be drawn with another
    study's launch.

    What is here is the pack's own where launch and facts are the same, to the byte, or every run is (a session that went on since has
    new facts).
    """
    launch = Path(Paths.LAUNCH.format(deployment=spec.name))
    places = [(launch, folder / "deployments" / spec.name / launch.name)]
    for session in plan.sessions_of(spec.name):
        facts, packed = Paths.facts(spec.name, session), folder / packed_facts(spec.name, session)
        places += [(facts, packed), (kept_facts(spec, facts), packed)]
    strange = [own for own, theirs in places if own.exists() and not _same(own, theirs)]
    here = {own: folder / "runs" / spec.name / own.parent.name / own.name for own in store.root.glob(f"{spec.name}/*/{RECORD}")}
    if here and all(_same(own, theirs) for own, theirs in here.items()):
        strange = []
    strange += [own for own, theirs in here.items() if theirs.exists() and not _same(own, theirs)]
    if strange:
        raise BenchError(
            f"{file}: deployment {spec.name} was measured differently here ({strange[0]}), and measurements are never mixed. "
            "Unpack it in another clone; or, if one machine made both, pack all of its runs there."
        )


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


def _place_all(plan: Plan, folder: Path, store: Store) -> None:
    for spec in plan.deployments.values():
        facts = [packed_facts(spec.name, session) for session in plan.sessions_of(spec.name)]
        # The launch has to be older than the facts, which the workflow makes from it.
        _place(folder, f"deployments/{spec.name}/launch.json")
        for each in facts:
            _place(folder, each.with_name("server.log"), each)
            shutil.copyfile(Path(Paths.RESULTS) / each, kept_facts(spec, Path(Paths.RESULTS) / each))
        _place(folder, f"deployments/{spec.name}/search.json")
    for run in plan.runs:
        if not store.holds(run):  # the same, to the byte
            with store.adding(run) as target:
                for name in (*files_of(folder / "runs" / run.key / RECORD), RECORD):
                    (folder / "runs" / run.key / name).rename(target / name)
    _place(folder, TUNING)


def _place(folder: Path, *names: str | PurePath) -> None:
    """Put files of a pack, where it has them, at the same place among the results."""
    for name in names:
        if (packed := folder / name).is_file():
            place = Path(Paths.RESULTS) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            os.utime(packed)
            packed.replace(place)

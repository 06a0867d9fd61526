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
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from bench.archive.pack import STUDY, Packed, packed_facts
from bench.errors import BenchError, count_text, is_are, shown
from bench.runs.checksums import checksum, files_of, record_digest, whole
from bench.runs.files import UNREADABLE
from bench.runs.pack import INDEX, PackIndex, read_index
from bench.runs.paths import Paths
from bench.runs.run import RECORD
from bench.runs.store import Store
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.read import load_file
from bench.study.specs import RunSpec
from bench.study.state import kept_facts, refresh_sessions
from bench.yaml_file import read_yaml

# Request records and logs compress 5 to 20 times, and telemetry is compressed already; gzip reaches 1,000 on zeros.
_MOST_RATIO, _SMALLEST, _MOST_BYTES, _MOST_FILES = 100, 2**20, 64 * 2**30, 500_000
_PART = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
_MEMBER = re.compile(
    rf"{re.escape(INDEX)}|{re.escape(STUDY)}|engines/{_PART}\.json|logs/{_PART}\.log"
    rf"|deployments/{_PART}/search\.json|tuning/(tuning|visits)\.json"
    rf"|deployments/{_PART}/(session-[0-9]+/)?(launch\.json|deployment\.json|server\.log)|runs/{_PART}/{_PART}/{_PART}"
)
_TOO_LARGE = (
    f"it would grow more than {_MOST_RATIO} times, beyond {_MOST_BYTES // 2**30} GiB, or to more than {_MOST_FILES:,} files"
)
# What reading a file may raise that is not one of ours.
_ODD = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
# What has no place among the results: records of engines would say that these are built here.
_BESIDE = (INDEX, STUDY, "engines", "logs")


def unpack(file: Path, store: Store) -> Packed:
    """Put the runs of a pack among the results, as if they had been measured here; the next workflow parses and draws them.

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
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=results) as name:
        folder = Path(name)
        index = _extract(file, folder)
        plan = _plan_of(folder, index, file)
        beside = _beside(file, index)
        visits = runs_of_visits(plan, folder)
        specs = _specs(plan, visits)
        for spec in specs:
            _refuse_another(spec, plan, folder, store, file)
        _refuse_another_tuning(folder, file)
        for spec in specs:
            _place_launch(spec, folder / "deployments" / spec.name)
            for session in plan.sessions_of(spec.name):
                _place_session(spec, session, folder)
        for spec in plan.deployments.values():
            _place_searches(spec, folder)
        for run in (*plan.runs, *visits):
            _place(run, folder / "runs" / run.key, store)
        for place in map(Path, (Paths.TUNING, Paths.VISITS)):
            if (packed := folder / place.relative_to(Paths.RESULTS)).is_file():
                place.parent.mkdir(exist_ok=True)
                packed.replace(place)
        refresh_sessions(plan, store)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for part in _BESIDE:
            if (folder / part).exists():
                shutil.move(folder / part, beside / part)
    return Packed(tuple(run.key for run in (*plan.runs, *visits)), index.missing, beside / STUDY)


def runs_of_visits(plan: Plan, folder: Path) -> tuple[RunSpec, ...]:
    """The runs of a study's tuning that lie in `folder`."""
    competition = plan.competition(folder)
    return competition.runs if competition else ()


def _specs(plan: Plan, visits: Iterable[RunSpec]) -> list[DeploymentSpec]:
    return list({**{run.deployment.name: run.deployment for run in visits}, **plan.deployments}.values())


def _extract(file: Path, folder: Path) -> PackIndex:
    index, wrong = extract(file, folder)
    if wrong:
        raise BenchError(
            f"{file}: {len(wrong)} of its files are missing or are not what was packed, such as {min(wrong)}. Copy it again."
        )
    return index


def extract(file: Path, folder: Path) -> tuple[PackIndex, set[str]]:
    """Unpack a tar file into `folder`; its index, and the names of files that are missing or are not those in the index.

    Member by member: what is not a plain file, comes twice, or has a name that `pack` does not give, is never written; nor is more than
    a pack of this size can hold.

    Raises:
        BenchError: it is not a whole pack.
    """
    found: dict[str, str] = {}
    try:
        room = min(_MOST_BYTES, _SMALLEST + _MOST_RATIO * file.stat().st_size)
        with gzip.open(file) as stream, tarfile.open(fileobj=_Bounded(stream, room), mode="r|") as tar:
            for member in tar:
                _refuse_member(member, found, room)
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                with target.open("xb") as written:
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


def _refuse_member(member: tarfile.TarInfo, found: Mapping[str, str], room: int) -> None:
    """Refuse what `pack` does not write (links, devices, sparse files, other names), what came before, and what is too large."""
    if not member.isreg() or member.issparse() or member.size < 0 or not _MEMBER.fullmatch(member.name):
        raise ValueError(f"{shown(member.name)} is not a file of a pack")
    if member.name in found:
        raise ValueError(f"{shown(member.name)} is in it twice")
    if member.size > room or len(found) >= _MOST_FILES:
        raise ValueError(_TOO_LARGE)


def study_of(folder: Path) -> Plan:
    """The plan of the study of a pack that lies in `folder`.

    Raises:
        BenchError: these sources do not take it.
    """
    _say_that_it_is_packed(folder / STUDY)
    return Plan.of(load_file(folder / STUDY), results=folder)


def _say_that_it_is_packed(study: Path) -> None:
    """Nothing of a pack is measured here, whatever its study says."""
    content = read_yaml(study)
    if content.get("packed") is not True:
        study.write_text(yaml.safe_dump({**content, "packed": True}, sort_keys=False, allow_unicode=True), encoding="utf-8")


def _plan_of(folder: Path, index: PackIndex, file: Path) -> Plan:
    """The plan of the pack's study, if these sources define its runs as those did that measured, and each of them is there."""
    elsewhere = f"Unpack it in a clone of the commit that packed it, {index.commit or 'which is unknown'}."
    try:
        plan = study_of(folder)
    except BenchError as error:
        raise BenchError(f"{file}: these sources do not take its study:\n{error}\n{elsewhere}") from None
    visits = runs_of_visits(plan, folder)
    here = {run.key: run.digest for run in (*plan.runs, *visits)}
    if differing := index.runs.items() - here.items() or here.items() - index.runs.items():
        raise BenchError(
            f"{file}: {count_text(len(differing), 'run', of=len(index.runs))} {is_are(len(differing))} defined otherwise by these "
            f"sources (a lock, a default, the protocol), which would measure again. {elsewhere}"
        )
    for spec in _specs(plan, visits):
        facts = [packed_facts(spec.name, session) for session in plan.sessions_of(spec.name)]
        for name in (f"deployments/{spec.name}/launch.json", *map(str, facts)):
            _expect(record_digest(folder / name) == spec.digest, name, file)
    for run in (*plan.runs, *visits):
        name = f"runs/{run.key}/{RECORD}"
        record = folder / name
        _expect(record_digest(record) == run.digest, name, file)
        there = {path.name for path in record.parent.iterdir()}
        try:
            right = there == {record.name, *files_of(record)} and whole(record.parent, record.name)
        except UNREADABLE:
            right = False
        _expect(right, name, file)
    return plan


def _expect(right: bool, name: str, file: Path) -> None:
    if not right:
        raise BenchError(
            f"{file}: {name} is missing, or is not what the pack's study defines. Pack it again where it was measured."
        )


def _beside(file: Path, index: PackIndex) -> Path:
    """Where the pack's study, logs, and records of engines go."""
    name = file.name.removesuffix(".tar.gz")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name == file.name:
        raise BenchError(
            f"{file}: its study goes into results/packs by the pack's name; rename it to something like h100.tar.gz."
        )
    beside = Path(Paths.RESULTS) / "packs" / name
    if not _goes_on(beside / INDEX, index):
        raise BenchError(f"{file}: {beside} holds a pack of that name with other runs; rename this one, or remove that folder.")
    return beside


def _goes_on(earlier: Path, index: PackIndex) -> bool:
    """Whether a pack has every run of an earlier one, of which `earlier` is the index; true where there is none."""
    try:
        return read_index(earlier).runs.items() <= index.runs.items()
    except FileNotFoundError:
        return True
    except UNREADABLE:
        return False


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
            f"{file}: deployment {spec.name} is here in another measurement ({strange[0]}), and two are never mixed. Unpack it "
            "in another clone; or, if one machine made both, pack all of its runs there."
        )


def _refuse_another_tuning(folder: Path, file: Path) -> None:
    for place in map(Path, (Paths.TUNING, Paths.VISITS)):
        packed = folder / place.relative_to(Paths.RESULTS)
        if packed.is_file() and place.is_file() and not _same(packed, place):
            raise BenchError(f"{file}: {place} is here, of another tuning or with other visits. Unpack it in another clone.")


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


def _place_launch(spec: DeploymentSpec, folder: Path) -> None:
    """It has to be older than the facts, which the workflow makes from it."""
    launch = Path(Paths.LAUNCH.format(deployment=spec.name))
    launch.parent.mkdir(parents=True, exist_ok=True)
    os.utime(folder / launch.name)
    (folder / launch.name).replace(launch)


def _place_session(spec: DeploymentSpec, session: int, folder: Path) -> None:
    """The log of a session, then its facts."""
    facts, packed = Paths.facts(spec.name, session), folder / packed_facts(spec.name, session)
    facts.parent.mkdir(parents=True, exist_ok=True)
    log = packed.with_name("server.log")
    if log.is_file():
        log.replace(facts.with_name(log.name))
    shutil.copyfile(packed, kept_facts(spec, facts))
    packed.replace(facts)


def _place_searches(spec: DeploymentSpec, folder: Path) -> None:
    """What the searches of a deployment found: it lists their runs."""
    place = Path(Paths.SEARCHES.format(deployment=spec.name))
    packed = folder / place.relative_to("results")
    if packed.is_file():
        os.utime(packed)
        packed.replace(place)


def _place(run: RunSpec, folder: Path, store: Store) -> None:
    if store.holds(run):  # the same, to the byte
        return
    with store.adding(run) as target:
        for file in folder.iterdir():
            file.rename(target / file.name)

"""Result files of other tools, each known by its content, as runs that stand beside our own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from bench.axes import AXES
from bench.beside.interop.imported.aiperf import AIPERF
from bench.beside.interop.imported.guidellm import GUIDELLM
from bench.beside.interop.imported.inference_perf import INFERENCE_PERF
from bench.beside.interop.imported.kind import Format, PeerRun
from bench.beside.interop.imported.vllm import VLLM
from bench.errors import BenchError
from bench.parse.foreign import ForeignRun, foreign_run, request_table, write_run
from bench.runs.files import UNREADABLE, checksum, digest

#: The tools whose result files are read. One more is a file beside this one, and a row here.
FORMATS = {each.name: each for each in (VLLM, GUIDELLM, AIPERF, INFERENCE_PERF)}
#: Records of a run of our own.
OWN = ("run.json", "summary.json")
# What reading values of other types than a tool writes may raise.
_ODD = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError, BenchError)
_EXPECTED = "Expected: " + "; ".join(f"{form.title} {form.versions}: {form.file}" for form in FORMATS.values()) + "."
# largest relative difference of mean lengths of one load, as tools count them; convention: tools miss the length that is asked for
_ALIKE = 0.1
_IDENTITY = 8  # characters of a run's digest in its name; convention: of a thousand runs two share them with odds of 1 to 8,600
_Peer = tuple[Format, Path, PeerRun]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A run of another tool beside our own. Attributes: source: the file it was read from. run: by our definitions."""

    form: Format
    source: Path
    peer: PeerRun
    run: ForeignRun


def read_peers(path: Path, *, beside_own: bool = False) -> list[_Peer]:
    """The runs in a result file, or in all result files below a folder; other files there are left out.

    Args:
        beside_own: whether the folder has runs of our own, too, so that there need be no other.

    Raises:
        BenchError: no result file is there, or one is not what its tool writes.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.json") if file.is_file() and file.name not in OWN)
    found = [run for file in files for run in _of_file(file, among_others=path.is_dir())]
    if not found and not beside_own:
        raise BenchError(f"{path}: no result file of a tool that is read. {_EXPECTED}")
    return found


def _of_file(path: Path, *, among_others: bool) -> list[_Peer]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except UNREADABLE as error:
        if among_others and not isinstance(error, OSError):
            return []
        raise BenchError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}. {_EXPECTED}") from None
    form = next((form for form in FORMATS.values() if form.wrote(value)), None)
    try:
        return [(form, path, run) for run in form.read(path, value)] if form else []
    except _ODD as error:
        said = str(error) if isinstance(error, ValueError | BenchError) else repr(error)
        raise BenchError(
            f"{path}: not as {form.title} {form.versions} writes it: {said}. Expected: {form.file}."  # type: ignore[union-attr]
        ) from None


def imported(peers: Iterable[_Peer], own: Sequence[Mapping[str, Any]] = ()) -> list[Imported]:
    """The runs, each with the columns that follow from its file.

    A load of the same arrivals and lengths has one name, by which runs are compared and drawn on one curve: that of a run of our own,
    where there is one.

    Args:
        own: rows of the summary table.
    """
    loads = [(str(row["arrival"]), row["prompt_tokens"], row["output_tokens"], str(row["workload"])) for row in own]
    found: list[Imported] = []
    repeats = Counter[tuple[Any, ...]]()
    for form, source, peer in peers:
        table, (arrival, axis, level) = request_table(peer.requests), peer.load
        ok = table.filter(pl.col("outcome") == "ok")
        lengths: list[Any] = [ok[name].mean() for name in ("prompt_tokens", "completion_tokens")]
        workload = next((name for kind, *of, name in loads if kind == arrival and _alike(of, lengths)), None)
        if workload is None:
            workload = "_".join([arrival, *(f"{letter}{mean:.0f}" for letter, mean in zip("po", lengths, strict=True) if mean)])
            loads.append((arrival, lengths[0], lengths[1], workload))
        repeats[load := (form.name, peer.model, workload, level)] += 1
        definition = {
            "deployment": f"{peer.model} ({form.title})",
            "workload": workload,
            "arrival": arrival,
            "axis": axis,
            "level": level,
            "repeat": repeats[load],
            "endpoint": peer.endpoint,
            "stream": peer.stream,
            "prompts": {"source": "imported"},
            "output_tokens": {"distribution": "natural"},  # nothing says whether an answer's length was asked for
        }
        identity = digest([definition, checksum(source)])
        # Folders of runs have this name: another model's run of the same load, or of a later call, is another one.
        definition["run"] = f"{form.name}_{workload}_{AXES[axis].label(level)}_r{repeats[load]}_{identity[:_IDENTITY]}"
        started = peer.started and datetime.fromtimestamp(peer.started, UTC).isoformat(timespec="milliseconds")
        run = foreign_run(definition, table, digest=identity, started=started or None, stamps=peer.stamps)
        found.append(Imported(form=form, source=source, peer=peer, run=run))
    return found


def _alike(ours: Sequence[float | None], theirs: Sequence[Any]) -> bool:
    return all(a is not None and b is not None and abs(a - b) <= _ALIKE * a for a, b in zip(ours, theirs, strict=True))


def write_imported(runs: Iterable[Imported], folder: Path) -> list[Path]:
    """Write each run into a folder of its own below `folder`, and return these."""
    places = []
    for each in runs:
        tool = {"tool": each.form.title, "version": each.peer.version}
        places.append(write_run(each.run, folder, {**tool, "file": each.source.name, "sha256": checksum(each.source)}))
    return places

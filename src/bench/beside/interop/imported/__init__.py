"""Result files of other tools, each known by its content, as runs that stand beside our own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bench.axes import AXES
from bench.beside.interop.imported.aiperf import AIPERF
from bench.beside.interop.imported.guidellm import GUIDELLM
from bench.beside.interop.imported.inference_perf import INFERENCE_PERF
from bench.beside.interop.imported.kind import Format, Part, PeerRun
from bench.beside.interop.imported.vllm import VLLM
from bench.errors import BenchError
from bench.parse.foreign import ForeignRun, foreign_run, write_run
from bench.runs.files import UNREADABLE, checksum, digest

#: The tools whose result files are read. One more is a file beside this one, and a row here.
FORMATS = {each.name: each for each in (VLLM, GUIDELLM, AIPERF, INFERENCE_PERF)}
# What reading values of other types than a tool writes may raise.
_ODD = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
_EXPECTED = "Expected: " + "; ".join(f"{form.title} {form.versions}: {form.file}" for form in FORMATS.values()) + "."
# largest relative difference of mean lengths of one load, as tools count them; convention: tools miss the length that is asked for
_ALIKE = 0.1
_IDENTITY = 8  # characters of a run's digest in its name; convention: of a thousand runs two share them with odds of 1 to 8,600
_MEANS = {"prompt_tokens": "counted_prompt_tokens", "completion_tokens": "counted_output_tokens"}
_Peer = tuple[Format, Path, PeerRun]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A run of another tool beside our own.

    Attributes:
        source: the file it was read from. figures: columns of the summary, by our definitions; of aggregates alone the load and what
            was counted. run: its requests, too; None of aggregates alone.
    """

    form: Format
    source: Path
    peer: PeerRun
    figures: Mapping[str, Any]
    run: ForeignRun | None = None


def read_peers(path: Path) -> list[_Peer]:
    """The runs in a result file, or in all result files below a folder; what is no JSON there is skipped, with a line on stderr.

    Raises:
        BenchError: no result file is there, or one is not what its tool writes.
    """
    files = sorted(file for file in path.rglob("*.json") if file.is_file()) if path.is_dir() else [path]
    found = [run for file in files for run in _of_file(file, among_others=path.is_dir())]
    if not found:
        none = f"none of the {len(files)} JSON files below it is a result file" if path.is_dir() else "no result file"
        raise BenchError(f"{path}: {none} of a tool that is read. {_EXPECTED}")
    return found


def _of_file(path: Path, *, among_others: bool) -> Iterator[_Peer]:
    try:
        values = list(_values(path.read_text(encoding="utf-8")))
    except UNREADABLE as error:
        no_json = not isinstance(error, OSError)
        if no_json and among_others:
            print(f"{path}: skipped, as it is not JSON: {error}.", file=sys.stderr)
            return
        why = f"{error}; was the file cut off?" if no_json else getattr(error, "strerror", None) or error
        raise BenchError(f"{path}: cannot be read: {why}. {_EXPECTED}") from None
    for value in values:
        if form := next((form for form in FORMATS.values() if form.is_result(value)), None):
            try:
                yield from ((form, path, run) for run in form.read(path, value))
            except _ODD as error:
                said = str(error) if isinstance(error, ValueError) else repr(error)
                raise BenchError(f"{path}: not as {form.title} writes it: {said}. {_remedy(form, value)}") from None


def _values(text: str) -> Iterator[Any]:
    """The JSON values in a text, one after the other. NaN is refused where it is read: tools write it for what they cannot compute."""
    while text := text.lstrip():
        value, at = json.JSONDecoder().raw_decode(text)
        yield value
        text = text[at:]


def _remedy(form: Format, value: Any) -> str:
    """What to do with a file that is not read: another version's may have another shape."""
    try:
        seen = Part(value).get(form.version, object)
    except ValueError:
        seen = None
    wrote = "It does not name the version that wrote it" if seen is None else f"{form.title} {seen} wrote it"
    again = f"Copy the file again, or run {form.title} {form.versions}."
    return f"{wrote}; files of {form.versions} are read. Expected: {form.file}. {again}"


def imported(peers: Iterable[_Peer], own: Sequence[Mapping[str, Any]] = ()) -> list[Imported]:
    """The runs, each with the columns that follow from its file.

    A load of the same arrivals and lengths has one name, by which runs are compared and drawn on one curve: that of a run of our own,
    where there is one.

    Args:
        own: rows of the summary table.
    """
    loads = [(str(row["arrival"]), row["prompt_tokens"], row["output_tokens"], str(row["workload"])) for row in own]
    found: list[Imported] = []
    repeats: dict[tuple[Any, ...], int] = {}
    for form, source, peer in peers:
        lengths, (kind, _, level) = _lengths(peer), peer.load
        workload = next((name for arrival, *of, name in loads if arrival == kind and _alike(of, lengths)), None)
        if workload is None:
            workload = "_".join([kind, *(f"{letter}{mean:.0f}" for letter, mean in zip("po", lengths, strict=True) if mean)])
            loads.append((kind, *lengths, workload))
        load = (form.name, peer.model, workload, level)
        repeats[load] = repeats.get(load, 0) + 1
        found.append(_imported(form, source, peer, workload, repeats[load]))
    return found


def _lengths(peer: PeerRun) -> tuple[Any, Any]:
    """Mean lengths of prompts and of answers, as the tool counts them; None where it does not."""
    ok = peer.table.filter(pl.col("outcome") == "ok")
    means = {column: ok[column].mean() for column in _MEANS}
    prompt, output = (peer.reported.get(_MEANS[name]) if mean is None else mean for name, mean in means.items())
    return prompt, output


def _alike(ours: Sequence[float | None], theirs: Sequence[float | None]) -> bool:
    return all(a is not None and b is not None and abs(a - b) <= _ALIKE * a for a, b in zip(ours, theirs, strict=True))


def _imported(form: Format, source: Path, peer: PeerRun, workload: str, repeat: int) -> Imported:
    arrival, axis, level = peer.load
    definition = {
        "deployment": f"{peer.model} ({form.title})",
        "workload": workload,
        "arrival": arrival,
        "axis": axis,
        "level": level,
        "repeat": repeat,
        "endpoint": peer.endpoint,
        "stream": peer.stream,
        "prompts": {"source": "imported"},
        "output_tokens": {"distribution": "natural"},  # nothing says whether an answer's length was asked for
    }
    identity = digest([definition, checksum(source)])
    # Folders of runs have this name: another model's run of the same load, or of a later call, is another one.
    definition["run"] = f"{form.name}_{workload}_{AXES[axis].label(level)}_r{repeat}_{identity[:_IDENTITY]}"
    if not peer.requests:  # times by the tool's own definitions are no columns of ours
        counts = {name: int(peer.reported[name]) for name in ("requests", "ok") if name in peer.reported}
        load = {name: definition[name] for name in definition.keys() - {"prompts", "output_tokens"}}
        figures = {**load, "digest": identity, "started": peer.started, **counts}
        return Imported(form=form, source=source, peer=peer, figures=figures)
    run = foreign_run(definition, peer.table, digest=identity, started=peer.started, stamps=not peer.lacks)
    return Imported(form=form, source=source, peer=peer, figures=run.figures, run=run)


def write_imported(runs: Iterable[Imported], folder: Path) -> list[Path]:
    """Write each run into a folder of its own below `folder`, and return these. Runs with aggregates alone are left out."""
    return [
        write_run(
            each.run,
            folder,
            {
                "tool": each.form.title,
                "version": each.peer.version,
                "file": each.source.name,
                "sha256": checksum(each.source),
                "reported": each.peer.reported,
            },
        )
        for each in runs
        if each.run
    ]

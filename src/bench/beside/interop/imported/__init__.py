"""Result files of other tools, each known by its content, as runs that stand beside our own."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.aiperf import AIPERF
from bench.beside.interop.imported.guidellm import GUIDELLM
from bench.beside.interop.imported.inference_perf import INFERENCE_PERF
from bench.beside.interop.imported.kind import Format, Part, PeerRun
from bench.beside.interop.imported.summary import Imported, imported, write_imported
from bench.beside.interop.imported.vllm import VLLM
from bench.errors import BenchError
from bench.runs.files import UNREADABLE

__all__ = ["FORMATS", "Format", "Imported", "PeerRun", "imported", "read_peers", "write_imported"]

#: The tools whose result files are read. One more is a file beside this one, and a row here.
FORMATS = {each.name: each for each in (VLLM, GUIDELLM, AIPERF, INFERENCE_PERF)}
# What reading values of other types than a tool writes may raise.
_ODD = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
_BLANKS = re.compile(r"\s*")
_EXPECTED = "Expected: " + "; ".join(f"{form.title} {form.versions}: {form.file}" for form in FORMATS.values()) + "."


def read_peers(path: Path) -> list[tuple[Format, Path, PeerRun]]:
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


def _of_file(path: Path, *, among_others: bool) -> Iterator[tuple[Format, Path, PeerRun]]:
    try:
        values = _values(path)
    except FileNotFoundError:
        raise BenchError(f"{path}: no such file or folder. {_EXPECTED}") from None
    except UNREADABLE as error:
        no_json = not isinstance(error, OSError)
        if no_json and among_others:
            print(f"{path}: skipped, as it is no JSON: {error}.", file=sys.stderr)
            return
        why = f"{error}; a file that was cut off looks like this" if no_json else getattr(error, "strerror", None) or error
        raise BenchError(f"{path}: cannot be read: {why}. Copy it again from where it was written. {_EXPECTED}") from None
    for value in values:
        if form := next((form for form in FORMATS.values() if form.is_result(value)), None):
            try:
                yield from ((form, path, run) for run in form.read(path, value))
            except _ODD as error:
                said = str(error) if isinstance(error, ValueError) else repr(error)
                raise BenchError(
                    f"{path}: not as {form.title} {form.versions} writes it: {said}. {_remedy(form, value)}"
                ) from None


def _values(path: Path) -> list[Any]:
    """The JSON values in a file: one, or several one after the other."""
    text = path.read_text(encoding="utf-8")
    # NaN is refused where it is read: tools write it for what they could not compute.
    decoder, values, at = json.JSONDecoder(), [], 0
    while (at := _BLANKS.match(text, at).end()) < len(text):  # type: ignore[union-attr] # it matches nothing, too
        value, at = decoder.raw_decode(text, at)
        values.append(value)
    return values


def _remedy(form: Format, value: Any) -> str:
    """What to do with a file that is not read: another version's may have another shape."""
    try:
        seen = Part(value).get(form.version, object)
    except ValueError:
        seen = None
    if str(seen).startswith(form.versions):
        return f"Expected: {form.file}. Copy the file again, or run {form.title} again."
    wrote = "It does not name the version that wrote it" if seen is None else f"{form.title} {seen} wrote it"
    again = f"Copy the file again, or run {form.title} {form.versions}."
    return f"{wrote}; files of {form.versions} are read. Expected: {form.file}. {again}"

"""The rows of a file of records: CSV, JSONL, other JSON or Parquet, by what it holds, whatever its name ends in."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bench.errors import BenchError

_DELIMITERS = ",;\t|"
_POINTER = b"version https://git-lfs"
_GZIP = b"\x1f\x8b"
_LONGEST_CELL = 2**26  # characters; Python's own limit, 131,072, is less than a long prompt


class Row(NamedTuple):
    """A record: where it stands, as `line 3` or `row 3`, and its values by column."""

    place: str
    values: Mapping[str, Any]


def read_rows(path: str, *, what: str) -> list[Row]:
    """The rows of a table; a CSV may be delimited by commas, semicolons, tabs or bars.

    Args:
        what: names the file in messages, as `trace`.

    Raises:
        BenchError: it is missing, cannot be read, or is no table.
    """
    content = _content(path, what)
    if content.startswith(_POINTER):
        raise BenchError(f"{path} is a Git LFS pointer, not the file itself. Fetch it: git lfs pull.")
    first = content.lstrip()[:4]
    read: Callable[[str], Iterator[tuple[str, Any]]]
    if first.startswith(b"PAR1") or path.endswith(".parquet"):
        kind, read = "Parquet", _parquet
    elif first.startswith(b"["):
        kind, read = "JSON", _array
    else:
        kind, read = ("JSONL", _jsonl) if first.startswith(b"{") or ".jsonl" in Path(path).suffixes else ("CSV", _csv)
    source = path if read is _parquet else _text(path, content)
    try:
        return [Row(place, row) for place, row in read(source)]
    except (ValueError, RecursionError, OSError) as error:
        raise BenchError(f"{path}: cannot be read as {kind}: {error}.") from None


def read_text(path: str, *, what: str) -> str:
    """The text of a file, which may be compressed with gzip. Args: what: names the file in messages."""
    return _text(path, _content(path, what))


def _content(path: str, what: str) -> bytes:
    """What a file holds, unpacked, without the mark that spreadsheets write first."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise BenchError(f"{path}: no such {what} in {Path.cwd()}; a study's paths start at the project's root.") from None
    except (OSError, ValueError) as error:  # a path with a NUL byte is the latter
        raise BenchError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise BenchError(f"{path}: cannot be unpacked with gzip: {error}.") from None
    return content.removeprefix(b"\xef\xbb\xbf")


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BenchError(f"{path}: cannot be read: line {line} is not UTF-8 text. Save the file as UTF-8.") from None


def _array(text: str) -> Iterator[tuple[str, Any]]:
    for number, row in enumerate(json.loads(text), 1):
        if not isinstance(row, dict):
            raise ValueError(f"item {number} is not an object")
        yield f"item {number}", row


def _csv(text: str) -> Iterator[tuple[str, Any]]:
    delimiter = max(_DELIMITERS, key=text.lstrip("\r\n").partition("\n")[0].count)  # the first of those that are alike
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    names: list[str] | None = None
    try:
        for cells in reader:
            if not "".join(cells).strip():
                continue
            if names is None:
                names = [cell.strip() for cell in cells]
                if twice := next((name for name in names if name and names.count(name) > 1), None):
                    raise ValueError(f"two columns are called {twice}; remove one")
            elif len(cells) != len(names):
                raise ValueError(f"line {reader.line_num} has {len(cells)} cells, and the first line names {len(names)}")
            else:
                yield f"line {reader.line_num}", dict(zip(names, map(str.strip, cells), strict=True))
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None


def _jsonl(text: str) -> Iterator[tuple[str, Any]]:
    """Of objects that are printed over several lines each, as spans of the Python SDK, they are items."""
    # JSON allows every other character that `splitlines` takes for a line's end inside its strings.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            with suppress(ValueError, RecursionError):
                yield from list(_array("[" + re.sub(r"^}\s*{", "},{", text, flags=re.MULTILINE) + "]"))
                return
            raise ValueError(f"line {number}: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is not a JSON object")
        yield f"line {number}", row


def _parquet(path: str) -> Iterator[tuple[str, Any]]:
    import polars as pl  # noqa: PLC0415 - the workflow reads configurations without it

    try:
        table = pl.read_parquet(path).to_dicts()
    except pl.exceptions.PolarsError as error:
        raise ValueError(str(error)) from None
    for number, row in enumerate(table, 1):
        yield f"row {number}", row

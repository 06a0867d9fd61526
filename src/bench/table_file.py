"""The rows of a file of records: CSV, JSONL, other JSON or Parquet, by what it holds, whatever its name ends in."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping
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
    if first.startswith(b"PAR1") or path.endswith(".parquet"):
        return _parquet(path)
    text = _text(path, content)
    if first.startswith(b"["):
        return _array(path, text)
    return _jsonl(path, text) if first.startswith(b"{") or ".jsonl" in Path(path).suffixes else _csv(path, text)


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


def _array(path: str, text: str) -> list[Row]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BenchError(f"{path}: cannot be read as JSON: {error}.") from None
    if wrong := next((number for number, row in enumerate(rows, 1) if not isinstance(row, dict)), None):
        raise BenchError(f"{path}: cannot be read as JSON: item {wrong} is not an object.")
    return [Row(f"item {number}", row) for number, row in enumerate(rows, 1)]


def _csv(path: str, text: str) -> list[Row]:
    delimiter = max(_DELIMITERS, key=text.lstrip("\r\n").partition("\n")[0].count)  # the first of those that are alike
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    names: list[str] | None = None
    rows = []
    try:
        for cells in reader:
            if not "".join(cells).strip():
                continue
            if names is None:
                names = [cell.strip() for cell in cells]
                if twice := next((name for name in names if name and names.count(name) > 1), None):
                    raise BenchError(f"{path}: two columns are called {twice}. Remove one.")
            elif len(cells) != len(names):
                raise BenchError(
                    f"{path}: read as CSV, line {reader.line_num} has {len(cells)} cells, and the first line names {len(names)}."
                )
            else:
                rows.append(Row(f"line {reader.line_num}", dict(zip(names, map(str.strip, cells), strict=True))))
    except csv.Error as error:
        raise BenchError(f"{path}: cannot be read as CSV: line {reader.line_num}: {error}.") from None
    return rows


def _jsonl(path: str, text: str) -> list[Row]:
    rows: list[Row] = []
    # JSON allows every other character that `splitlines` takes for a line's end inside its strings.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not rows and (printed := _printed(text)):
                return printed
            raise BenchError(f"{path}: cannot be read as JSONL: line {number}: {error}.") from None
        if not isinstance(row, dict):
            raise BenchError(f"{path}: cannot be read as JSONL: line {number} is not a JSON object.")
        rows.append(Row(f"line {number}", row))
    return rows


def _printed(text: str) -> list[Row]:
    """Objects that are printed over several lines each, as spans of the Python SDK; none where the text is something else."""
    try:
        found = json.loads("[" + re.sub(r"^}\s*{", "},{", text, flags=re.MULTILINE) + "]")
    except (ValueError, RecursionError):
        return []
    return [Row(f"item {number}", row) for number, row in enumerate(found, 1) if isinstance(row, dict)]


def _parquet(path: str) -> list[Row]:
    import polars as pl  # noqa: PLC0415 - the workflow reads configurations without it

    try:
        table = pl.read_parquet(path).to_dicts()
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise BenchError(f"{path}: cannot be read as Parquet: {error}.") from None
    return [Row(f"row {number}", row) for number, row in enumerate(table, 1)]

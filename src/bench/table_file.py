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
_SEPARATOR = re.compile(r"sep=(.)", re.IGNORECASE)  # Excel's line ahead of the names
# Keys under which the answers of APIs hold their rows.
_AROUND = ("data", "rows", "result", "results", "items", "records", "logs", "entries", "observations", "hits")
_GZIP = b"\x1f\x8b"
_LONGEST_CELL = 2**26  # characters; Python's own limit, 131,072, is less than a long prompt
# What stands in place of a file's text, by its first bytes, and what to do.
_NOT_A_TABLE = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself. Fetch it: git lfs pull"),
    (b"/annex/objects/", "is a git-annex pointer, not the file itself. Fetch it: git annex get"),
    (b"<", "is a web page (HTML or XML), not a table. Download the file itself: a repository's site has a `raw` address"),
    (b"PK\x03\x04", "is a ZIP archive or a spreadsheet. Unpack it, or export it as CSV"),
    (b"(\xb5/\xfd", "is compressed with Zstandard. Unpack it: unzstd"),
    (b"BZh", "is compressed with bzip2. Unpack it: bunzip2"),
    (b"\xfd7zXZ", "is compressed with xz. Unpack it: unxz"),
    (b"ARROW1", "is an Arrow file. Write it as Parquet"),
    (b"SQLite format 3", "is an SQLite database. Export the table as CSV"),
    (b"\xff\xfe", "is UTF-16 text. Save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text. Save it as UTF-8"),
)


class Row(NamedTuple):
    """A record: where it stands, as `line 3` or `row 3`, and its values by column."""

    place: str
    values: Mapping[str, Any]


def read_rows(path: str, *, what: str) -> list[Row]:
    """The rows of a table; a CSV may be delimited by commas, semicolons, tabs or bars.

    Args:
        what: names the file in messages, as `trace`.

    Raises:
        BenchError: it is missing, cannot be read, or is no table; the message says what it is instead.
    """
    content = _content(path, what)
    first = content.lstrip()[:32]
    if reason := next((reason for start, reason in _NOT_A_TABLE if first.startswith(start)), None):
        raise BenchError(f"{path} {reason}.")
    if first.startswith(b"PAR1") or path.endswith(".parquet"):
        return _parquet(path)
    text = _text(path, content)
    if first.startswith(b"["):
        return _array(path, text)
    return _within(_jsonl(path, text)) if first.startswith(b"{") or ".jsonl" in Path(path).suffixes else _csv(path, text)


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


def _within(rows: list[Row]) -> list[Row]:
    """The rows that one object holds, as APIs answer: `{"data": […], "meta": …}`; else the rows themselves."""
    items = _items(rows[0].values) if len(rows) == 1 else None
    return [Row(f"item {number}", item) for number, item in enumerate(items, 1)] if items else rows


def _items(values: Mapping[str, Any]) -> list[Any] | None:
    for inner in (values.get(key) for key in _AROUND):
        if isinstance(inner, list) and inner and all(isinstance(item, dict) for item in inner):
            return inner
        if isinstance(inner, dict) and (items := _items(inner)):
            return items
    return None


def _csv(path: str, text: str) -> list[Row]:
    head, _, rest = text.lstrip("\r\n").partition("\n")
    if said := _SEPARATOR.fullmatch(head.strip(' "\r')):
        text, head = f"\n{rest}", rest.lstrip("\r\n").partition("\n")[0]
    delimiter = said[1] if said else max(_DELIMITERS, key=head.count)  # the first of those that are alike
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
            if not rows and (spread := _spread(text)):
                return spread
            raise BenchError(f"{path}: cannot be read as JSONL: line {number}: {error}.") from None
        if not isinstance(row, dict):
            raise BenchError(f"{path}: cannot be read as JSONL: line {number} is not a JSON object.")
        rows.append(Row(f"line {number}", row))
    return rows


def _spread(text: str) -> list[Row]:
    """Objects that are printed over several lines each, one behind another; none where the text is something else."""
    rows: list[Row] = []
    decoder, line = json.JSONDecoder(), 1
    before, at = 0, len(text) - len(text.lstrip())
    while at < len(text):
        line += text.count("\n", before, at)
        try:
            row, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        if not isinstance(row, dict):
            return []
        rows.append(Row(f"line {line}", row))
        before, at = at, end
        while at < len(text) and text[at].isspace():
            at += 1
    return rows


def _parquet(path: str) -> list[Row]:
    import polars as pl  # noqa: PLC0415 - the workflow reads configurations without it

    try:
        table = pl.read_parquet(path).to_dicts()
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise BenchError(f"{path}: cannot be read as Parquet: {error}.") from None
    return [Row(f"row {number}", row) for number, row in enumerate(table, 1)]

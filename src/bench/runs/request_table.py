"""`requests.jsonl`, read: its records, and the same as a table with a column a field of `RequestRecord`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import polars as pl

from bench.errors import BenchError
from bench.runs.request import RequestRecord


def _column(hint: Any) -> Any:
    """The column type of a field's type."""
    if get_origin(hint) is list:
        return pl.List(_column(get_args(hint)[0]))
    if get_origin(hint) is Literal:
        return pl.String
    kinds = {bool: pl.Boolean, int: pl.Int64, float: pl.Float64, str: pl.String}
    return next(kinds[kind] for kind in (hint, *get_args(hint)) if kind in kinds)


_HINTS = get_type_hints(RequestRecord)
REQUEST_SCHEMA: dict[str, Any] = {field.name: _column(_HINTS[field.name]) for field in fields(RequestRecord)}


def request_table(path: Path) -> pl.DataFrame:
    """The requests in `path`; what a line has beyond the fields of a record is left out.

    Raises:
        BenchError: a session does not write such a line (the message has its number).
    """
    count = sum(1 for _ in read_requests(path))
    try:
        return pl.read_ndjson(path, schema=REQUEST_SCHEMA) if count else pl.DataFrame(schema=REQUEST_SCHEMA)
    except (ValueError, pl.exceptions.PolarsError) as error:
        raise BenchError(f"{path}: {error}.") from None


def read_requests(path: Path) -> Iterator[RequestRecord]:
    """The records in a `requests.jsonl`. Errors as of `request_table`."""
    number, decoder = 0, msgspec.json.Decoder(RequestRecord)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):  # noqa: B007 - named where reading stops
                yield decoder.decode(line)
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise BenchError(f"{path}: line {number} is not a request record: {error}.") from None

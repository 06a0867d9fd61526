"""`requests.jsonl` as a table: a column a field of `RequestRecord`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import polars as pl

from bench.errors import BenchError, shown
from bench.runs.files import refuse_constant
from bench.runs.request import RequestRecord

_MOST = 1e12  # of a time or a count: what is beyond it was not measured


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
# Of answers that were recorded before their chunks were counted: one token a chunk was taken for granted.
_UNCOUNTED = {"first_tokens": 1.0, "arrivals": 0, "done": True}


def request_table(path: Path) -> pl.DataFrame:
    """The requests in `path`; what a line lacks is null or as of old, what it has beyond the columns is left out.

    Raises:
        BenchError: a line is none that a session writes; the message has its number.
    """
    lines = list(_lines(path))
    for number, line in enumerate(lines, 1):
        if (bad := odd_key(line)) is not None:
            raise BenchError(f"{path}: line {number} is no request record: {bad} is {shown(line.get(bad))}.")
    return pl.DataFrame(
        [{key: line.get(key, _UNCOUNTED.get(key)) for key in REQUEST_SCHEMA} for line in lines], schema=REQUEST_SCHEMA
    )


def odd_key(line: Mapping[str, Any]) -> str | None:
    """The first key of a request's record whose value its column does not take; None where all fit."""
    kinds = ((key, kind) for key, kind in REQUEST_SCHEMA.items() if key != "token_times_s")
    if (odd := next((key for key, kind in kinds if not _fits(line.get(key), kind)), None)) is not None:
        return odd
    times = line.get("token_times_s")
    known = isinstance(times, list) and all(_fits(t, pl.Float64) and t is not None for t in times)
    return None if known else "token_times_s"


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value can stand in a column of this type."""
    if value is None:
        return True
    if kind in (pl.String, pl.Boolean):
        return isinstance(value, str if kind == pl.String else bool)
    types = int if kind == pl.Int64 else (int, float)
    return isinstance(value, types) and not isinstance(value, bool) and abs(value) < _MOST  # of NaN it is not


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):  # noqa: B007 - named where reading stops
                content = json.loads(line, parse_constant=refuse_constant)
                if not isinstance(content, dict):
                    raise ValueError("it holds no object")
                yield content
    except UnicodeDecodeError as error:
        raise BenchError(f"{path}: not UTF-8 ({error.reason}).") from None
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise BenchError(f"{path}: line {number} is no request record: {error}.") from None

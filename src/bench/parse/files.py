"""The files of a measured run, read and checked: what is computed from them may take their types for granted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError, shown

__all__ = ["read_record", "request_table"]

_NUMBER = (int, float)
_KEYS: dict[str, tuple[type, ...]] = {
    **{"digest": (str,), "started": (str,), "definition": (dict,), "files": (dict,), "client": (dict,), "host": (dict,)},
    **{"clock_start_s": _NUMBER, "drain_s": _NUMBER, "scrape_interval_s": (*_NUMBER, type(None)), "prefix": (dict,)},
    "scrape_endpoint": (str, type(None)),
}
_OPTIONAL: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("round", "position", "session"), (int, type(None))),
    **{
        "reference": (dict, type(None)),
        "engine_version": (str, type(None)),
        "commit": (str, type(None)),
        "environment": (dict, type(None)),
    },
}
_DEFINITION: dict[str, tuple[type, ...]] = {
    **{"workload": (str,), "axis": (str,), "level": _NUMBER},
    **dict.fromkeys(("deployment", "run", "arrival", "family"), (str, type(None))),
    **{"repeat": (int, type(None)), "seed": (int, str, type(None)), "turns": (dict, type(None)), "step": (dict, type(None))},
}
_MOST = 1e12  # of a time or a count: what is beyond it was not measured


def read_record(folder: Path) -> dict[str, Any]:
    """A run's `run.json`, after a check of its files against the checksums in it.

    Raises:
        BenchError: a file is missing, differs from what was measured, or is none that a session writes.
    """
    path = folder / "run.json"
    if not path.exists():
        raise BenchError(f"{path}: no such file; the folder of a measured run holds run.json and requests.jsonl.")
    again = f"discard the run (`bench discard {folder.name}`) and measure it again."
    try:
        record = _checked(json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse))
    except (OSError, ValueError, RecursionError) as error:
        raise BenchError(f"{path}: no record of a run ({error}). Restore it, or {again}") from None
    for name, expected in record["files"].items():
        file = folder / name
        if not file.is_file():
            raise BenchError(f"{file}: missing. D{again[1:]}")
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise BenchError(f"{file}: differs from what was measured. Restore it, or {again}")
    return record


def _checked(record: Any) -> dict[str, Any]:
    """`record`, if it has what every record has.

    Raises:
        ValueError: it names what is missing or wrong.
    """
    if not isinstance(record, dict):
        raise ValueError("it holds no object")
    for key, types in (_KEYS | _OPTIONAL).items():
        if key in _KEYS and key not in record:
            raise ValueError(f"{key} is missing")
        value = record.get(key)
        if (key in record and not isinstance(value, types)) or isinstance(value, bool) or not _sane(value):
            raise ValueError(f"{key} is {shown(value)}")
    _check_load(record)
    if record["scrape_interval_s"] is not None and record["scrape_interval_s"] <= 0:
        raise ValueError(f"scrape_interval_s is {shown(record['scrape_interval_s'])}")
    for name in record["files"]:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"files names {shown(name)}, which is no file beside it")
    for key in ("client", "host", "prefix"):
        for name, value in record[key].items():
            if not isinstance(value, int | float | None) or not _sane(value):
                raise ValueError(f"{key}.{name} is {shown(value)}")
    if "expected_tokens" not in record["prefix"]:
        raise ValueError("prefix.expected_tokens is missing")
    return record


def _check_load(record: Mapping[str, Any]) -> None:
    """Refuse a definition or a reference load that is none.

    Raises:
        ValueError: it names what is wrong.
    """
    definition = record["definition"]
    for key, types in _DEFINITION.items():
        value = definition.get(key)
        if not isinstance(value, types) or not _sane(value):
            raise ValueError(f"definition.{key} is {shown(value)}")
    if "round" not in record and not isinstance(definition.get("repeat"), int):
        raise ValueError("neither round nor definition.repeat is there")
    seconds = (record.get("reference") or {}).get("seconds", [])
    if (
        not isinstance(seconds, list)
        or not all(isinstance(s, int | float) and 0 < s < _MOST for s in seconds)
        or len(seconds) in (1, 2)
    ):
        raise ValueError(f"reference.seconds is {shown(seconds)}")


def _sane(value: Any) -> bool:
    return not isinstance(value, int | float) or abs(value) < _MOST  # of NaN it is not


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no measurement")


def request_table(path: Path, schema: Mapping[str, Any]) -> pl.DataFrame:
    """The requests in a `requests.jsonl`.

    Args:
        schema: the table's columns; what a line lacks is null, what it has beyond them is left out.

    Raises:
        BenchError: a line is none that a session writes; the message has its number.
    """
    lines = list(_lines(path))
    for number, line in enumerate(lines, 1):
        times = line.get("token_times_s")
        bad = next((key for key in schema if key != "token_times_s" and not _fits(line.get(key), schema[key])), None)
        if bad is None and not (isinstance(times, list) and all(_fits(t, pl.Float64) and t is not None for t in times)):
            bad = "token_times_s"
        if bad is not None:
            raise BenchError(f"{path}: line {number} is no request record: {bad} is {shown(line.get(bad))}.")
    return pl.DataFrame([{key: line.get(key) for key in schema} for line in lines], schema=dict(schema))


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value can stand in a column of this type."""
    if value is None:
        return True
    if kind == pl.String:
        return isinstance(value, str)
    types = int if kind == pl.Int64 else (int, float)
    return isinstance(value, types) and not isinstance(value, bool) and _sane(value)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):  # noqa: B007 - named where reading stops
                content = json.loads(line, parse_constant=_refuse)
                if not isinstance(content, dict):
                    raise ValueError("it holds no object")
                yield content
    except UnicodeDecodeError as error:
        raise BenchError(f"{path}: not UTF-8 ({error.reason}).") from None
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise BenchError(f"{path}: line {number} is no request record: {error}.") from None

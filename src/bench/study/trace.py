"""A trace of requests to replay: when each arrived, and how long its prompt and answer were."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bench.errors import BenchError

__all__ = ["TraceRequest", "read_trace"]


@dataclass(frozen=True)
class TraceRequest:
    """One line of a trace: arrival since its first request (s), and lengths (tokens)."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


def _milliseconds(value: Any) -> float:
    return float(value) / 1000


def _date(value: Any) -> float:
    """Seconds since 1970 of a date and time, or of its ISO text; without a time zone it is UTC."""
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class _Format(NamedTuple):
    """A trace's columns and the unit of its arrivals: names alone do not tell seconds from milliseconds."""

    arrival: str
    prompt: str
    output: str
    unit: str
    seconds: Callable[[Any], float]


_FORMATS = (
    _Format("arrival_s", "prompt_tokens", "output_tokens", "s", float),
    # kvcache-ai/Mooncake, FAST25-release/traces (JSONL).
    _Format("timestamp", "input_length", "output_length", "ms", _milliseconds),
    # Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_*.csv.
    _Format("TIMESTAMP", "ContextTokens", "GeneratedTokens", "date and time", _date),
)


@cache
def read_trace(path: str) -> tuple[TraceRequest, ...]:
    """The requests in a CSV, JSONL or Parquet file, in order of arrival.

    Columns: `arrival_s` (s, from any zero), `prompt_tokens`, `output_tokens`; or all three as Mooncake or Azure publish them.

    Raises:
        BenchError: the file is missing or broken, lacks a column, or a row is not a request.
    """
    file = Path(path)
    try:
        rows = {".parquet": _parquet, ".jsonl": _jsonl}.get(file.suffix, _csv)(file)
    except FileNotFoundError:
        raise BenchError(f"{path}: no such trace; paths start at the project's root.") from None
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (ValueError, csv.Error, RecursionError) as error:
        raise BenchError(f"{path}: cannot be read as {file.suffix.lstrip('.') or 'csv'}: {error}.") from None
    if not rows:
        raise BenchError(f"{path}: holds no requests.")
    form = next((x for x in _FORMATS if {x.arrival, x.prompt, x.output} <= rows[0].keys()), None)
    if form is None:
        known = "; or ".join(f"{x.arrival} ({x.unit}), {x.prompt}, {x.output}" for x in _FORMATS)
        raise BenchError(f"{path}: a trace has the columns {known}. Found: {', '.join(map(str, rows[0]))}.")
    requests = []
    for number, row in enumerate(rows, 1):
        arrival, prompt, output = (row.get(column, "") for column in form[:3])
        try:
            request = TraceRequest(form.seconds(arrival), int(prompt), int(output))
            if not math.isfinite(request.arrival_s):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise BenchError(
                f"{path}: row {number} is invalid: {form.arrival} {arrival!r} ({form.unit}), {form.prompt} {prompt!r}, "
                f"{form.output} {output!r}."
            ) from None
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise BenchError(f"{path}: row {number} has {prompt} prompt and {output} output tokens; both must be 1 or more.")
        requests.append(request)
    requests.sort(key=lambda request: request.arrival_s)
    zero = requests[0].arrival_s
    return tuple(TraceRequest(x.arrival_s - zero, x.prompt_tokens, x.output_tokens) for x in requests)


def _csv(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8-sig", newline="") as stream:  # with or without the mark that spreadsheets write first
        return list(csv.DictReader(stream))


def _jsonl(file: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a line is not a JSON object")
    return rows


def _parquet(file: Path) -> list[dict[str, Any]]:
    import polars as pl  # noqa: PLC0415 - the workflow reads configurations without it

    try:
        return pl.read_parquet(file).to_dicts()
    except pl.exceptions.PolarsError as error:
        raise ValueError(error) from None

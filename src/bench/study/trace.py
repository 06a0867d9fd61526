"""A trace of requests to replay: when each arrived, and how long its prompt and answer were."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.errors import BenchError

__all__ = ["TraceRequest", "read_trace"]

# Our names first; then those of traces that people have (Azure's, vLLM's and Mooncake's fields).
_ARRIVAL = ("arrival_s", "arrival", "timestamp")
_PROMPT = ("prompt_tokens", "ContextTokens", "input_length")
_OUTPUT = ("output_tokens", "GeneratedTokens", "output_length")


@dataclass(frozen=True)
class TraceRequest:
    """One line of a trace: arrival since its first request (s), and lengths (tokens)."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


@cache
def read_trace(path: str) -> tuple[TraceRequest, ...]:
    """The requests in a CSV or Parquet file, in order of arrival.

    Columns: `arrival_s` (s, from any zero), `prompt_tokens`, `output_tokens`.

    Raises:
        BenchError: the file is missing, lacks a column, or a row is no request.
    """
    file = Path(path)
    try:
        rows = _parquet(file) if file.suffix == ".parquet" else _csv(file)
    except FileNotFoundError:
        raise BenchError(f"{path}: no such trace; paths start at the project's root.") from None
    if not rows:
        raise BenchError(f"{path}: holds no request.")
    columns = [name for names in (_ARRIVAL, _PROMPT, _OUTPUT) for name in [n for n in names if n in rows[0]][:1]]
    if len(columns) < 3:
        raise BenchError(
            f"{path}: a trace has the columns arrival_s, prompt_tokens and output_tokens; found: {', '.join(rows[0])}."
        )
    requests = []
    for number, row in enumerate(rows, 1):
        arrival, prompt, output = (row[column] for column in columns)
        try:
            requests.append(TraceRequest(float(arrival), int(prompt), int(output)))
        except (TypeError, ValueError):
            raise BenchError(f"{path}: request {number} is no request: {arrival!r}, {prompt!r}, {output!r}.") from None
        if requests[-1].prompt_tokens < 1 or requests[-1].output_tokens < 1:
            raise BenchError(f"{path}: request {number} has a length of {prompt} and {output} tokens; both must be 1 or more.")
    requests.sort(key=lambda request: request.arrival_s)
    zero = requests[0].arrival_s
    return tuple(TraceRequest(x.arrival_s - zero, x.prompt_tokens, x.output_tokens) for x in requests)


def _csv(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _parquet(file: Path) -> list[dict[str, Any]]:
    import polars as pl  # noqa: PLC0415 - the workflow reads configurations without it

    return pl.read_parquet(file).to_dicts()

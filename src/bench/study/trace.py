"""A trace of requests to replay: when each arrived, and how long its prompt and answer were."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple

from bench.errors import BenchError, shown
from bench.table_file import Row, read_rows

__all__ = [
    "PUBLISHERS",
    "SECONDS",
    "Format",
    "TraceRequest",
    "TraceUnit",
    "date_of",
    "format_of",
    "read_trace",
    "since_1970",
    "unit_not_known",
]

TraceUnit = Literal["s", "ms", "us", "ns"]
#: Seconds of each unit.
SECONDS: dict[TraceUnit, Decimal] = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")
_EPOCH = (10**9, 4 * 10**9)  # moments that are taken for seconds since 1970, from 2001 to 2096; convention
_LONGEST = 2**31  # tokens that no model's context has, so that a time in a wrong column is beyond it; convention


@dataclass(frozen=True)
class TraceRequest:
    """One line of a trace: arrival since its first request (s), and lengths (tokens)."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


class Format(NamedTuple):
    """A published trace's columns.

    Attributes:
        publisher: who defines it. unit: of numeric arrivals, None where publishers differ. with_: further columns that it is known by.
        whole: whether the unit holds for whole numbers alone. dates: whether arrivals are dates.
    """

    publisher: str
    arrival: str
    prompt: str
    output: str
    unit: TraceUnit | None
    with_: tuple[str, ...] = ()
    whole: bool = False
    dates: bool = False

    def __str__(self) -> str:
        unit = "date and time" if self.dates else self.unit or "in the unit that `trace_unit` gives"
        others = f" beside {' and '.join(self.with_)}" if self.with_ else ""
        return (
            f"{self.arrival} ({unit}), {self.prompt}, {self.output}{others}{f' ({self.publisher})' if self.publisher else ''}"
        )


_COMMON = ("timestamp", "input_length", "output_length")
# Each by its publisher's own definition; of several that fit, the first. The columns of _COMMON have three meanings: Mooncake's and
# AIPerf's are in milliseconds, Bailian's and GuideLLM's (docs/guides/datasets.md) in seconds, those of vLLM's timed-trace (pull request
# 39795) in either.
_FORMATS = (
    Format("", "arrival_s", "prompt_tokens", "output_tokens", "s"),
    # alibaba-edu/qwen-bailian-usagetraces-anon, README: seconds since the trace's start.
    Format("Bailian", *_COMMON, "s", ("chat_id", "turn")),
    # kvcache-ai/Mooncake, FAST25-release/traces: milliseconds, whole.
    Format("Mooncake", *_COMMON, "ms", ("hash_ids",), whole=True),
    Format("", *_COMMON, None),
    # Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and later.
    Format("Azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", None, dates=True),
    # HPMLL/BurstGPT, README: seconds since the first day's midnight.
    Format("BurstGPT", "Timestamp", "Request tokens", "Response tokens", "s"),
    # microsoft/vidur, data/processed_traces, and Mutinifni/splitwise-sim, generate_trace.py: simulators whose time is in seconds.
    Format("Vidur", "arrived_at", "num_prefill_tokens", "num_decode_tokens", "s"),
    Format("Splitwise", "arrival_timestamp", "prompt_size", "token_size", "s"),
    # ai-dynamo/aiperf, docs/benchmark-modes/baseten-trace-replay.md.
    Format("Baseten", "timestamp_start_unix_ms", "input_tokens", "output_tokens", "ms"),
)
#: Whose traces are read as they are published.
PUBLISHERS = tuple(form.publisher for form in _FORMATS if form.publisher)


@cache
def read_trace(path: str, unit: TraceUnit | None = None) -> tuple[TraceRequest, ...]:
    """The requests in a CSV, JSONL or Parquet file, in order of arrival; columns as one of `_FORMATS` has them.

    Args:
        unit: of the arrivals, in place of the format's own.

    Raises:
        BenchError: the file is missing or broken, lacks a column, a row is not a request, or the arrivals' unit is not known.
    """
    rows = read_rows(path, what="trace")
    if not rows:
        raise BenchError(f"{path}: holds no requests.")
    columns = rows[0].values.keys()
    form = format_of(columns)
    if form is None:
        raise BenchError(
            f"{path}: a trace has the columns {'; or '.join(map(str, _FORMATS))}. Found: {', '.join(map(str, columns))}."
        )
    arrivals = _arrivals(path, rows, form, unit)
    lengths = [[_tokens(path, row, column, form) for column in (form.prompt, form.output)] for row in rows]
    zero = min(arrivals)
    requests = [TraceRequest(float(x - zero), *each) for x, each in zip(arrivals, lengths, strict=True)]
    return tuple(sorted(requests, key=lambda request: request.arrival_s))


def format_of(columns: Collection[str]) -> Format | None:
    """The published format that has such columns."""
    return next((form for form in _FORMATS if {*form[1:4], *form.with_} <= {*columns}), None)


def since_1970(low: Decimal | float) -> list[TraceUnit]:
    """The units in which a number is a moment of our time, counted from 1970: one or none."""
    return [name for name, seconds in SECONDS.items() if _EPOCH[0] <= Decimal(low) * seconds < _EPOCH[1]]


def _arrivals(path: str, rows: Sequence[Row], form: Format, unit: TraceUnit | None) -> list[Decimal]:
    """The moment of each row, in seconds from any zero."""
    column = form.arrival
    values = [row.values.get(column) for row in rows]
    if _number(values[0]) is None and values[0] not in (None, ""):
        moments = _all(path, rows, column, [_date(value) for value in values], "a date and time, as 2023-11-16 18:15:46.68")
        if unit is not None:
            raise BenchError(f"{path}: {column} holds dates, which have no other unit. Remove trace_unit.")
        return moments
    numbers = _all(path, rows, column, [_number(value) for value in values], "a number")
    seconds = SECONDS[unit or _known_unit(path, form, numbers)]
    return [number * seconds for number in numbers]


def _known_unit(path: str, form: Format, numbers: Sequence[Decimal]) -> TraceUnit:
    """The unit that a format defines, if its numbers can be in it."""
    low = min(numbers)
    dated = since_1970(low)
    if form.dates:
        reason = f"{form.publisher} publishes dates, and these are numbers"
    elif form.unit is None:
        reason = f"who publishes {form.arrival}, {form.prompt} and {form.output} gives it in seconds or in milliseconds"
    elif form.whole and not all(map(_whole, numbers)):
        reason = f"{form.publisher}'s are whole numbers of milliseconds, and these have fractions"
    elif dated and form.unit not in dated:
        reason = f"in {form.unit} the first would be long before or after our time; in {dated[0]} it is a date of our time"
    else:
        return form.unit
    units = list(dict.fromkeys([form.unit or "ms", *dated, "s", "ms"]))[:3]
    how = "Say it in the workload, or with --trace-unit"
    raise unit_not_known(path, form.arrival, reason, how, {f"trace_unit: {unit}": unit for unit in units}, numbers)


def unit_not_known(
    path: str, column: str, reason: str, how: str, units: Mapping[str, TraceUnit], numbers: Sequence[Decimal]
) -> BenchError:
    """The error of arrivals whose unit does not follow, with what each unit would make of them.

    Args:
        how: to say it. units: those that are likely, each by the words that choose it. numbers: two or more of the arrivals.
    """
    readings = "; ".join(f"`{words}` sends them at {_first(numbers, SECONDS[unit])}" for words, unit in units.items())
    return BenchError(f"{path}: the unit of {column} is not known: {reason}. {how}: {readings}.")


def _first(numbers: Sequence[Decimal], seconds: Decimal) -> str:
    """The first arrivals and the last, in s since the first."""
    zero, *others = sorted(numbers)
    texts = [f"{float((number - zero) * seconds):.6g}" for number in (zero, *others[:2], *others[2:][-1:])]
    return f"{', '.join(texts[:3])}{' …' if len(numbers) > 4 else ''}{''.join(f', {text}' for text in texts[3:])} s"


def _all(path: str, rows: Sequence[Row], column: str, values: Sequence[Decimal | None], wanted: str) -> list[Decimal]:
    for row, value in zip(rows, values, strict=True):
        if value is None:
            raise _wrong(path, row, column, f"is not {wanted}")
    return [value for value in values if value is not None]


def _tokens(path: str, row: Row, column: str, form: Format) -> int:
    count = _number(row.values.get(column))
    if count is None or not _whole(count) or abs(count) > _LONGEST:
        raise _wrong(path, row, column, "is not a whole number of tokens")
    if count < 1:
        failed = (
            "; the requests that failed have 0, and BurstGPT_without_fails_*.csv leaves them out"
            if form.publisher == "BurstGPT"
            else ""
        )
        raise _wrong(path, row, column, f"is less than 1 token{failed}. Remove the row")
    return int(count)


def _wrong(path: str, row: Row, column: str, problem: str) -> BenchError:
    value = row.values.get(column)
    what = f"{shown(str(value), 60)} {problem}" if value not in (None, "") else "is empty"
    return BenchError(f"{path}: {row.place}, {column}: {what}.")


def _whole(number: Decimal) -> bool:
    return number == number.to_integral_value()


def _number(value: Any) -> Decimal | None:
    """A number, exactly as it is written; None for anything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        return None
    return Decimal(repr(value) if isinstance(value, float) else value)


def _date(value: Any) -> Decimal | None:
    """Seconds since 1970 of a date and time, or of its ISO text; without a time zone it is UTC. None for anything else."""
    moment = date_of(value)
    if moment is None:
        return None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return Decimal(since // timedelta(microseconds=1)).scaleb(-6)


def date_of(value: Any) -> datetime | None:
    """A date and time, or what its ISO text says, with a zone where it has one; None for anything else."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        try:
            return datetime.fromisoformat(value.removesuffix(" UTC") + ("+00:00" if value.endswith(" UTC") else ""))
        except ValueError:
            return None
    return value if isinstance(value, datetime) else None

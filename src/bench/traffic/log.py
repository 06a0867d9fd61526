"""Read an access log: when each request came, how long it was, and what was left out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from http import HTTPStatus
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.errors import BenchError, listed, shown
from bench.table_file import Row, read_rows
from bench.traffic.columns import NEEDED, Parts, cell, columns_of, parts_of, status_columns, words_of
from bench.traffic.durations import Clock, durations_of, without_zone
from bench.traffic.moments import YEARS, moments_of, numbers_of, on_clock
from bench.workloads.trace import format_of, refuse_sums
from bench.workloads.trace_otel import calls_of, is_otel
from bench.workloads.trace_times import TraceUnit, date_of

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
_LONGEST = 2**31  # tokens that no model's context has; convention
# How words of a status begin that say a failure, or none.
_FAILED = re.compile(
    r"err|fail|fault|timed?$|timeout|cancel|abort|reject|refus|exception|denied|unavail|exceed|limited|thrott|invalid|overload|unauth|forbid|unsuccess"
    r"|disconnect|reset|crash|drop|(false|not|bad)$"
)
_FINE = re.compile(r"(ok|okay|success\w*|succeeded|completed?|done|finished|true|none|null|unset|stop)$")
_NO_ERROR = {"", "-", "none", "null", "false", "0", "no", "nan"}
_ANSWERS = {
    "1": True,
    "1.0": True,
    "yes": True,
    "y": True,
    "t": True,
    "0": False,
    "0.0": False,
    "no": False,
    "n": False,
    "f": False,
}
_WITHOUT = re.compile(r"(?<![a-z])(no|not|without|0)[ _-]*(err|fail|exceed)")
_PHRASES = {status.phrase.lower(): status.value for status in HTTPStatus}
_CODE = re.compile(r"(?:http\S*[ :])?(\d{3})(?:\.0)?\b")  # an HTTP status, alone or ahead of its words
_ANSWERED = 200  # least HTTP status of an answer; source: RFC 9110, 15.3
_FAILURES = 400  # least HTTP status of a failure; source: RFC 9110, 15.5
_NAMED = 5  # most unknown statuses that are each named; convention
_RESOLUTIONS = (60.0, 1.0, 0.1, 0.01, 1e-3)  # ticks that clocks of logs count in (s); convention
_SAME_S = 2e-6  # within which a moment lies on such a clock (s); derived: a float of seconds since 1970 is off by 0.24 µs


@dataclass(frozen=True)
class LeftOut:
    """Rows that are no requests with lengths.

    Attributes:
        why: after `rows with`. moments: since the log's first request (s), NaN where not known. places, cells: of each row.
    """

    why: str
    moments: Floats
    places: Sequence[str]
    cells: Sequence[Any]

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.moments)

    @property
    def place(self) -> str:
        """Place of the first row."""
        return self.places[0]

    @property
    def value(self) -> str:
        """Cell of the first row, as messages show it."""
        return shown(str(self.cells[0]), 40)

    def part(self, low: float, high: float, first: float) -> LeftOut | None:
        """Those from `low` to `high` (s), with moments since `first`; None where there are none."""
        here = np.flatnonzero((self.moments >= low) & (self.moments < high)).tolist()
        if not here:
            return None
        return LeftOut(self.why, self.moments[here] - first, [self.places[i] for i in here], [self.cells[i] for i in here])


@dataclass(frozen=True)
class Log:
    """The requests of a log, in order of arrival.

    Attributes:
        path: the file. rows: in it, or in the part. columns: which is what, by role.
        arrival_s: since the first (s). prompt_tokens, output_tokens: lengths.
        began: when the first came; None where arrivals are not dates. zone: for the hours of the day.
        duration_s: until the answer (s), NaN where not known; None without such a column.
        texts: of prompts; None without such a column.
        resolution_s: that all arrivals are whole multiples of.
        left_out: rows without a moment or a length, or that failed. notes: what else a reader has to know.
    """

    path: str
    rows: int
    columns: Mapping[str, str]
    arrival_s: Floats
    prompt_tokens: Whole
    output_tokens: Whole
    began: datetime | None
    zone: tzinfo
    duration_s: Floats | None
    texts: list[str] | None
    resolution_s: float
    left_out: Sequence[LeftOut] = ()
    notes: Sequence[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_s[-1])

    @property
    def rate(self) -> float | None:
        """Requests/s; None where they came in one instant."""
        return (self.count - 1) / self.span_s if self.span_s > 0 else None

    def part(self, begin: str | None, end: str | None) -> Log:
        """The requests from a moment on and before another: seconds since the first, or dates.

        Raises:
            BenchError: it is no such moment, or nothing came between them.
        """
        low = -math.inf if begin is None else self._moment("--from", begin)
        high = math.inf if end is None else self._moment("--to", end)
        kept = (self.arrival_s >= low) & (self.arrival_s < high)
        if not kept.any():
            raise BenchError(f"{self.path}: no request came in that part; the last came {self.span_s:g} s after the first.")
        first = float(self.arrival_s[kept][0])
        left_out = [each for lost in self.left_out if (each := lost.part(low, high, first))]
        unplaced = sum(int(np.isnan(lost.moments).sum()) for lost in self.left_out)
        notes = list(self.notes)
        if unplaced:
            rows = (
                "1 row without a moment of arrival is"
                if unplaced == 1
                else f"{unplaced:,} rows without a moment of arrival are"
            )
            notes.append(f"{rows} left out, whether of this part or not.")
        return replace(
            self,
            rows=int(kept.sum()) + sum(each.count for each in left_out),
            left_out=left_out,
            notes=notes,
            arrival_s=self.arrival_s[kept] - first,
            prompt_tokens=self.prompt_tokens[kept],
            output_tokens=self.output_tokens[kept],
            began=None if self.began is None else datetime.fromtimestamp(self.began.timestamp() + first, UTC),
            duration_s=None if self.duration_s is None else self.duration_s[kept],
            texts=None if self.texts is None else [text for text, here in zip(self.texts, kept, strict=True) if here],
        )

    def _moment(self, option: str, text: str) -> float:
        """Seconds since the first arrival."""
        seconds = numbers_of([text])[0]
        if not math.isnan(seconds):
            return float(seconds)
        moment = date_of(text)
        if moment is None:
            raise BenchError(f"{option} {text}: neither seconds since the first request nor a date and time.")
        if self.began is None:
            raise BenchError(f"{option} {text}: arrivals of this log are not dates. Give seconds since the first request.")
        found = float(on_clock([moment], self.zone)[0][0])
        if math.isnan(found):
            raise BenchError(f"{option} {text}: before {YEARS[0]} or after {YEARS[1]}.")
        return found - self.began.timestamp()


def read_log(
    path: str, *, given: Mapping[str, str] | None = None, unit: TraceUnit | None = None, zone: tzinfo | None = None
) -> Log:
    """The requests in a CSV, JSONL or Parquet file.

    Args:
        given: the column of a role, where its name does not say it. unit: of arrivals that are numbers. zone: of dates without one.

    Raises:
        BenchError: it cannot be read, columns or units are not known or ambiguous, or no row is a request with lengths.
    """
    rows = read_rows(path, what="log")
    if not rows:
        raise BenchError(f"{path}: holds no requests.")
    rows = _calls(path, rows) if is_otel(rows) else rows
    refuse_sums(path, rows)
    form = None if given else format_of(rows[0].values.keys())
    named = given or (dict(zip(NEEDED, form[1:4], strict=True)) if form else {})
    columns = columns_of(path, rows, named)
    values = {role: list(map(cell(name), rows)) for role, name in columns.items()}
    notes: list[str] = []
    moments, dated = moments_of(path, rows, columns["arrival"], values["arrival"], form, unit, zone, notes)
    clock = Clock(columns["arrival"], moments, dated, unit, without_zone(values["arrival"]) if dated else None, zone)
    parts = parts_of(rows, columns["prompt"], columns["output"])
    prompt, output = (
        _whole(rows, columns[role], values[role], each, notes) for role, each in zip(("prompt", "output"), parts, strict=True)
    )
    signs = status_columns(rows, named)
    failed, said = _failures(rows, signs, notes)
    columns |= {"status": " and ".join(signs)} if signs else {}
    faults = [
        (failed, "a failure", said),
        (np.isnan(moments), "no moment of arrival", values["arrival"]),
        (_no_count(prompt), "no count of prompt tokens", values["prompt"]),
        (_no_count(output), "no count of answer tokens", values["output"]),
        (prompt < 1, "a prompt of 0 tokens", values["prompt"]),
        (output < 1, "an answer of 0 tokens", values["output"]),
    ]
    left_out, kept = [], ~np.any([wrong for wrong, *_ in faults], axis=0)
    zero = float(moments[kept].min()) if kept.any() else 0.0
    rest = np.ones(len(rows), dtype=bool)
    for wrong, why, cells in faults:
        if len(lost := np.flatnonzero(rest & wrong)):
            left_out.append(LeftOut(why, moments[lost] - zero, [rows[i].place for i in lost], [cells[i] for i in lost]))
        rest &= ~wrong
    if not kept.any():
        why = "; ".join(f"{each.count} have {each.why} ({each.place}: {each.value})" for each in left_out)
        raise BenchError(f"{path}: none of {len(rows)} rows is a request with its lengths: {why}. See --columns.")
    came = moments[kept]
    if (np.diff(came) < 0).any():
        notes.append("Rows are not in the order of their arrivals; they were sorted.")
    order = np.flatnonzero(kept)[np.argsort(came, kind="stable")]
    arrival = moments[order] - moments[order[0]]
    return Log(
        path,
        len(rows),
        columns,
        arrival,
        prompt[order].astype(np.int64),
        output[order].astype(np.int64),
        datetime.fromtimestamp(float(moments[order[0]]), UTC) if dated else None,
        zone or UTC,
        durations_of(columns, values, clock, order, notes),
        [_text(values["text"][i]) for i in order] if "text" in values else None,
        _resolution(arrival),
        left_out,
        notes,
    )


def _calls(path: str, rows: Sequence[Row]) -> list[Row]:
    return [
        Row(
            call.place,
            {
                "start_ns": int(call.start_s.scaleb(9)),
                "end_ns": int(call.end_s.scaleb(9)),
                "input_tokens": call.prompt_tokens,
                "output_tokens": call.output_tokens,
                "status": "error" if call.failed else "ok",
            },
        )
        for call in calls_of(path, rows)
    ]


def _whole(rows: Sequence[Row], column: str, values: Sequence[Any], parts: Parts, notes: list[str]) -> Floats:
    """Tokens of each row's prompt, or answer, with those that its provider counts in other columns; NaN for what is no number."""
    found = numbers_of(values)
    if not parts.names:
        return found
    if not parts.apart:
        named = listed(parts.names)
        notes.append(f"Taken for part of {column}: {named}. If it is counted apart, add both up in a column of your own.")
        return found
    for name in parts.names:
        cells = list(map(cell(name), rows))
        found = found + np.where([value in (None, "") for value in cells], 0.0, numbers_of(cells))
    notes.append(f"{listed([column, *parts.names])} are added up, as they are counted apart.")
    return found


def _no_count(numbers: Floats) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.isnan(numbers) | (numbers != np.round(numbers)) | (np.abs(numbers) > _LONGEST)
    return found


def _failures(rows: Sequence[Row], columns: Sequence[str], notes: list[str]) -> tuple[npt.NDArray[np.bool_], list[Any]]:
    """Which rows say in any of these columns that their request failed, and the words that say it."""
    failed, said = np.zeros(len(rows), dtype=bool), [None] * len(rows)
    for column in columns:
        values = list(map(cell(column), rows))
        here = _failed(values, column, notes)
        for i in np.flatnonzero(here & ~failed):
            said[i] = values[i]
        failed |= here
    return failed, said


def _failed(values: Sequence[Any], column: str, notes: list[str]) -> npt.NDArray[np.bool_]:
    name = column.rpartition(".")[2].lower()
    kind = "error" if name.startswith(("err", "cancel", "failed")) else name
    said = {text: _says_failure(text, kind) for text in dict.fromkeys(map(_status, values))}
    unknown = [text for text, failed in said.items() if failed is None]
    for text in unknown[:_NAMED]:
        notes.append(f"{column} {shown(text, 40)} is not known as a failure; its requests were counted as answered.")
    if len(unknown) > _NAMED:
        notes.append(
            f"Nor are {len(unknown) - _NAMED:,} other values of {column}; give the column of statuses with --columns status=NAME."
        )
    return np.array([bool(said[_status(value)]) for value in values])


def _says_failure(text: str, kind: str) -> bool | None:
    """Whether a cell says that its request failed; None where it is not known. Args: kind: the column's name, or `error`."""
    lower = text.lower()
    if lower in ("", "-") or (kind == "error" and lower in _NO_ERROR):
        return False
    if kind == "success" and lower in _ANSWERS:
        return not _ANSWERS[lower]
    code = int(found[1]) if (found := _CODE.match(lower)) else _PHRASES.get(lower, 0)
    if code >= _ANSWERED:
        return code >= _FAILURES
    if _WITHOUT.search(lower):
        return False
    words = words_of(text.replace(".", " "))
    if any(map(_FAILED.match, words)):
        return True
    if any(map(_FINE.match, words)) and not (kind == "error" and lower == "true"):
        return False
    return True if kind == "error" else None


def _status(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _resolution(arrival_s: Floats) -> float:
    for each in _RESOLUTIONS:
        if (np.abs(arrival_s / each - np.round(arrival_s / each)) * each <= _SAME_S).all():
            return each
    return _SAME_S

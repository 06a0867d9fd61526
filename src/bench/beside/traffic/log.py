"""Read an access log: when each request came, how long it was, and what was left out."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from http import HTTPStatus
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bench.beside.traffic.otel import calls_of, is_otel
from bench.errors import BenchError, count_text, is_are, shown
from bench.table_file import Row, read_rows
from bench.workloads.trace import format_of, refuse_sums, unit_not_known
from bench.workloads.trace_times import SECONDS, TraceUnit, date_of, number_of, refuse_days, since_1970

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
#: What a column can be, and by what in a name that is guessed.
ROLES = {
    "arrival": r"time|date|created|start|arriv|(^|\W|_)ts$",
    "prompt": r"prompt|input|context|prefill|request tokens|tokens_?(in|evaluated)$",
    "output": r"completion|output|generat|response|answer|decode|candidates|token_size|tokens_?(out|predicted)$",
    "status": r"status|error|success|outcome|state$|cancel|fail",
    "end": r"(^|\W|_)(end|finish|completed)",
    "duration": r"duration|latency|elapsed|(^|\W|_)e2e|(total|response|request)_?time",
    "text": r"(^|\W)(prompt|messages|input)$",
}
#: Without these there is no traffic.
NEEDED = ("arrival", "prompt", "output")
_PART = re.compile(r"cache|reason|thought", re.IGNORECASE)  # of tokens that some providers count apart
_NO_COUNT = re.compile(r"cost|price|rate|ratio|budget|effort|time|latency|_ms$|_s$", re.IGNORECASE)
_UNIT = re.compile(r"_(s|ms|us|ns)$|(?<=[a-z])(Ms|Us|Ns)$")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SPANS = {"arrival": "start_ns:ns", "prompt": "input_tokens", "output": "output_tokens", "status": "status", "end": "end_ns:ns"}
_DEPTH = 5  # levels of objects in objects; convention
_ROWS = 1000  # first rows in which columns are looked for; convention
_YEARS = (2001, 2095)  # first and last year of a request; derived: those of numbers that are taken for seconds since 1970
# least and longest step back of a clock when summer time ends (s): half an hour to one; convention
_CLOCK_BACK = (1500.0, 3660.0)
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
            rows = f"{count_text(unplaced, 'row')} without a moment of arrival {is_are(unplaced)}"
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
        if (seconds := number_of(text)) is not None:
            return float(seconds)
        moment = date_of(text)
        if moment is None:
            raise BenchError(f"{option} {text}: neither seconds since the first request nor a date and time.")
        if self.began is None:
            raise BenchError(f"{option} {text}: arrivals of this log are not dates. Give seconds since the first request.")
        found = _since_1970(moment, self.zone)
        if math.isnan(found):
            raise BenchError(f"{option} {text}: before {_YEARS[0]} or after {_YEARS[1]}.")
        return found - self.began.timestamp()


def read_log(path: str, *, given: Mapping[str, str] | None = None, zone: tzinfo | None = None) -> Log:
    """The requests in a CSV, JSONL or Parquet file.

    Args:
        given: the columns of each role: one; several with + between, of counts to add up, or of statuses; and of moments a unit behind
            a colon (`start:ms`). Not needed of published traces and of spans. zone: of dates without one.

    Raises:
        BenchError: it cannot be read, columns or units are not known, or no row is a request with lengths. It has the line to write.
    """
    rows = read_rows(path, what="log")
    if not rows:
        raise BenchError(f"{path}: holds no requests.")
    spans, notes = is_otel(rows), list[str]()
    rows = _calls(path, rows) if spans else rows
    refuse_sums(path, rows)
    names = column_names(rows)
    columns = (_SPANS if spans else _published(rows)) | dict(given or {})
    if missing := [role for role in NEEDED if not columns.get(role)]:
        raise _guess(path, rows, names, missing)
    units = _split_units(columns, names)
    parts = {role: [name] if name in names else name.split("+") for role, name in columns.items() if name}
    for role, each in parts.items():
        if strange := [name for name in each if name not in names]:
            raise BenchError(f"{path}: --columns {role}={strange[0]}: no such column. Found: {', '.join(names)}.")
    values = {role: [list(map(cell(name), rows)) for name in each] for role, each in parts.items()}
    moments, dated = _moments(path, rows, "arrival", columns["arrival"], values["arrival"][0], units, zone, notes)
    prompt, output = (
        np.sum([_numbers(cells, absent=i > 0) for i, cells in enumerate(values[role])], axis=0) for role in NEEDED[1:]
    )
    failed, said = np.zeros(len(rows), dtype=bool), [None] * len(rows)
    for name, cells in zip(parts.get("status", ()), values.get("status", ()), strict=True):
        here = _failed(cells, name, notes)
        said = [each if now and not before else word for each, now, before, word in zip(cells, here, failed, said, strict=True)]
        failed |= here
    faults = [
        (failed, "a failure", said),
        (np.isnan(moments), "no moment of arrival", values["arrival"][0]),
        (_no_count(prompt), "no count of prompt tokens", values["prompt"][0]),
        (_no_count(output), "no count of answer tokens", values["output"][0]),
        (prompt < 1, "a prompt of 0 tokens", values["prompt"][0]),
        (output < 1, "an answer of 0 tokens", values["output"][0]),
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
    if "status" not in parts and (signs := [name for name in names if re.search(ROLES["status"], name, re.IGNORECASE)]):
        notes.append(f"All rows were counted as answered. Does {' or '.join(signs)} say which failed? --columns status=NAME.")
    order = np.flatnonzero(kept)[np.argsort(came, kind="stable")]
    arrival = moments[order] - moments[order[0]]
    at = _Arrivals(columns["arrival"], moments, dated, zone)
    return Log(
        path,
        len(rows),
        columns,
        arrival,
        prompt[order].astype(np.int64),
        output[order].astype(np.int64),
        datetime.fromtimestamp(float(moments[order[0]]), UTC) if dated else None,
        zone or UTC,
        None if (durations := _durations(path, rows, columns, values, units, at)) is None else durations[order],
        [_text(values["text"][0][i]) for i in order] if "text" in values else None,
        _resolution(arrival),
        left_out,
        notes,
    )


class _Arrivals(NamedTuple):
    """Arrivals as they were read: their column, moments (s), whether these count from 1970, and the zone of dates without one."""

    column: str
    moments: Floats
    dated: bool
    zone: tzinfo | None


def _durations(
    path: str, rows: Sequence[Row], columns: Mapping[str, str], values: Mapping[str, Sequence[Sequence[Any]]],
    units: Mapping[str, TraceUnit], at: _Arrivals,
) -> Floats | None:  # fmt: skip
    """From arrival to answer (s), NaN where not known; None where no column says it."""
    if "duration" in values:
        name = columns["duration"]
        if "duration" not in units:
            raise BenchError(f"{path}: the unit of {name} is not known. Say it: --columns duration={name}:ms.")
        return _numbers(values["duration"][0]) * float(SECONDS[units["duration"]])
    if "end" not in values:
        return None
    ends, dated = _moments(path, rows, "end", columns["end"], values["end"][0], units, at.zone, [])
    if at.dated != dated:
        raise BenchError(f"{path}: one of {at.column} and {columns['end']} holds dates, the other none. Leave end= out.")
    return np.where(ends >= at.moments, ends - at.moments, math.nan)


# Columns


def _published(rows: Sequence[Row]) -> dict[str, str]:
    """The columns of a published trace; none of another log."""
    form = format_of(rows[0].values.keys())
    if form is None:
        return {}
    found = {"arrival": form.arrival, "prompt": form.prompt, "output": form.output}
    numbers = _numbers([row.values.get(form.arrival) for row in rows])
    if form.unit is None or np.isnan(numbers).all():
        return found
    first, odd = float(np.nanmin(numbers)), form.whole and (numbers != np.round(numbers)).any()
    if odd or (first > 0 and form.unit not in (since_1970(first) or [form.unit])):
        return found  # names of another publisher, whose unit is not this one's
    return found | {"arrival": f"{form.arrival}:{form.unit}"}


def _split_units(columns: dict[str, str], names: Collection[str]) -> dict[str, TraceUnit]:
    """Units of moments by role, which are taken off the columns."""
    units: dict[str, TraceUnit] = {}
    for role in ("arrival", "end", "duration"):
        name, colon, unit = columns.get(role, "").rpartition(":")
        if colon and unit in get_args(TraceUnit) and columns[role] not in names:
            columns[role], units[role] = name, unit  # type: ignore[assignment] # one of them
    return units


def column_names(rows: Sequence[Row]) -> list[str]:
    """The columns of a table, those of nested objects with a dot between: `usage.prompt_tokens`."""
    return list(dict.fromkeys(name for row in rows[:_ROWS] for name in _flat(row.values)))


def _flat(values: Mapping[str, Any], ahead: str = "", depth: int = _DEPTH) -> Iterable[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and depth:
            yield from _flat(value, f"{ahead}{key}.", depth - 1)
        else:
            yield f"{ahead}{key}"


def cell(name: str) -> Callable[[Row], Any]:
    """What takes the value of a column from a row; None where it has none."""
    path = name.split(".")

    def take(row: Row) -> Any:
        if name in row.values:
            return row.values[name]
        value: Any = row.values
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    return take


def _guess(path: str, rows: Sequence[Row], names: Sequence[str], missing: Sequence[str]) -> BenchError:
    """The error of a log whose columns nobody named, with the line to write."""
    first = {
        name: next((value for row in rows[:_ROWS] if (value := cell(name)(row)) not in (None, "")), None) for name in names
    }
    counts = [name for name in names if number_of(first[name]) is not None and not _NO_COUNT.search(name)]
    found: dict[str, str] = {}
    for role, known in ROLES.items():
        choice = counts if role in ("prompt", "output") else [name for name in names if role != "text" or name not in counts]
        likely = [
            name
            for name in choice
            if re.search(known, name, re.IGNORECASE) and not _PART.search(name) and name not in found.values()
        ]
        likely.sort(key=lambda name: role in NEEDED[1:] and "token" not in name.lower())
        if role == "prompt":
            likely = [name for name in likely if not re.search(ROLES["output"], name, re.IGNORECASE)] or likely
        if likely:
            name = likely[0]
            unit = _UNIT.search(name) if role in ("arrival", "end", "duration") else None
            found[role] = f"{name}:{unit[0].strip('_').lower()}" if unit else name
    if ":" not in found.get("duration", ":"):
        del found["duration"]
    line = ",".join(f"{role}={found.get(role, 'NAME')}" for role in (*NEEDED, *(role for role in found if role not in NEEDED)))
    parts = [name for name in counts if _PART.search(name)]
    apart = f" Add {', '.join(parts)} with + where it is counted apart from prompts or answers (prompt=A+B)." if parts else ""
    wanted = " and ".join(missing)
    return BenchError(
        f"{path}: nothing says which column is its {wanted}. It may be: --columns {shlex.quote(line)}.{apart} "
        f"Found: {', '.join(names)}."
    )


# Moments


def _moments(
    path: str, rows: Sequence[Row], role: str, column: str, values: Sequence[Any], units: Mapping[str, TraceUnit | None],
    zone: tzinfo | None, notes: list[str],
) -> tuple[Floats, bool]:  # fmt: skip
    """Seconds of each row, NaN where there is no moment; and whether they are dates, counted from 1970."""
    unit = units.get(role)
    first = next((value for value in values if value not in (None, "")), None)
    if first is not None and number_of(first) is not None:
        numbers = _numbers(values)
        known = numbers[~np.isnan(numbers)]
        since = since_1970(float(known.min())) if known.min() > 0 else []
        unit = unit or (since[0] if since else None)
        if unit is None:
            words: dict[str, TraceUnit] = {f"--columns {role}={column}:{name}": name for name in ("s", "ms")}
            reason = "its numbers do not say it"
            raise unit_not_known(path, column, reason, "Say it", words, [Decimal(repr(float(x))) for x in known])
        seconds = numbers * float(SECONDS[unit])
        ends = [datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (_YEARS[0], _YEARS[1] + 1)]
        dates = (seconds >= ends[0]) & (seconds < ends[1])
        if dates.sum() * 2 <= len(known):
            return seconds, False
        return _placed(np.where(dates, seconds, math.nan), len(known), column, notes), True
    if unit is not None:
        raise BenchError(f"{path}: {column} holds dates, which have no unit. Leave :{unit} out.")
    dates_of = [date_of(value) for value in values]
    if not any(dates_of):
        raise BenchError(
            f"{path}: {column}: {shown(str(first), 40)} is no date and time that is read, and no number. Write it with the year "
            f"first, which no order of day and month confuses: 2026-11-28T16:45:00Z. Or name another column: --columns {role}=NAME."
        )
    refuse_days(path, column, dates_of)
    there = [date for date in dates_of if date]
    bare = [date for date in there if date.tzinfo is None]
    if bare and zone is None:
        if len(bare) < len(there):
            raise BenchError(f"{path}: {column}: some dates have a time zone, and others none. Say theirs: --time-zone NAME.")
        notes.append(f"Dates in {column} have no time zone; they were taken for UTC (--time-zone says another).")
    found = np.array([math.nan if date is None else _since_1970(date, zone) for date in dates_of])
    for row, date, moment in zip(rows, dates_of, found.tolist(), strict=True):
        if (
            date
            and not date.tzinfo
            and zone
            and moment != date.replace(tzinfo=zone, fold=1).timestamp()
            and not math.isnan(moment)
        ):
            raise BenchError(
                f"{path}: {row.place}: {column} {date} comes twice in {zone}, where summer time ends. Give dates with their offset: "
                "2026-10-25T02:30:00+02:00."
            )
    if bare and zone is None:
        _refuse_summer_time(path, rows, column, found)
    return _placed(found, len(there), column, notes), True


def _since_1970(date: datetime, zone: tzinfo | None) -> float:
    local = date if date.tzinfo else date.replace(tzinfo=zone or UTC)
    return local.timestamp() if _YEARS[0] <= date.year <= _YEARS[1] else math.nan


def _placed(found: Floats, known: int, column: str, notes: list[str]) -> Floats:
    if odd := known - int((~np.isnan(found)).sum()):
        rows, stands = ("1 row with a date", "stands") if odd == 1 else (f"{odd:,} rows with dates", "stand")
        notes.append(f"{rows} before {_YEARS[0]} or after {_YEARS[1]} in {column}, which {stands} for none.")
    return found


def _refuse_summer_time(path: str, rows: Sequence[Row], column: str, found: Floats) -> None:
    """Raises BenchError where arrivals without a zone are in order but for a step back by the hour of summer time, once a year."""
    known = np.flatnonzero(~np.isnan(found))
    if (np.diff(found[known]) < 0).sum() * 2 > len(known) - 1:
        known = known[::-1]  # the latest first, as consoles list them
    steps = np.diff(found[known])
    back = np.flatnonzero(steps <= -_CLOCK_BACK[0])
    if len(back) and len(back) <= 1 + np.ptp(found[known]) / (365 * 86_400) and (-steps[back] <= _CLOCK_BACK[1]).all():
        raise BenchError(
            f"{path}: {rows[known[back[0] + 1]].place}: {column} steps back by {-steps[back[0]] / 60:.0f} min, as clocks do when "
            "summer time ends. Say which time it is: --time-zone Europe/Berlin, say, or --time-zone UTC to leave it so."
        )


# Numbers and statuses


def _numbers(values: Sequence[Any], *, absent: bool = False) -> Floats:
    """Finite numbers; NaN for anything else. Args: absent: whether what is empty is 0."""
    found = (Decimal(0) if absent and value in (None, "") else number_of(value) for value in values)
    return np.array([math.nan if each is None else float(each) for each in found])


def _no_count(numbers: Floats) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.isnan(numbers) | (numbers != np.round(numbers)) | (np.abs(numbers) > _LONGEST)
    return found


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
    words = [word.lower() for word in _WORD.findall(text)]
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

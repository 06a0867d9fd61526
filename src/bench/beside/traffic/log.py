"""Read an access log: when each request came, how long it was, and what was left out."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from bench.beside.traffic.otel import calls_of, is_otel
from bench.errors import BenchError, first_names, listed, shown
from bench.table_file import Row, read_rows
from bench.workloads.trace import USERS, format_of, refuse_sums, unit_not_known
from bench.workloads.trace_times import SECONDS, TraceUnit, date_of, number_of, refuse_days, since_1970

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
#: What a column can be, and by what in a name that is guessed.
ROLES = {
    "arrival": r"time|date|created|start|arriv|when|(^|\W|_)ts$",
    "prompt": r"prompt|input|context|prefill|request tokens|tokens_?(in|evaluated)$|(^|\W|_)in$",
    "output": r"completion|output|generat|response|answer|decode|candidates|token_size|tokens_?(out|predicted)$|(^|\W|_)out$",
    "status": r"status|error|success|outcome|state$|cancel|fail|(^|\W|_)code$",
}
#: Without these there is no traffic.
NEEDED = ("arrival", "prompt", "output")
_PART = re.compile(r"cache|reason|thought", re.IGNORECASE)  # of tokens that some providers count apart
_NO_COUNT = re.compile(r"cost|price|rate|ratio|budget|effort|time|latency|status|_at$|_ms$|_s$", re.IGNORECASE)
_ONE_EACH = re.compile(r"(request|message|completion|generation)[._]?id$", re.IGNORECASE)  # of a request
_LATER = re.compile(r"response|updat|end|finish|first|complet", re.IGNORECASE)  # of moments, those that come after the arrival
_UNIT = re.compile(r"_(s|ms|us|ns)$|(?<=[a-z])(Ms|Us|Ns)$")
_DEPTH = 5  # levels of objects in objects; convention
_ROWS = 1000  # first rows in which columns are looked for; convention
_YEARS = (2001, 2095)  # first and last year of a request; derived: those of numbers that are taken for seconds since 1970
_LONGEST = 2**31  # tokens that no model's context has; convention
# How a status says a failure, or none. Of columns of errors, anything but "none" is one.
_CODE = re.compile(r"(?:http\S*[ :])?([2-9]\d\d)(?:\.0)?\b")  # an HTTP status, alone or ahead of its words
_FAILED = re.compile(
    r"error|\berr|fail|(?<!de)fault|time[ds]?[ _-]*out|cancel|abort|reject|refus|exception|denied|unavail|exceed|limited|too many"
    r"|throttl|invalid|overload|unauth|forbid|unsuccess|disconnect|reset|crash|drop|(\b|_)(false|not|bad)$"
)
_WITHOUT = re.compile(r"(?<![a-z])(no|not|without|0)[ _-]*(err|fail|exceed)")
_FINE = re.compile(r"(^|[\W_])(ok|okay|success\w*|succeeded|completed?|done|finished|true|none|null|unset|stop)($|[\W_])")
_NO, _YES = {"false", "no", "n", "f", "0", "0.0"}, {"true", "yes", "y", "t", "1", "1.0"}
_EMPTY = {"", "-", "none", "null", "nan", "n/a"}
_RESOLUTIONS = (60.0, 1.0, 0.1, 0.01, 1e-3)  # ticks that clocks of logs count in (s); convention
_SAME_S = 2e-6  # within which a moment lies on such a clock (s); derived: a float of seconds since 1970 is off by 0.24 µs


@dataclass(frozen=True)
class LeftOut:
    """Rows that are no requests with lengths. Attributes: why: after `rows with`. place, value: of the first."""

    why: str
    count: int
    place: str
    value: str


@dataclass(frozen=True)
class Log:
    """The requests of a log, in order of arrival.

    Attributes:
        path: the file. rows: in it, or in the part that is asked for. columns: which is what, by role.
        arrival_s: since the first (s). prompt_tokens, output_tokens: lengths.
        began: when the first came; None where arrivals are not dates. zone: for the hours of the day.
        resolution_s: that all arrivals are whole multiples of.
        left_out: rows without a moment or a length, or that failed. notes: what else a reader has to know.
        users: whose each request is, by a number from 0; None where no column says it.
    """

    path: str
    rows: int
    columns: Mapping[str, str]
    arrival_s: Floats
    prompt_tokens: Whole
    output_tokens: Whole
    began: datetime | None
    zone: tzinfo
    resolution_s: float
    left_out: Sequence[LeftOut] = ()
    notes: Sequence[str] = ()
    users: Whole | None = None

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


def read_log(
    path: str,
    *,
    given: Mapping[str, str] | None = None,
    zone: tzinfo | None = None,
    begin: str | None = None,
    end: str | None = None,
) -> Log:
    """The requests in a CSV, JSONL or Parquet file.

    Args:
        given: the columns of each role: one; several with + between, of counts to add up, or of statuses; and of moments a unit behind
            a colon (`start:ms`). Not needed of published traces and of spans. zone: of dates without one.
        begin, end: only requests from then on and before then: seconds since the log's first, or dates.

    Raises:
        BenchError: it cannot be read, columns or units are not known, or no row is a request with lengths. It has the line to write.
    """
    rows = read_rows(path, what="log")
    if not rows:
        raise BenchError(f"{path}: holds no requests.")
    if is_otel(rows):
        rows, columns = _calls(path, rows)
    else:
        columns = _published(rows)
    refuse_sums(path, rows)
    table = _Table(path, rows, {role: name for role, name in (columns | dict(given or {})).items() if name}, zone)
    cells, notes = table.cells, table.notes
    moments, dated = table.moments()
    prompt, output = (table.counts(role) for role in NEEDED[1:])
    failed, said = np.zeros(len(rows), dtype=bool), [""] * len(rows)
    if "status" in cells:
        failed = np.any([_failed(column, name, notes) for name, column in cells["status"].items()], axis=0)
        said = [", ".join(map(_status, each)) for each in zip(*cells["status"].values(), strict=True)]
    elif signs := [name for name in table.names if re.search(ROLES["status"], name, re.IGNORECASE)]:
        notes.append(
            f"All rows were counted as answered. Does {' or '.join(signs)} say which failed? --columns status={'+'.join(signs)}."
        )
    came, asked, spoken = (next(iter(cells[role].values())) for role in NEEDED)
    faults = [
        (failed, "a failure", said),
        (np.isnan(moments), "no moment of arrival", came),
        (np.isnan(prompt), "no count of prompt tokens", asked),
        (np.isnan(output), "no count of answer tokens", spoken),
        (prompt < 1, "a prompt of 0 tokens", asked),
        (output < 1, "an answer of 0 tokens", spoken),
    ]
    wrong = np.any([fault for fault, *_ in faults], axis=0)
    first = float(moments[~wrong].min()) if not wrong.all() else 0.0
    low, high = (_since(*each, first, dated, zone) for each in (("--from", begin, -math.inf), ("--to", end, math.inf)))
    rest = inside = ~((moments - first < low) | (moments - first >= high))  # with those whose moment is not known
    left_out = []
    for fault, why, values in faults:
        if len(lost := np.flatnonzero(rest & fault)):
            left_out.append(LeftOut(why, len(lost), rows[lost[0]].place, shown(str(values[lost[0]]), 40)))
        rest = rest & ~fault
    if wrong.all():
        reasons = "; ".join(f"{each.count} have {each.why} ({each.place}: {each.value})" for each in left_out)
        raise BenchError(f"{path}: none of {len(rows)} rows is a request with both lengths: {reasons}. See --columns.")
    if not rest.any():
        last = moments[~wrong].max() - first
        raise BenchError(f"{path}: no request in that part; the last came {last:g} s after the first.")
    if (np.diff(moments[rest]) < 0).any():
        notes.append("Rows are not in the order of their arrivals; they were sorted.")
    user = next((name for name in USERS if name in table.names), None)
    order = np.flatnonzero(rest)[np.argsort(moments[rest], kind="stable")]
    arrival = moments[order] - moments[order[0]]
    return Log(
        path,
        int(inside.sum()),
        table.columns,
        arrival,
        prompt[order].astype(np.int64),
        output[order].astype(np.int64),
        datetime.fromtimestamp(float(moments[order[0]]), UTC) if dated else None,
        zone or UTC,
        next((tick for tick in _RESOLUTIONS if (np.abs(arrival - tick * np.round(arrival / tick)) <= _SAME_S).all()), _SAME_S),
        left_out,
        notes,
        table.numbered(user, order) if user else None,
    )


class _Table:
    """A log's cells by role and column, and what its moments and counts are.

    Attributes:
        columns: by role, without units. unit: of arrivals. cells: by role and column.
    """

    def __init__(self, path: str, rows: Sequence[Row], columns: Mapping[str, str], zone: tzinfo | None) -> None:
        flat = [dict(_flat(row.values)) for row in rows]
        names = list(dict.fromkeys(name for values in flat[:_ROWS] for name in values))
        if missing := [role for role in NEEDED if role not in columns]:
            raise _guess(path, flat[:_ROWS], names, missing)
        self.path, self.flat, self.names, self.zone = path, flat, names, zone
        self.unit: TraceUnit | None
        self.columns, self.unit, self.notes = dict(columns), None, list[str]()
        self.cells: dict[str, dict[str, list[Any]]] = {}
        for role, text in columns.items():
            name, colon, unit = text.rpartition(":")
            if role == "arrival" and colon and unit in get_args(TraceUnit) and text not in names:
                self.columns[role], self.unit = name, unit  # type: ignore[assignment] # one of them
            parts = [self.columns[role]] if self.columns[role] in names else self.columns[role].split("+")
            if strange := [name for name in parts if name not in names]:
                raise BenchError(f"{path}: --columns {role}={strange[0]}: no such column. Found: {', '.join(names)}.")
            self.cells[role] = {name: [values.get(name) for values in flat] for name in parts}
        for name in list(filter(_ONE_EACH.search, names))[:1]:
            ids = [str(values[name]) for values in flat if values.get(name) not in (None, "")]
            if (count := len(set(ids))) < len(ids):
                self.notes.append(f"{name} has {count:,} values in {len(ids):,} rows: if each is one request, keep one row.")

    def numbered(self, column: str, order: Whole) -> Whole:
        """The values of a column as numbers: a trace tells users apart, and names none. One that is empty is a user of its own."""
        known: dict[Any, int] = {}
        said = [self.flat[place].get(column) for place in order]
        return np.array(
            [known.setdefault((i,) if each in (None, "") else str(each), len(known)) for i, each in enumerate(said)]
        )

    def counts(self, role: str) -> Floats:
        """Tokens, added up over a role's columns; NaN where that is no count."""
        first, *others = self.cells[role].values()
        found = np.sum([_numbers(first), *(_numbers(cells, absent=0.0) for cells in others)], axis=0)
        return np.where((found == np.round(found)) & (np.abs(found) <= _LONGEST), found, math.nan)

    def moments(self) -> tuple[Floats, bool]:
        """Seconds of each arrival, NaN where there is none; and whether they are dates, counted from 1970."""
        path, column, unit = self.path, self.columns["arrival"], self.unit
        values = next(iter(self.cells["arrival"].values()))
        first = next((value for value in values if value not in (None, "")), None)
        if number_of(first) is not None:
            numbers = _numbers(values)
            known = numbers[~np.isnan(numbers)]
            unit = unit or next(iter(since_1970(float(known.min()))), None)
            if unit is None:
                words: dict[str, TraceUnit] = {f"--columns arrival={column}:{name}": name for name in ("s", "ms")}
                reason = "its numbers do not say it"
                raise unit_not_known(path, column, reason, "Say it", words, [Decimal(repr(float(x))) for x in known])
            seconds = numbers * float(SECONDS[unit])
            ends = [datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (_YEARS[0], _YEARS[1] + 1)]
            dates = (seconds >= ends[0]) & (seconds < ends[1])
            dated = bool(dates.sum() * 2 > len(known))
            return (np.where(dates, seconds, math.nan) if dated else seconds), dated
        if unit is not None:
            raise BenchError(f"{path}: {column} holds dates, which have no unit. Remove :{unit}.")
        dates_of = [date_of(value) for value in values]
        there = [date for date in dates_of if date]
        if not there:
            raise BenchError(
                f"{path}: {column}: {shown(str(first), 40)} is neither a number nor a readable date and time. Write the year "
                "first, so that day and month cannot be confused: 2026-11-28T16:45:00Z. Or name another column: "
                "--columns arrival=NAME."
            )
        refuse_days(path, column, dates_of)
        bare = [date for date in there if date.tzinfo is None]
        if bare and self.zone is None:
            if len(bare) < len(there):
                raise BenchError(
                    f"{path}: {column}: some dates have a time zone, others have none. Give theirs: --time-zone NAME."
                )
            self.notes.append(f"Dates in {column} have no time zone; they were taken for UTC (--time-zone says another).")
        return np.array([math.nan if date is None else _since_1970(date, self.zone) for date in dates_of]), True


def _flat(values: Mapping[str, Any], ahead: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Cells by column, those of nested objects with a dot between: `usage.prompt_tokens`."""
    for key, value in values.items():
        if isinstance(value, Mapping) and depth:
            yield from _flat(value, f"{ahead}{key}.", depth - 1)
        else:
            yield f"{ahead}{key}", value


def _published(rows: Sequence[Row]) -> dict[str, str]:
    """The columns of a published trace; none of another log."""
    form = format_of(rows[0].values.keys())
    if form is None:
        return {}
    unit, numbers = "", _numbers([row.values.get(form.arrival) for row in rows])
    if form.unit and not np.isnan(numbers).all():
        since = since_1970(float(np.nanmin(numbers)))
        whole = not form.whole or (numbers == np.round(numbers)).all()
        # Else they are the names of another publisher, whose unit is not this one's.
        unit = f":{form.unit}" if whole and (not since or form.unit in since) else ""
    return {"arrival": form.arrival + unit, "prompt": form.prompt, "output": form.output}


def _calls(path: str, rows: Sequence[Row]) -> tuple[list[Row], dict[str, str]]:
    """The calls of models in spans of OpenTelemetry, and which column is what."""
    found = []
    for call in calls_of(path, rows):
        counts = {"input_tokens": call.prompt_tokens, "output_tokens": call.output_tokens}
        start = {"start_ns": int(call.start_s.scaleb(9))}
        found.append(Row(call.place, {**start, **counts, "status": "error" if call.failed else "ok"}))
    return found, {"arrival": "start_ns:ns", "prompt": "input_tokens", "output": "output_tokens", "status": "status"}


def _guess(path: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str], missing: Sequence[str]) -> BenchError:
    """The error of a log whose columns nobody named, with the line to write."""
    first = {name: next((value for row in rows if (value := row.get(name)) not in (None, "")), None) for name in names}
    counts = [name for name in names if number_of(first[name]) is not None and not _NO_COUNT.search(name)]
    counts.sort(key=lambda name: "token" not in name.lower())
    found: dict[str, str] = {}
    for role, pattern in ROLES.items():
        for name in counts if role in NEEDED[1:] else sorted(names, key=lambda x: role == "arrival" and bool(_LATER.search(x))):
            if re.search(pattern, name, re.IGNORECASE) and not _PART.search(name) and name not in found.values():
                unit = _UNIT.search(name) if role == "arrival" else None
                found[role] = f"{name}:{unit[0].strip('_').lower()}" if unit else name
                break
    line = ",".join(f"{role}={found.get(role, 'NAME')}" for role in dict.fromkeys((*NEEDED, *found)))
    parts = [name for name in counts if _PART.search(name)]
    apart = f" Add {', '.join(parts)} with + where it is counted apart from prompts or answers (prompt=A+B)." if parts else ""
    packed = [name for name in names if str(first[name]).startswith('{"')] if "=NAME" in line else []
    unpack = f"""jq -c '."{packed[0]}" | fromjson'""" if packed else ""
    within = f" {packed[0]} holds JSON as text: unpack it first, as {unpack} does." if packed else ""
    return BenchError(
        f"{path}: which columns hold {listed(missing)}? Perhaps: --columns {shlex.quote(line)}.{apart}{within} "
        f"Found: {', '.join(names)}."
    )


def _since_1970(date: datetime, zone: tzinfo | None) -> float:
    """Seconds; NaN of a date that stands for none, and of one that its zone's clock shows twice, when summer time ends, or never."""
    local = date if date.tzinfo else date.replace(tzinfo=zone or UTC)
    if not _YEARS[0] <= date.year <= _YEARS[1] or (
        local is not date and local.utcoffset() != local.replace(fold=1).utcoffset()
    ):
        return math.nan
    return local.timestamp()


def _since(option: str, text: str | None, default: float, first: float, dated: bool, zone: tzinfo | None) -> float:
    """Seconds since the first arrival."""
    if text is None:
        return default
    if (seconds := number_of(text)) is not None:
        return float(seconds)
    if (moment := date_of(text)) is None:
        raise BenchError(f"{option} {text}: neither seconds since the first request nor a date and time.")
    if not dated:
        raise BenchError(f"{option} {text}: arrivals of this log are not dates. Give seconds since the first request.")
    if math.isnan(found := _since_1970(moment, zone)):
        raise BenchError(
            f"{option} {text}: before {_YEARS[0]}, after {_YEARS[1]}, or ambiguous on {zone}'s clock. Give its UTC offset."
        )
    return found - first


def _numbers(values: Sequence[Any], *, absent: float = math.nan) -> Floats:
    """Finite numbers; NaN for anything else. Args: absent: for what is empty."""
    found = (absent if value in (None, "") else number_of(value) for value in values)
    return np.array([math.nan if each is None else float(each) for each in found])


def _failed(values: Sequence[Any], column: str, notes: list[str]) -> npt.NDArray[np.bool_]:
    texts = list(map(_status, values))
    said = {text: _says_failure(text, column.rpartition(".")[2].lower()) for text in dict.fromkeys(texts)}
    if unknown := [shown(text, 40) for text, failed in said.items() if failed is None]:
        notes.append(f"{column} {first_names(unknown, 5)}: not known as a failure; such requests were counted as answered.")
    return np.array([bool(said[text]) for text in texts])


def _says_failure(text: str, column: str) -> bool | None:
    """Whether a cell says that its request failed; None where it is not known."""
    lower, error = text.lower(), re.search(r"^err|(?<!no_)error|cancel|failed|failure", column) is not None
    if lower in _EMPTY or (error and lower in _NO):
        return False
    if re.search(r"(?<!un)success", column) and lower in _NO | _YES:
        return lower in _NO
    if code := _CODE.match(lower):
        return int(code[1]) >= 400  # source: RFC 9110, 15.5
    if _WITHOUT.search(lower):
        return False
    if _FAILED.search(lower):
        return True
    if _FINE.search(lower) and not (error and lower in _YES):
        return False
    return True if error else None


def _status(value: Any) -> str:
    return "" if value is None else str(value).strip()

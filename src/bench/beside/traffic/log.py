"""Read an access log: when each request came, how long it was, and what was left out."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from bench.errors import BenchError, listed, shown
from bench.fields import MOST_TOKENS
from bench.table_file import read_rows
from bench.workloads.trace import USERS, format_of, refuse_sums
from bench.workloads.trace_times import EPOCH, SECONDS, TraceUnit, date_of, date_s, number_of, refuse_days, since_1970

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
#: What a column can be, and by what in a name that is guessed.
ROLES = {
    "arrival": r"time|date|created|start|arriv|when|(^|\W|_)ts$",
    "prompt": r"prompt|input|context|prefill|request tokens|(^|\W|_)in$",
    "output": r"completion|output|generat|response|answer|decode|(^|\W|_)out$",
    "status": r"status|error|success|outcome|state$|cancel|fail|(^|\W|_)code$",
}
#: Without these there is no traffic.
NEEDED = ("arrival", "prompt", "output")
# No counts of tokens, or of those alone that some providers count apart.
_NO_COUNT = re.compile(r"cost|price|rate|ratio|time|latency|status|_at$|_ms$|_s$|cache|reason|thought", re.IGNORECASE)
_DEPTH = 5  # levels of objects in objects; convention
_ROWS = 1000  # first rows in which columns are looked for; convention
_CODE = re.compile(r"(?:http\S*[ :])?([2-9]\d\d)\b")  # an HTTP status, alone or ahead of its words
_FAILED = re.compile(
    r"error|fail|time[d_ -]?.?out|cancel|abort|reject|refus|exception|denied|unavail|too many|limited|unsuccess|false"
)
_NONE = {"", "-", "none", "null", "nan", "n/a", "false", "no", "0", "0.0"}  # what says that there was no failure


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
        left_out: rows without a moment or a length, or that failed. note: what else a reader has to know; None for nothing.
        users: whose each request is, by a number from 0; None where no column says it.
    """

    path: str
    rows: int
    columns: Mapping[str, str]
    arrival_s: Floats
    prompt_tokens: Whole
    output_tokens: Whole
    left_out: Sequence[LeftOut] = ()
    note: str | None = None
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


def read_log(path: str, *, given: Mapping[str, str] | None = None, begin: str | None = None, end: str | None = None) -> Log:
    """The requests in a CSV, JSONL or Parquet file.

    Args:
        given: the columns of each role: one; several with + between, of counts to add up, or of statuses; and of moments a unit behind
            a colon (`start:ms`). Not needed of published traces.
        begin, end: only requests from then on and before then: seconds since the log's first, or dates.

    Raises:
        BenchError: it cannot be read, columns or units are not known, or no row is a request with lengths. It has the line to write.
    """
    rows = read_rows(path, what="log")
    if not rows:
        raise BenchError(f"{path}: holds no requests.")
    refuse_sums(path, rows)
    flat = [dict(_flat(row.values)) for row in rows]
    names = list(dict.fromkeys(name for values in flat[:_ROWS] for name in values))
    form = format_of(rows[0].values.keys())
    published = {"arrival": form.arrival, "prompt": form.prompt, "output": form.output} if form else {}
    columns = {role: name for role, name in (published | dict(given or {})).items() if name}
    if missing := [role for role in NEEDED if role not in columns]:
        raise _guess(path, flat[:_ROWS], names, missing)
    columns["arrival"], unit = _with_unit(columns["arrival"], names)
    cells: dict[str, dict[str, list[Any]]] = {"status": {}}
    for role, text in columns.items():
        parts = [text] if text in names else text.split("+")
        if strange := [name for name in parts if name not in names]:
            raise BenchError(f"{path}: --columns {role}={strange[0]}: no such column. Found: {', '.join(names)}.")
        cells[role] = {name: [values.get(name) for values in flat] for name in parts}
    came, asked, spoken = (next(iter(cells[role].values())) for role in NEEDED)
    numbers = _numbers(came)
    # Numbers with a fraction are another publisher's, whose names are the same.
    if form and not unit and columns["arrival"] == form.arrival and not (form.whole and (numbers != np.round(numbers)).any()):
        unit = form.unit
    moments = _moments(path, columns["arrival"], came, numbers, unit)
    prompt, output = (_counts(cells[role]) for role in NEEDED[1:])
    said = [*zip(*cells["status"].values(), strict=True)] or [()] * len(rows)
    failed = np.array([any(map(_failed, each, cells["status"])) for each in said])
    faults = (
        (failed, "a failure", [", ".join(map(str, each)) for each in said]),
        (np.isnan(moments), "no moment of arrival", came),
        (np.isnan(prompt), "no count of prompt tokens", asked),
        (np.isnan(output), "no count of answer tokens", spoken),
        (prompt < 1, "a prompt of 0 tokens", asked),
        (output < 1, "an answer of 0 tokens", spoken),
    )
    sound = ~np.any([fault for fault, *_ in faults], axis=0)
    first = float(moments[sound].min()) if sound.any() else 0.0
    low, high = _since("--from", begin, first), _since("--to", end, first)
    outside = (moments - first < low) | (moments - first >= high)  # not those whose moment is not known
    rest, left_out = ~outside, list[LeftOut]()
    for fault, why, values in faults:
        if len(lost := np.flatnonzero(rest & fault)):
            left_out.append(LeftOut(why, len(lost), rows[lost[0]].place, shown(str(values[lost[0]]), 40)))
        rest = rest & ~fault
    if not rest.any():
        reasons = "; ".join(f"{each.count} have {each.why} ({each.place}: {each.value})" for each in left_out)
        raise BenchError(
            f"{path}: no request with both lengths in it, or in that part: {reasons or '--from, --to'}. See --columns."
        )
    order = np.flatnonzero(rest)[np.argsort(moments[rest], kind="stable")]
    arrival = moments[order] - moments[order[0]]
    signs = [name for name in names if re.search(ROLES["status"], name, re.IGNORECASE)]
    user = next((name for name in USERS if name in names), None)
    return Log(
        path=path,
        rows=int((~outside).sum()),
        columns=columns,
        arrival_s=arrival,
        prompt_tokens=prompt[order].astype(np.int64),
        output_tokens=output[order].astype(np.int64),
        left_out=left_out,
        note=f"All rows were counted as answered. Does {' or '.join(signs)} say which failed? --columns status={'+'.join(signs)}."
        if signs and "status" not in columns
        else None,
        users=_numbered([flat[place].get(user) for place in order]) if user else None,
    )


def _numbered(values: Sequence[Any]) -> Whole:
    """Values as numbers: a trace tells users apart, and names none. One that is empty is a user of its own."""
    known: dict[Any, int] = {}
    return np.array([known.setdefault((i,) if each in (None, "") else str(each), len(known)) for i, each in enumerate(values)])


def _flat(values: Mapping[str, Any], ahead: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Cells by column, those of nested objects with a dot between: `usage.prompt_tokens`."""
    for key, value in values.items():
        if isinstance(value, Mapping) and depth:
            yield from _flat(value, f"{ahead}{key}.", depth - 1)
        else:
            yield f"{ahead}{key}", value


def _guess(path: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str], missing: Sequence[str]) -> BenchError:
    """The error of a log whose columns nobody named, with the line to write."""
    counts = [
        name for name in names if any(number_of(row.get(name)) is not None for row in rows) and not _NO_COUNT.search(name)
    ]
    counts.sort(key=lambda name: "token" not in name.lower())
    found: dict[str, str] = {}
    for role, pattern in ROLES.items():
        among = (name for name in (counts if role in NEEDED[1:] else names) if name not in found.values())
        if name := next((each for each in among if re.search(pattern, each, re.IGNORECASE)), None):
            found[role] = name
    line = ",".join(f"{role}={found.get(role, 'NAME')}" for role in dict.fromkeys((*NEEDED, *found)))
    return BenchError(
        f"{path}: which columns hold {listed(missing)}? Perhaps: --columns {shlex.quote(line)}. Counts of several columns are added "
        f"with + (prompt=A+B). Found: {', '.join(names)}."
    )


def _with_unit(column: str, names: Sequence[str]) -> tuple[str, TraceUnit | None]:
    """The column of arrivals and the unit that stands behind it."""
    name, colon, unit = column.rpartition(":")
    has_unit = colon and unit in get_args(TraceUnit) and column not in names
    return (name, cast("TraceUnit", unit)) if has_unit else (column, None)


def _moments(path: str, column: str, values: Sequence[Any], numbers: Floats, unit: TraceUnit | None) -> Floats:
    """Seconds of each arrival, of dates since 1970; NaN where there is none. Args: numbers: among the values."""
    first = next((value for value in values if value not in (None, "")), None)
    if number_of(first) is not None:
        unit = unit or next(iter(since_1970(float(np.nanmin(numbers)))), None)
        if unit is None:
            raise BenchError(
                f"{path}: the unit of {column} is not known: say it, as --columns arrival={column}:s, or {column}:ms."
            )
        return _ours(numbers * float(SECONDS[unit]))
    dates = [date_of(value) for value in values]
    if not any(dates):
        raise BenchError(
            f"{path}: {column}: {shown(str(first), 40)} is neither a number nor a readable date and time. Write the year first, so "
            "that day and month cannot be confused: 2026-11-28T16:45:00Z. Or name another column: --columns arrival=NAME."
        )
    refuse_days(path, column, dates)
    return _ours(np.array([math.nan if (seconds := date_s(date)) is None else float(seconds) for date in dates]))


def _ours(moments: Floats) -> Floats:
    """Without those that stand for none, such as 0 beside dates."""
    ours = (moments >= EPOCH[0]) & (moments < EPOCH[1])
    return np.where(ours, moments, math.nan) if 2 * ours.sum() > (~np.isnan(moments)).sum() else moments


def _since(option: str, text: str | None, first: float) -> float:
    """Seconds since the first arrival; NaN where none is asked for."""
    seconds, moment = (None, None) if text is None else (number_of(text), date_s(text))
    if text is not None and seconds is None and moment is None:
        raise BenchError(f"{option} {text}: neither seconds since the first request nor a date and time.")
    return float(seconds) if seconds is not None else float(moment) - first if moment is not None else math.nan


def _counts(columns: Mapping[str, Sequence[Any]]) -> Floats:
    """Tokens, added up over a role's columns; NaN where that is no count."""
    first, *others = columns.values()
    found = np.sum([_numbers(first), *(_numbers(cells, absent=0.0) for cells in others)], axis=0)
    return np.where((found == np.round(found)) & (np.abs(found) <= MOST_TOKENS), found, math.nan)


def _numbers(values: Sequence[Any], *, absent: float = math.nan) -> Floats:
    """Finite numbers; NaN for anything else. Args: absent: for what is empty."""
    found = (absent if value in (None, "") else number_of(value) for value in values)
    return np.array([math.nan if each is None else float(each) for each in found])


def _failed(value: Any, column: str) -> bool:
    """Whether a cell says that its request failed, by an HTTP status or a word; in a column of errors by anything but none."""
    text, column = "" if value is None else str(value).strip().lower(), column.lower()
    if "success" in column and text in ("false", "no", "0"):
        return True
    if text in _NONE:
        return False
    if code := _CODE.match(text):
        return int(code[1]) >= 400  # source: RFC 9110, 15.5
    return bool(_FAILED.search(text) or re.search("err|cancel|fail", column))

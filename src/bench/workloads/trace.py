"""A trace of requests to replay: when each arrived or which it followed, its lengths, and what its prompt shares with others."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, Protocol

from bench.errors import BenchError, shown
from bench.fields import MOST_TOKENS
from bench.plugins import plugged
from bench.table_file import Row, read_rows
from bench.workloads.trace_times import SECONDS, TraceUnit, date_of, date_s, number_of, refuse_days, since_1970

# Columns that count the requests of a row, written without capitals and marks.
_COUNTS = r"(num|n|total|model|api|successful)*(requests|calls)(count)?|(request|call)?count"
#: Columns that say whose a request is.
USERS = ("user", "user_id", "session_id", "conversation_id", "chat_id", "Session ID")


@dataclass(frozen=True)
class TraceRequest:
    """One line of a trace.

    Attributes:
        arrival_s: since the first request (s); None where it follows another. prompt_tokens, output_tokens: its lengths.
        blocks: numbers of its prompt's blocks, each of `block_tokens` but for the last: two prompts share those whose numbers are the
            same, and nothing else. Empty where prompts share nothing.
        after: places of the requests that it follows, among those that `read_trace` returns: it waits for all. after_s: from the last
            one's end to its own start (s). root: place of the request with which its session begins. user: whose it is, where a column
            says it.
    """

    arrival_s: float | None
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    after: tuple[int, ...] = ()
    after_s: float = 0.0
    root: int = 0
    user: str | None = None


class Format(NamedTuple):
    """A published trace's columns.

    Attributes:
        publisher: who defines it. unit: of numeric arrivals, None where publishers differ, or have dates.
        with_: further columns that it is known by. whole: whether the unit holds for whole numbers alone.
        block: tokens of a block that one of its `hash_ids` names; None where it has none, or the column `block_tokens` says it.
    """

    publisher: str
    arrival: str
    prompt: str
    output: str
    unit: TraceUnit | None
    with_: tuple[str, ...] = ()
    whole: bool = False
    block: int | None = None

    def __str__(self) -> str:
        return f"{', '.join(self[1:4] + self.with_)}{f' ({self.publisher})' if self.publisher else ''}"


_COMMON = ("timestamp", "input_length", "output_length")
_OURS = Format("", "arrival_s", "prompt_tokens", "output_tokens", "s")  # whose requests may follow others
# Each by its publisher's own definition; of several that fit, the first. The columns of _COMMON have three meanings: Mooncake's and
# AIPerf's are in milliseconds, Bailian's and GuideLLM's (docs/guides/datasets.md) in seconds, those of vLLM's timed-trace (pull request
# 39795) in either.
_FORMATS = (
    _OURS,
    # alibaba-edu/qwen-bailian-usagetraces-anon, README: seconds since the trace's start, blocks of 16 tokens.
    Format("Bailian", *_COMMON, "s", ("chat_id", "turn"), block=16),
    # kvcache-ai/Mooncake, FAST25-release/traces: milliseconds, whole; blocks of 512 tokens.
    Format("Mooncake", *_COMMON, "ms", ("hash_ids",), whole=True, block=512),
    Format("", *_COMMON, None),
    # Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and later.
    Format("Azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", None),
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
def read_trace(path: str, unit: TraceUnit | None = None, block: int | None = None) -> tuple[TraceRequest, ...]:
    """The requests in a CSV, JSONL or Parquet file, in order of arrival; those that follow another stand behind the session's first.

    Args:
        unit: of the arrivals, in place of the format's own. block: tokens of a block that an id in `hash_ids` names, in place of the
            format's own; 0: prompts share nothing.

    Raises:
        BenchError: the file is missing or broken, lacks a column, a row is not a request, or the arrivals' unit is not known.
    """
    rows, form = _read(path, unit)
    follows = _follows(path, rows, form.arrival) if form is _OURS else [[] for _ in rows]
    first = [row for row, after in zip(rows, follows, strict=True) if not after]
    arrivals = _arrivals(path, first, form, unit) if first else []
    moments = {row.place: float(moment - min(arrivals)) for row, moment in zip(first, arrivals, strict=True)}
    user = next((name for name in USERS if name in rows[0].values), "")
    requests = [
        TraceRequest(
            moments.get(row.place),
            _tokens(path, row, form.prompt),
            _tokens(path, row, form.output),
            after=tuple(after),
            after_s=_wait(path, row, after),
            user=str(row.values[user]) if _given(row, user) else None,
        )
        for row, after in zip(rows, follows, strict=True)
    ]
    return _in_order(path, rows, _with_blocks(path, rows, requests, form, block))


def thinned(requests: Sequence[TraceRequest], every: int = 1, longest: int | None = None) -> tuple[TraceRequest, ...]:
    """The requests of each `every`-th user, or session where nothing says whose they are, in the order in which they come.

    Args:
        longest: to how many tokens prompts and answers are cut; None: as they are.
    """
    users: dict[str | int, int] = {}
    kept: dict[int, int] = {}
    for place, request in enumerate(requests):
        number = users.setdefault(requests[request.root].user or request.root, len(users))
        if number % every == 0:
            kept[place] = len(kept)
    most = longest or MOST_TOKENS
    return tuple(
        replace(
            x,
            prompt_tokens=min(x.prompt_tokens, most),
            output_tokens=min(x.output_tokens, most),
            blocks=x.blocks[: -(-min(x.prompt_tokens, most) // x.block_tokens)] if x.blocks else (),
            after=tuple(kept[before] for before in x.after),
            root=kept[x.root],
        )
        for x in (requests[place] for place in kept)
    )


@cache
def shared_block(path: str) -> int | None:
    """Tokens of a block of a published trace's `hash_ids`; None where it has none, or says it itself."""
    rows, form = _read(path)
    return form.block if any(row.values.get("hash_ids") for row in rows) else None


class Converter(Protocol):
    """What makes rows of our own format of a trace in another form: an entry point `trace.NAME` in `saturate.plugins`.

    Attributes:
        what: it reads, for messages.
    """

    what: str

    def reads(self, lines: Sequence[Row]) -> bool: ...

    def rows(self, path: str, lines: Sequence[Row]) -> list[Row]: ...


@cache
def _converters() -> Mapping[str, Converter]:
    return {name: each() for name, each in plugged("trace", ()).items()}


def _converter(rows: Sequence[Row]) -> str | None:
    """What reads a trace that is in no format of columns; None where none does."""
    if not rows or format_of(rows[0].values.keys()):
        return None
    return next((name for name, each in _converters().items() if each.reads(rows)), None)


@cache
def converted_by(path: str) -> str | None:
    """The name of the form that a trace has, of those that are converted; None of others."""
    return _converter(read_rows(path, what="trace"))


def _read(path: str, unit: TraceUnit | None = None) -> tuple[Sequence[Row], Format]:
    rows = read_rows(path, what="trace")
    if name := _converter(rows):
        rows = _converters()[name].rows(path, rows)
        if unit:
            raise BenchError(f"{path}: its times have their own unit. Remove trace_unit.")
    if not rows:
        raise BenchError(f"{path}: holds no requests.")
    refuse_sums(path, rows)
    columns = rows[0].values.keys()
    if form := format_of(columns):
        return rows, form
    known = "; or ".join([*map(str, _FORMATS), *(each.what for each in _converters().values())])
    raise BenchError(f"{path}: a trace has the columns {known}. Found: {', '.join(map(str, columns))}.")


def refuse_sums(path: str, rows: Sequence[Row]) -> None:
    """Refuse rows that count several requests each, such as a provider's usage by the minute."""
    most: dict[str, Decimal] = {}
    for row in rows:
        inner = row.values.get("results")
        for values in (row.values, *(inner if isinstance(inner, list) else ())):
            for name in filter(_counts_requests, values if isinstance(values, Mapping) else ()):
                most[name] = max(number_of(values[name]) or Decimal(0), most.get(name, Decimal(0)))
    for name, count in most.items():
        if count > 1:
            raise BenchError(
                f"{path}: {name} is {count:f} in a row: such rows sum several requests, and do not show when each came or how long it "
                f"was. Export a row for each request; if {name} is something else, remove that column."
            )


@cache
def _counts_requests(name: Any) -> bool:
    return re.fullmatch(_COUNTS, re.sub("[^a-z]", "", str(name).lower())) is not None


def _with_blocks(
    path: str, rows: Sequence[Row], requests: Sequence[TraceRequest], form: Format, block: int | None
) -> Sequence[TraceRequest]:
    """Without ids, requests that follow others need blocks too, each its own: else the prompts of a session would begin alike."""
    ids = [[] if block == 0 else _hash_ids(path, row) for row in rows]
    if not any(ids) and not any(request.after for request in requests):
        return requests
    numbers: dict[Hashable, int] = {}
    found = []
    for row, request, names in zip(rows, requests, ids, strict=True):
        size = request.prompt_tokens
        if names:
            size = block or form.block or (_tokens(path, row, "block_tokens") if _given(row, "block_tokens") else 0)
            whole, rest = divmod(request.prompt_tokens, size) if size else (0, 0)
            if len(names) not in (whole, whole + bool(rest)):
                blocks = f"which has {whole + bool(rest)} blocks of {size}"
                fault = f"{len(names)} ids do not fit a prompt of {request.prompt_tokens} tokens, {blocks}"
                raise BenchError(
                    f"{path}: {row.place}, hash_ids: {fault if size else 'the tokens in a block are not known'}. Give the length of a "
                    "block as trace_block in the workload, or as a column block_tokens; with 0 prompts share nothing."
                )
        found.append(replace(request, blocks=chained(numbers, names, request.prompt_tokens, size), block_tokens=size))
    return found


def chained(numbers: dict[Hashable, int], ids: Sequence[int | str], tokens: int, size: int) -> tuple[int, ...]:
    """Numbers of a prompt's blocks. Two prompts have the same number at a place if all of their ids up to there are the same, and only
    then; what no id names is shared with no other prompt.

    An id by itself says too little: Bailian hashes each block alone, so one that comes again behind another beginning keeps its id, and
    no prefix cache could serve it there.

    Args:
        numbers: of all prompts so far, which these are added to. ids: of its blocks, all or all but the last, which may be cut short.
        tokens: of the prompt. size: tokens of a block.
    """
    before: Hashable = ("of", size)
    found = []
    for name in [*ids, *(object() for _ in range(-(-tokens // size) - len(ids)))]:
        before = numbers.setdefault((before, name), len(numbers))
        found.append(before)
    return tuple(found)


def _in_order(path: str, rows: Sequence[Row], requests: Sequence[TraceRequest]) -> tuple[TraceRequest, ...]:
    """Sessions in the order of their arrival, each request behind those that it follows.

    Requests that follow the same one, or are followed by the same one, are of one session.
    """
    try:
        order = list(TopologicalSorter({i: x.after for i, x in enumerate(requests)}).static_order())
    except CycleError as error:
        raise _wrong(
            path, rows[error.args[1][0]], "parent", "follows the request itself, by way of others or at once"
        ) from None
    begins: dict[int, float] = {}
    roots: dict[int, int] = {}
    for i in order:
        x = requests[i]
        begins[i] = max((begins[before] for before in x.after), default=x.arrival_s or 0.0) + x.after_s
        joined = {roots[before] for before in x.after} or {i}
        roots[i] = min(joined, key=begins.__getitem__)
        if len(joined) > 1:
            roots |= {j: roots[i] for j, root in roots.items() if root in joined}
    places = {i: place for place, i in enumerate(sorted(order, key=lambda i: (begins[roots[i]], roots[i], begins[i])))}
    return tuple(
        replace(requests[i], after=tuple(places[before] for before in requests[i].after), root=places[roots[i]]) for i in places
    )


def format_of(columns: Collection[str]) -> Format | None:
    """The published format that has such columns; requests of ours may follow a parent, and have no moment."""
    has = {*columns}
    return next((x for x in _FORMATS if {*x[1:4], *x.with_} <= has or (x is _OURS and {*x[2:4], "parent"} <= has)), None)


def _arrivals(path: str, rows: Sequence[Row], form: Format, unit: TraceUnit | None) -> list[Decimal]:
    """Seconds from any zero, of each row."""
    column = form.arrival
    values = [row.values.get(column) for row in rows]
    dates = number_of(values[0]) is None and values[0] not in (None, "")
    wanted = "a date and time, as 2023-11-16 18:15:46.68" if dates else "a number"
    found = [date_s(value) if dates else number_of(value) for value in values]
    if None in found:
        raise _wrong(path, rows[found.index(None)], column, f"is not {wanted}")
    moments = [value for value in found if value is not None]
    if not dates:
        seconds = SECONDS[unit or _known_unit(path, form, moments)]
        return [number * seconds for number in moments]
    if unit is not None:
        raise BenchError(f"{path}: {column} holds dates, which need no unit. Remove trace_unit.")
    refuse_days(path, column, [*map(date_of, values)])
    return moments


def _known_unit(path: str, form: Format, numbers: Sequence[Decimal]) -> TraceUnit:
    dated = since_1970(min(numbers))
    if form.unit and (not dated or form.unit in dated) and not (form.whole and not all(map(_whole, numbers))):
        return form.unit
    hint = f"; in {dated[0]} it is a date of our time" if dated else ""
    raise BenchError(
        f"{path}: the unit of {form.arrival} is not known: the first is {min(numbers):f}, and publishers of such columns give dates, "
        f"seconds or whole milliseconds{hint}. Say it in the workload, as trace_unit: s, or ms."
    )


def _tokens(path: str, row: Row, column: str) -> int:
    count = number_of(row.values.get(column))
    if count is None or not _whole(count):
        raise _wrong(path, row, column, "is not a whole number of tokens")
    if count > MOST_TOKENS:
        raise _wrong(path, row, column, f"is more than {MOST_TOKENS:,} tokens. Name the column that has tokens")
    if count < 1:
        raise _wrong(path, row, column, "is less than 1 token. Remove the row")
    return int(count)


def _wrong(path: str, row: Row, column: str, problem: str) -> BenchError:
    value = row.values.get(column)
    what = f"{shown(str(value), 60)} {problem}" if value not in (None, "") else "is empty"
    return BenchError(f"{path}: {row.place}, {column}: {what}.")


def _whole(number: Decimal) -> bool:
    return number == number.to_integral_value()


def _follows(path: str, rows: Sequence[Row], arrival: str) -> list[list[int]]:
    """Of each row, the places of the rows that it follows. Args: arrival: the column with moments, which those that follow lack."""
    places: dict[str, int] = {}
    for i, row in enumerate(rows):
        if _given(row, "id") and places.setdefault(str(row.values["id"]), i) != i:
            raise _wrong(path, row, "id", f"is that of {rows[places[str(row.values['id'])]].place} too")
    found = []
    for row in rows:
        value = _list(row.values["parent"]) if _given(row, "parent") else []
        names = [str(name) for name in (value if isinstance(value, list) else [value])]
        if strange := [name for name in names if name not in places]:
            raise _wrong(path, row, "parent", f"names {strange[0]!r}, which is no request's id")
        if names and _given(row, arrival):
            raise _wrong(path, row, arrival, "is a moment, and the request follows a parent. Remove one of them")
        found.append([*dict.fromkeys(places[name] for name in names)])
    return found


def _wait(path: str, row: Row, after: Sequence[int]) -> float:
    """From the last answer that a request follows to its own start (s)."""
    if not _given(row, "after_s"):
        return 0.0
    seconds = number_of(row.values["after_s"])
    if not after or seconds is None or seconds < 0:
        raise _wrong(path, row, "after_s", "is not 0 or more seconds from the answer to a parent")
    return float(seconds)


def _given(row: Row, column: str) -> bool:
    return row.values.get(column) not in (None, "", [], "[]")


def _hash_ids(path: str, row: Row) -> list[int | str]:
    """The ids in a cell: a list of numbers or texts, or such a list as JSON; none where it is empty."""
    if not _given(row, "hash_ids"):
        return []
    names = _list(row.values["hash_ids"])
    if not isinstance(names, list) or any(isinstance(name, bool) or not isinstance(name, int | str) for name in names):
        raise _wrong(path, row, "hash_ids", "is not a list of ids, such as [46, 47]")
    return names


def _list(value: Any) -> Any:
    """A list, of a CSV file too, whose cells are texts; else the value itself."""
    if isinstance(value, str) and value.startswith("["):
        with suppress(ValueError):
            return json.loads(value)
    return value

"""Which column of an access log is what, by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.errors import BenchError
from bench.study.trace_times import TraceUnit
from bench.table_file import Row

#: What a column can be, and the names by which it is known, written without capitals, marks and unit.
ROLES: dict[str, frozenset[str]] = {
    "arrival": frozenset(
        (
            "timestamp",
            "time",
            "ts",
            "datetime",
            "date",
            "created",
            "createdat",
            "start",
            "starttime",
            "startedat",
            "arrival",
            "arrivaltime",
            "arrivaltimestamp",
            "arrivedat",
            "requestedat",
            "requesttimestamp",
            "receivedat",
            "startunix",
            "timestampstartunix",
        )
    ),
    "prompt": frozenset(
        (
            "prompttokens",
            "inputtokens",
            "contexttokens",
            "requesttokens",
            "nprompt",
            "nprompttokens",
            "numprompttokens",
            "numinputtokens",
            "numprefilltokens",
            "ninputtokens",
            "prompttokencount",
            "inputtokencount",
            "tokensprompt",
            "tokensin",
            "promptlen",
            "inputlen",
            "inputlength",
            "promptsize",
            "tokensevaluated",
        )
    ),
    "output": frozenset(
        (
            "completiontokens",
            "outputtokens",
            "generatedtokens",
            "responsetokens",
            "noutput",
            "ncompletion",
            "ngenerated",
            "noutputtokens",
            "numoutputtokens",
            "ncompletiontokens",
            "numcompletiontokens",
            "numgeneratedtokens",
            "numdecodetokens",
            "completiontokencount",
            "outputtokencount",
            "candidatestokencount",
            "tokenscompletion",
            "tokensout",
            "tokenspredicted",
            "generationtokens",
            "outputlen",
            "outputlength",
            "tokensize",
        )
    ),
    "status": frozenset(
        (
            "status",
            "statuscode",
            "httpstatus",
            "httpstatuscode",
            "responsestatus",
            "error",
            "success",
            "outcome",
        )
    ),
    "end": frozenset(
        (
            "end",
            "endtime",
            "endedat",
            "finishedat",
            "finishtime",
            "completedat",
        )
    ),
    "duration": frozenset(
        (
            "duration",
            "latency",
            "elapsed",
            "elapsedtime",
            "e2e",
            "e2elatency",
            "responsetime",
            "requestduration",
            "totaltime",
            "requesttime",
        )
    ),
    "text": frozenset(
        (
            "prompt",
            "messages",
            "input",
        )
    ),
}
#: Without these there is no traffic.
NEEDED = ("arrival", "prompt", "output")
_COUNTS = {"prompt": ("prompt", "input", "context"), "output": ("completion", "output", "response", "answer")}  # if numbers
_UNITS: dict[str, TraceUnit] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "micros", "microseconds"), "us"),
    **dict.fromkeys(("ns", "nanos", "nanoseconds"), "ns"),
}
_APART = {
    "cachereadinputtokens",
    "cachecreationinputtokens",
}  # what Anthropic's `input_tokens` leave out; source: its Messages API
_WITHIN = "gen_ai."  # OpenTelemetry's names, whose `input_tokens` hold the cached ones; source: its GenAI conventions
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_DEPTH = 5  # levels of objects in objects; convention
_ROWS = 1000  # first rows in which nested columns are looked for; convention


def column_names(rows: Sequence[Row]) -> list[str]:
    """The columns of a table, those of nested objects with a dot between: `usage.prompt_tokens`."""
    names = dict.fromkeys(name for row in rows[:_ROWS] for name in _flat(row.values))
    return list(names)


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


def unit_in_name(name: str) -> TraceUnit | None:
    """The unit of time that a name ends in, as `arrival_s` and `startMs` do."""
    return _UNITS.get(_words(name)[-1]) if len(_words(name)) > 1 else None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name.rpartition(".")[2])] or [name]


def _key(name: str) -> str:
    words = _words(name)
    return "".join(words[:-1] if len(words) > 1 and words[-1] in _UNITS else words)


def columns_of(path: str, rows: Sequence[Row], given: Mapping[str, str]) -> dict[str, str]:
    """The column of each role that the log has.

    Args:
        given: columns that the user names, by role; an empty name: none has that role.

    Raises:
        BenchError: a needed one is not found, one that is named is not there, or several could be it.
    """
    names = column_names(rows)
    for role, name in given.items():
        if name and name not in names:
            raise BenchError(f"{path}: --columns {role}={name}: no such column. Found: {', '.join(names)}.")
    found = dict(given)
    for role, known in ROLES.items():
        if role in found or role == "status":
            continue
        likely = [name for name in names if _key(name) in known and name not in given.values()]
        likely = likely or [name for name in names if _key(name) in _COUNTS.get(role, ()) and _counts(rows, name)]
        if role == "text":
            likely = [name for name in likely if name not in found.values() and not _counts(rows, name)]
        likely = likely if role in NEEDED else likely[:1]
        if len(likely) > 1 and not _alike(rows, likely):
            raise BenchError(
                f"{path}: {' and '.join(likely)} may each be the {_MEANING[role]}. Say which: --columns {role}={likely[0]}."
            )
        if likely:
            found[role] = likely[0]
    missing = [role for role in NEEDED if role not in found]
    if missing:
        wanted = " and ".join(f"the {_MEANING[role]}" for role in missing)
        example = ",".join(f"{role}=NAME" for role in missing)
        raise BenchError(f"{path}: no column is known as {wanted}. Name it: --columns {example}. Found: {', '.join(names)}.")
    return {role: name for role, name in found.items() if name}


def status_columns(rows: Sequence[Row], given: Mapping[str, str]) -> list[str]:
    """Columns that say whether a request failed: the one that the user names, or all with known names."""
    if "status" in given:
        return [given["status"]] if given["status"] else []
    return [name for name in column_names(rows) if _key(name) in ROLES["status"] and name not in given.values()]


def apart(rows: Sequence[Row], prompt: str) -> list[str]:
    """Columns of tokens that are counted beside those of the column `prompt`: Anthropic's `input_tokens` are those alone that were
    neither read from its cache nor written to it.
    """
    names = column_names(rows)
    for name in sorted(names, key=lambda name: name != prompt):
        if _key(name) != "inputtokens" or name.startswith(_WITHIN) or not (name == prompt or _alike(rows, [name, prompt])):
            continue
        ahead = name.rpartition(".")[0]
        if found := [other for other in names if _key(other) in _APART and other.rpartition(".")[0] == ahead]:
            return found
    return []


_MEANING = {"arrival": "arrival", "prompt": "tokens of the prompt", "output": "tokens of the answer"}


def _counts(rows: Sequence[Row], name: str) -> bool:
    """Whether the first value in a column is a number."""
    take = cell(name)
    value = next((value for value in map(take, rows) if value not in (None, "")), None)
    return (isinstance(value, int | float) and not isinstance(value, bool)) or (
        isinstance(value, str) and re.fullmatch(r"\d+(\.0*)?", value) is not None
    )


def _alike(rows: Sequence[Row], names: Sequence[str]) -> bool:
    """Whether columns have the same values in the rows that have any."""
    takes = [cell(name) for name in names]
    return all(len({str(value) for take in takes if (value := take(row)) not in (None, "")}) <= 1 for row in rows)

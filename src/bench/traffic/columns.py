"""Which column of an access log is what, by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.errors import BenchError
from bench.table_file import Row
from bench.workloads.trace_times import TraceUnit, number_of

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
            "state",
            "cancelled",
            "canceled",
            "failed",
            "errorcode",
            "errormessage",
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
# Tokens that a cache held, and those of reasoning, by any provider's name.
_PARTS = {
    "input": re.compile(r"(?=.*cache)(?!.*(output|completion|response|miss|cost|price|rate|ratio|uncached))"),
    "output": re.compile(r"(?=.*(reason|thought|thinking))(?!.*(cost|price|rate|ratio|budget|effort|time))"),
}
_KIND = {side: re.compile(rf"{side}(?!.*(cost|price|rate|ratio))") for side in _PARTS}
# What a provider's count leaves out; source: Anthropic's Messages API, Gemini's UsageMetadata.
_APART = {"inputtokens": {"cachereadinputtokens", "cachecreationinputtokens"}, "candidatestokencount": {"thoughtstokencount"}}
_WITHIN = "gen_ai."  # OpenTelemetry's names, whose `input_tokens` hold the cached ones; source: its GenAI conventions
_TOTAL = {"total", "totaltokens", "totaltokencount"}
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
    return _UNITS.get(words_of(name)[-1]) if len(words_of(name)) > 1 else None


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case."""
    return [word.lower() for word in _WORD.findall(name.rpartition(".")[2])] or [name]


def _key(name: str) -> str:
    words = words_of(name)
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


class Parts(NamedTuple):
    """Columns that count tokens of a prompt, or of an answer, beside its own. Attributes: apart: whether its own leaves them out."""

    names: list[str]
    apart: bool


def parts_of(rows: Sequence[Row], prompt: str, output: str) -> tuple[Parts, Parts]:
    """Columns of cached tokens beside a prompt's, and of reasoning beside an answer's.

    Totals decide: whether they are the sum with the parts or without them. Else what their publishers say: Anthropic's `input_tokens`
    are those alone that were neither read from its cache nor written to it; Gemini's candidates leave out thoughts; the kinds of
    Langfuse's usage do not overlap. Parts that exceed what they might be part of are apart as well.
    """
    names = column_names(rows)
    total = next((name for name in names if _key(name) in _TOTAL and _ahead(name) == _ahead(output)), None)
    (inputs, leaves), (outputs, leaves_too) = _parts(rows, names, prompt, "input"), _parts(rows, names, output, "output")
    fits = {(a, b) for a in (False, True) for b in (False, True)}
    for row in rows if inputs or outputs else ():
        into, out, all_of_it = (_size(row, [name]) for name in (prompt, output, total or ""))
        cached, reasoned = _size(row, inputs), _size(row, outputs)
        leaves, leaves_too = leaves or cached > into, leaves_too or reasoned > out
        if all_of_it:
            fits = {(a, b) for a, b in fits if into + a * cached + out + b * reasoned == all_of_it}
    said = [{fit[i] for fit in fits} for i in (0, 1)]
    return (
        Parts(inputs, said[0].pop() if len(said[0]) == 1 else leaves),
        Parts(outputs, said[1].pop() if len(said[1]) == 1 else leaves_too),
    )


def _parts(rows: Sequence[Row], names: Sequence[str], column: str, side: str) -> tuple[list[str], bool]:
    """Columns of parts, and whether their publisher's own leaves them out. Args: side: `input` or `output`."""
    for name in sorted(names, key=lambda name: name != column):
        copy = _key(name) == f"{side}tokens" and _alike(rows, [name, column])
        if name.startswith(_WITHIN) or not (name == column or copy):
            continue
        beside = [each for each in names if _ahead(each) == _ahead(name) and each != name and _counts(rows, each)]
        kinds = _key(name) == side  # of Langfuse
        found = [each for each in beside if _PARTS[side].match(_key(each)) or (kinds and _KIND[side].match(_key(each)))]
        parts = [each for i, each in enumerate(found) if not any(_alike(rows, [each, other]) for other in found[:i])]
        if parts:
            return parts, kinds or any(_key(each) in _APART.get(_key(name), ()) for each in parts)
    return [], False


def _ahead(name: str) -> str:
    return name.rpartition(".")[0]


def _size(row: Row, names: Sequence[str]) -> float:
    return sum(float(number_of(cell(name)(row)) or 0) for name in names)


_MEANING = {"arrival": "arrival", "prompt": "tokens of the prompt", "output": "tokens of the answer"}


def _counts(rows: Sequence[Row], name: str) -> bool:
    """Whether the first value in a column is a number."""
    take = cell(name)
    value = next((value for value in map(take, rows) if value not in (None, "")), None)
    return (isinstance(value, int | float) and not isinstance(value, bool)) or (
        isinstance(value, str) and re.fullmatch(r"\d+(\.0*)?", value) is not None
    )


def _alike(rows: Sequence[Row], names: Sequence[str]) -> bool:
    """Whether columns have the same values in the rows where they have any."""
    takes = [cell(name) for name in names]
    return all(len({str(value) for take in takes if (value := take(row)) not in (None, "")}) <= 1 for row in rows)

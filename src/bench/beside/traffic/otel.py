"""OpenTelemetry spans of calls of language models, as requests of our own format: agents' sessions, with the time that tools took.

Source: the attributes are those of the GenAI semantic conventions (open-telemetry/semantic-conventions-genai, docs/gen-ai), their
deprecated names (open-telemetry/semantic-conventions, model/gen-ai/deprecated) and OpenInference's; the encodings are OTLP/JSON
(open-telemetry/opentelemetry-proto), the `to_json` of OpenTelemetry's Python SDK, and a trace a line with its `spans`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from bench.beside.traffic.history import BLOCK, Histories, list_of, messages_of
from bench.errors import BenchError, count_text, is_are, shown
from bench.table_file import Row
from bench.workloads.trace_times import SECONDS, date_s, number_of, since_1970

_PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
_CONVERSATION = ("gen_ai.conversation.id", "session.id")  # the latter is OpenInference's
_KIND = ("gen_ai.operation.name", "openinference.span.kind", "llm.request.type")
_GENERATES = {"chat", "text_completion", "generate_content", "completion", "LLM"}
_FAILED = {"2", "ERROR", "STATUS_CODE_ERROR"}
# Of a log record, and of no span: a record names the span in which it was written, and so may be taken for one.
# Source: opentelemetry-proto, logs/v1/logs.proto, and `LogRecord.to_json` of OpenTelemetry's Python SDK.
_OF_LOGS = {
    *("body", "severity_number", "severityNumber", "severity_text", "severityText"),
    *("observed_timestamp", "observedTimeUnixNano", "timeUnixNano"),
}
_TRACE, _ID = ("traceId", "trace_id"), ("spanId", "span_id")
_PARENT = ("parentSpanId", "parent_span_id", "parent_id")
_NANOSECONDS = {"start": ("startTimeUnixNano", "start_time_unix_nano"), "end": ("endTimeUnixNano", "end_time_unix_nano")}
_TIMES = {"start": ("start_time", "startTime"), "end": ("end_time", "endTime")}
_DEEPEST = 200  # spans inside one another, so that no file exhausts the stack; convention


class _Span(NamedTuple):
    place: str
    trace: str
    id: str
    parent: str
    start_s: Decimal
    end_s: Decimal
    failed: bool
    attributes: Mapping[str, Any]

    @property
    def generates(self) -> bool:
        """Whether it is a call that generates text. Spans of other kinds may sum up the tokens of such calls."""
        kind = _first(self.attributes, _KIND)
        return kind in _GENERATES or (kind is None and _first(self.attributes, _PROMPT) is not None)


@dataclass(frozen=True)
class Call:
    """A call of a model.

    Attributes:
        place: where its span stands. start_s, end_s: since 1970. prompt_tokens, output_tokens: as the span has them, None where it has
            none. failed: whether it ended in an error.
        path: its session, its trace, and the ids of the spans around it, the outermost first, and of its own.
        messages: of its prompt, as texts; none where they are not recorded.
    """

    place: str
    start_s: Decimal
    end_s: Decimal
    prompt_tokens: Any
    output_tokens: Any
    failed: bool
    path: Sequence[str]
    messages: Sequence[str]

    @property
    def empty(self) -> bool:
        """Whether its prompt or its answer has 0 tokens, as of an answer that was broken off: it is no request that can be sent."""
        return 0 in (number_of(self.prompt_tokens), number_of(self.output_tokens))


def is_otel(lines: Iterable[Row]) -> bool:
    """Whether a file has spans; logs and metrics, which a collector may write beside them, come in any order."""
    return any(_has_spans(line.values) for line in lines)


class Spans:
    """Files of spans, as `bench.workloads.trace` reads traces of others."""

    what = "OpenTelemetry's spans"

    @staticmethod
    def reads(lines: Sequence[Row]) -> bool:
        """Whether a file has spans, or log records alone, which `rows` refuses."""
        return is_otel(lines) or all(_is_log(line.values) for line in lines)

    @staticmethod
    def rows(path: str, lines: Sequence[Row]) -> list[Row]:
        if not is_otel(lines):
            raise BenchError(
                f"{path}: its lines are OpenTelemetry log records, but a trace consists of spans. Export the spans."
            )
        return otel_rows(path, lines)

    @staticmethod
    def left_out(path: str, lines: Sequence[Row]) -> str | None:
        """Which calls are no requests, as a sentence; None where all are."""
        return left_out(calls_of(path, lines), lines)


def _has_spans(values: Mapping[str, Any]) -> bool:
    if isinstance(values.get("resourceSpans"), list) or isinstance(values.get("spans"), list):
        return True
    return "attributes" in values and bool(values.keys() & {*_ID, "context"}) and not _is_log(values)


def _is_log(values: Mapping[str, Any]) -> bool:
    return isinstance(values.get("resourceLogs"), list) or bool("attributes" in values and values.keys() & _OF_LOGS)


def otel_rows(path: str, lines: Sequence[Row]) -> list[Row]:
    """The calls that were answered, as rows with the columns of our own format.

    A call follows what had ended before it began, of the spans beside its own, or else beside the spans around it: the calls with which
    those ended. So it waits for all subagents that ran side by side, and for no call of another branch. The traces of a conversation
    follow one another in the same way, as a user's turns. What nothing had ended before has its moment. Prompts share the messages with
    which they begin alike, where these are recorded.

    Raises:
        BenchError: a span cannot be read, or does not say how many tokens a call had; or all calls are left out.
    """
    found = calls_of(path, lines)
    calls = [call for call in found if not (call.failed or call.empty)]
    if found and not calls:
        raise BenchError(f"{path}: holds no requests: {left_out(found)}")
    sessions: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        sessions[call.path[0]].append(call)
    follows: dict[str, Sequence[Call]] = {}
    for session in sessions.values():
        _link(session, 1, [], follows)
    histories = Histories()
    return [
        _row(path, call, follows[call.place], histories) for call in sorted(calls, key=lambda call: (call.start_s, call.end_s))
    ]


def left_out(calls: Sequence[Call], lines: Sequence[Row] = ()) -> str | None:
    """Which calls of a trace are no requests, and how many of its lines are log records, as sentences; None where all are requests."""
    failed = sum(call.failed for call in calls)
    empty = sum(call.empty and not call.failed for call in calls)
    parts = ((failed, "that failed when it was recorded"), (empty, "with 0 tokens of prompt or answer"))
    words = " and ".join(f"{count:,} {which}" for count, which in parts if count)
    logs = sum(_is_log(line.values) for line in lines)
    said = [f"of the trace's calls, {words} {is_are(failed + empty)} left out."] if words else []
    said += [f"{count_text(logs, 'line')} with log records, and no span, {is_are(logs)} left out."] if logs else []
    return " ".join(said) or None


def calls_of(path: str, lines: Sequence[Row]) -> list[Call]:
    """All calls that generate text. Of those inside one another, as a framework's and its client's, the innermost is the request."""
    spans: dict[tuple[str, str], _Span] = {}
    for span in _spans(path, lines):
        if (twin := spans.setdefault((span.trace, span.id), span)) is not span:
            raise BenchError(
                f"{path}: {span.place}: the span {shown(span.id, 40)} also appears in {twin.place}. Remove one of them."
            )
    around = {key: _around(path, span, spans) for key, span in spans.items() if span.generates}
    outer = {(each.trace, each.id) for above in around.values() for each in above}
    kept = {key: above for key, above in around.items() if key not in outer}
    named = {key: _conversation([spans[key], *above]) for key, above in kept.items()}
    # Not every instrument names the conversation on each of a trace's calls; of several names it is not known whose the others are.
    names: dict[str, set[str]] = defaultdict(set)
    for (trace, _), name in named.items():
        if name is not None:
            names[trace].add(name)
    common = {trace: next(iter(each)) for trace, each in names.items() if len(each) == 1}
    return [_call(spans[key], above, named[key] or common.get(key[0], key[0])) for key, above in kept.items()]


def _conversation(spans: Iterable[_Span]) -> str | None:
    """The conversation that a span names, or else the next one around it."""
    names = (_first(each.attributes, _CONVERSATION) for each in spans)
    return next((str(name) for name in names if name is not None), None)


def _call(span: _Span, around: Sequence[_Span], session: str) -> Call:
    path = [session, span.trace, *(each.id for each in reversed(around)), span.id]
    prompt, output = _first(span.attributes, _PROMPT), _first(span.attributes, _OUTPUT)
    return Call(span.place, span.start_s, span.end_s, prompt, output, span.failed, path, messages_of(span.attributes))


def _around(path: str, span: _Span, spans: Mapping[tuple[str, str], _Span]) -> list[_Span]:
    """The spans around one, the innermost first, as far as the file has them."""
    found: list[_Span] = []
    above = spans.get((span.trace, span.parent))
    while above is not None:
        found.append(above)
        if len(found) > _DEEPEST:
            raise BenchError(f"{path}: {span.place}: it is nested in more than {_DEEPEST} spans, or in itself.")
        above = spans.get((span.trace, above.parent))
    return found


class _Branch(NamedTuple):
    """Calls below one span: when the first began and the last ended (s), and those with which they ended."""

    start_s: Decimal
    end_s: Decimal
    last: Sequence[Call]


def _link(calls: Sequence[Call], depth: int, before: Sequence[Call], follows: dict[str, Sequence[Call]]) -> list[Call]:
    """Enter which calls each one follows, by its place, and return those with which all of them end.

    Args:
        depth: of their paths, to which they are the same. before: the calls that ended before them elsewhere.
    """
    groups: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        groups[call.path[depth]].append(call)
    spans = sorted(
        (min(each.start_s for each in group), max(each.end_s for each in group), key) for key, group in groups.items()
    )
    branches: list[_Branch] = []
    for start_s, end_s, key in spans:
        group = groups[key]
        ended = [each for each in branches if each.end_s <= start_s]
        after = _ends(ended) or before
        # What others have followed already, nothing follows any more.
        latest = max((each.start_s for each in ended), default=start_s)
        branches = [each for each in branches if each.end_s > latest or each.start_s == latest]
        if len(group[0].path) == depth + 1:
            follows[group[0].place] = after
            last: Sequence[Call] = group
        else:
            last = _link(group, depth + 1, after, follows)
        branches.append(_Branch(start_s, end_s, last))
    return _ends(branches)


def _ends(branches: Sequence[_Branch]) -> list[Call]:
    """The calls with which branches end: of those after which no other began."""
    latest = max((each.start_s for each in branches), default=Decimal(0))
    return [call for each in branches if each.end_s > latest or each.start_s == latest for call in each.last]


def _row(path: str, call: Call, after: Sequence[Call], histories: Histories) -> Row:
    if call.prompt_tokens is None or call.output_tokens is None:
        raise BenchError(
            f"{path}: {call.place}: the span of a call has no {(_PROMPT if call.prompt_tokens is None else _OUTPUT)[0]}. For "
            "streamed answers a server sends the count only if asked to (stream_options: include_usage). Remove the span, or "
            "record again."
        )
    when: dict[str, Any] = {"arrival_s": call.start_s}
    if after:
        wait = call.start_s - max(each.end_s for each in after)
        when = {"parent": [each.place for each in after], "after_s": wait}
    values = {"id": call.place, **when, "prompt_tokens": call.prompt_tokens, "output_tokens": call.output_tokens}
    tokens = number_of(call.prompt_tokens)
    if call.messages and tokens is not None:
        values |= {"hash_ids": histories.ids(call.place, call.messages, int(tokens)), "block_tokens": BLOCK}
    return Row(call.place, values)


# Encodings.


def _spans(path: str, lines: Sequence[Row]) -> Iterator[_Span]:
    for line in lines:
        for place, values in _encoded(line):
            if not isinstance(values, Mapping):
                raise BenchError(f"{path}: {place}: {shown(str(values), 60)} is not a span.")
            yield _span(path, place, values)


def _encoded(line: Row) -> Iterator[tuple[str, Any]]:
    """The spans of a line, each with its place."""
    values = line.values
    if "resourceSpans" in values:
        scopes = [scope for each in list_of(values["resourceSpans"]) for scope in list_of(_of(each, "scopeSpans"))]
        spans = [span for scope in scopes for span in list_of(_of(scope, "spans"))]
    elif "spans" in values:
        spans = list_of(values["spans"])
    else:
        if _has_spans(values):  # a file may hold logs and metrics too
            yield line.place, values
        return
    yield from ((f"{line.place}, span {number}", span) for number, span in enumerate(spans, 1))


def _of(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _first(values: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((value for name in names if (value := values.get(name)) not in (None, "")), None)


def _span(path: str, place: str, values: Mapping[str, Any]) -> _Span:
    context = values.get("context")
    ids = {**context, **values} if isinstance(context, Mapping) else values
    attributes = _attributes(values.get("attributes"))
    trace, name, parent = (_first(ids, names) for names in (_TRACE, _ID, _PARENT))
    if name is None:
        raise BenchError(f"{path}: {place}: a span without {_ID[0]}.")
    status = values.get("status")
    code = _first(status, ("code", "status_code")) if isinstance(status, Mapping) else status
    word = str(code).rpartition(".")[2].upper()  # Python prints its enumeration's as StatusCode.ERROR
    failed = word in _FAILED or attributes.get("error.type") not in (None, "")
    start, end = (_moment(path, place, values, which) for which in ("start", "end"))
    if end < start:
        raise BenchError(f"{path}: {place}: the span ends before it starts.")
    return _Span(place, str(trace), str(name), str(parent), start, end, failed, attributes)


def _moment(path: str, place: str, values: Mapping[str, Any], which: str) -> Decimal:
    """Seconds since 1970."""
    exact = number_of(_first(values, _NANOSECONDS[which]))
    if exact is not None:
        return exact * SECONDS["ns"]
    value = _first(values, _TIMES[which])
    number = number_of(value)
    if number is None:
        moment = date_s(value)
        if moment is not None:
            return moment
    elif units := since_1970(number):
        return number * SECONDS[units[0]]
    raise BenchError(
        f"{path}: {place}: the span has no known {which}. {_NANOSECONDS[which][0]} counts nanoseconds from 1970; "
        f"{_TIMES[which][0]} "
        "is a date and time, or a number that counts from 1970."
    )


def _attributes(value: Any) -> Mapping[str, Any]:
    """By name; OTLP has them as a list of keys and values."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, list):
        return {str(each.get("key")): _any_value(each.get("value")) for each in value if isinstance(each, Mapping)}
    return value if isinstance(value, Mapping) else {}


def _any_value(value: Any) -> Any:
    """Source: opentelemetry-proto, common/v1/common.proto, AnyValue; whole numbers are texts in JSON."""
    if not isinstance(value, Mapping):
        return value
    kind, held = next(iter(value.items()), ("", None))
    if kind == "arrayValue":
        return [_any_value(each) for each in list_of(_of(held, "values"))]
    if kind == "kvlistValue":
        return _attributes(list_of(_of(held, "values")))
    return held

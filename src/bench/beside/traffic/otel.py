"""OpenTelemetry spans of calls of language models, as requests of our own format: agents' sessions, with the time that tools took.

Source: the attributes are those of the GenAI semantic conventions (open-telemetry/semantic-conventions-genai, docs/gen-ai), their
deprecated names (open-telemetry/semantic-conventions, model/gen-ai/deprecated) and OpenInference's; the encodings are OTLP/JSON
(open-telemetry/opentelemetry-proto) and the `to_json` of OpenTelemetry's Python SDK.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from bench.errors import BenchError
from bench.table_file import Row
from bench.workloads.trace_times import SECONDS, date_s, number_of

_PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
_CONVERSATION = ("gen_ai.conversation.id", "session.id")  # the latter is OpenInference's
_KIND = ("gen_ai.operation.name", "openinference.span.kind", "llm.request.type")
_GENERATES = {"chat", "text_completion", "generate_content", "completion", "LLM"}
_FAILED = ("2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR")
_ID, _PARENT = ("spanId", "span_id"), ("parentSpanId", "parent_id")
_TIMES = {"start": ("startTimeUnixNano", "start_time"), "end": ("endTimeUnixNano", "end_time")}
# A prompt's messages, and what stands ahead of them.
_MESSAGES = ("gen_ai.tool.definitions", "gen_ai.system_instructions", "gen_ai.input.messages")
_NUMBERED = re.compile(r"(?:gen_ai\.prompt|llm\.input_messages)\.(\d+)\.(.+)")  # OpenLLMetry's and OpenInference's
_BLOCK = 16  # tokens of a block that prompts may share; convention: vLLM's, below which no prefix cache of its finds anything


class _Span(NamedTuple):
    place: str
    trace: str
    id: str
    parent: str
    start_s: Decimal
    end_s: Decimal
    failed: bool
    attributes: Mapping[str, Any]
    path: tuple[str, ...] = ()  # of a call: its session, its trace, and the ids of the spans around it, the outermost first

    @property
    def tokens(self) -> tuple[Decimal | None, Decimal | None]:
        """Of prompt and answer; 0 as of an answer that was broken off, which is no request that can be sent."""
        return number_of(_first(self.attributes, _PROMPT)), number_of(_first(self.attributes, _OUTPUT))

    @property
    def generates(self) -> bool:
        """Whether it is a call that generates text. Spans of other kinds may sum up the tokens of such calls."""
        kind = _first(self.attributes, _KIND)
        return kind in _GENERATES or (kind is None and _first(self.attributes, _PROMPT) is not None)


class Spans:
    """Files of spans, as `bench.workloads.trace` reads traces of others."""

    what = "OpenTelemetry's spans"

    @staticmethod
    def reads(lines: Sequence[Row]) -> bool:
        """Whether a file has spans; logs and metrics, which a collector may write beside them, come in any order."""
        return any(next(_encoded(line), None) is not None for line in lines)

    @staticmethod
    def rows(path: str, lines: Sequence[Row]) -> list[Row]:
        """The calls that were answered, as rows with the columns of our own format.

        A call follows the one that ended last before it began, of those in the span around it, or else in the spans around that. The
        traces of a conversation follow one another in the same way, as a user's turns. What nothing had ended before has its moment.
        Prompts share the messages with which they begin alike, where these are recorded.

        Raises:
            BenchError: a span cannot be read, or does not say how many tokens a call had.
        """
        sessions: dict[str, list[_Span]] = defaultdict(list)
        for call in sorted(_calls(path, lines), key=lambda call: (call.start_s, call.end_s)):
            sessions[call.path[0]].append(call)
        histories = _Histories()
        return [
            _row(path, call, _before(call, calls[:place]), histories)
            for calls in sessions.values()
            for place, call in enumerate(calls)
        ]


def _calls(path: str, lines: Sequence[Row]) -> list[_Span]:
    """All calls that generated text. Of those inside one another, as a framework's and its client's, the innermost is the request."""
    spans: dict[tuple[str, str], _Span] = {}
    for line in lines:
        for place, values in _encoded(line):
            span = _span(path, place, values)
            spans.setdefault((span.trace, span.id), span)
    # Not every instrument names the conversation on each of a trace's calls.
    sessions = {
        span.trace: str(name) for span in spans.values() if (name := _first(span.attributes, _CONVERSATION)) is not None
    }
    calls = []
    for span in spans.values():
        if span.generates:
            around, above = list[str](), spans.get((span.trace, span.parent))
            while above is not None and above.id not in around:
                around.insert(0, above.id)
                above = spans.get((above.trace, above.parent))
            calls.append(span._replace(path=(sessions.get(span.trace, span.trace), span.trace, *around)))
    outer = {(call.trace, name) for call in calls for name in call.path[2:]}
    return [call for call in calls if (call.trace, call.id) not in outer and not call.failed and 0 not in call.tokens]


def _before(call: _Span, earlier: Sequence[_Span]) -> _Span | None:
    """The call that one follows. Args: earlier: those of its session that began before it."""
    ended = [each for each in earlier if each.end_s <= call.start_s]
    for depth in range(len(call.path), 0, -1):
        if beside := [each for each in ended if each.path[:depth] == call.path[:depth]]:
            return max(beside, key=lambda each: each.end_s)
    return None


def _row(path: str, call: _Span, before: _Span | None, histories: _Histories) -> Row:
    prompt, output = call.tokens
    if prompt is None or output is None:
        raise BenchError(
            f"{path}: {call.place}: the span of a call has no {(_PROMPT if prompt is None else _OUTPUT)[0]}. For streamed answers a "
            "server sends the count only if asked to (stream_options: include_usage). Remove the span, or record again."
        )
    when: dict[str, Any] = {"arrival_s": call.start_s}
    if before:
        when = {"parent": before.place, "after_s": call.start_s - before.end_s}
    values = {"id": call.place, **when, "prompt_tokens": prompt, "output_tokens": output}
    if messages := _messages(call.attributes):
        values |= {"hash_ids": histories.ids(call.place, messages, int(prompt)), "block_tokens": _BLOCK}
    return Row(call.place, values)


# What prompts share


def _messages(attributes: Mapping[str, Any]) -> list[str]:
    """A prompt's messages in order, each as one text, behind tools and instructions; none where they are not recorded."""
    found: list[str] = []
    for name in _MESSAGES:
        value = attributes.get(name)
        with suppress(ValueError):
            value = json.loads(value) if isinstance(value, str) else value
        found += map(_text, value) if isinstance(value, list) else []
    numbered: dict[int, str] = {}
    for name in sorted(attributes):
        if each := _NUMBERED.fullmatch(name):
            numbered[int(each[1])] = numbered.get(int(each[1]), "") + f"\n{attributes[name]}"
    return found or [numbered[number] for number in sorted(numbered)]


def _text(value: Any) -> str:
    """What a model reads of a message: its texts, and not the names of its parts."""
    if isinstance(value, Mapping):
        return "\n".join(_text(each) for key, each in value.items() if key not in ("type", "id", "finish_reason"))
    return "\n".join(map(_text, value)) if isinstance(value, list) else str(value)


class _Histories:
    """Ids of the blocks of prompts: of those that come first, and of each later one those with which it begins alike.

    A prompt's tokens are known in all, those of a message are not. A prompt that begins with all messages of an earlier one has that
    one's tokens; one that begins with some of them has their share of its tokens, by characters.
    """

    def __init__(self) -> None:
        self._ends: dict[int, list[str]] = {}  # by the hash of the messages up to a place, the ids of all blocks up to there

    def ids(self, name: str, texts: Sequence[str], tokens: int) -> list[str]:
        """The ids of a prompt's whole blocks. Args: name: of the prompt, like no other. texts: its messages. tokens: of the prompt."""
        ends = list(accumulate(texts, lambda before, text: hash((before, text)), initial=0))[1:]
        known = sum(1 for _ in takewhile(self._ends.__contains__, ends))
        blocks = self._ends[ends[known - 1]][: tokens // _BLOCK] if known else []
        blocks += [f"{name}/{number}" for number in range(len(blocks), tokens // _BLOCK)]
        characters = list(accumulate(map(len, texts)))
        for end, so_far in zip(ends[known:], characters[known:], strict=True):
            self._ends[end] = blocks[: tokens * so_far // characters[-1] // _BLOCK]
        return blocks


# Encodings


def _encoded(line: Row) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The spans of a line, each with its place."""
    values = line.values
    if isinstance(values.get("resourceSpans"), list):
        scopes = (scope for each in values["resourceSpans"] for scope in each.get("scopeSpans", ()))
        spans = (span for scope in scopes for span in scope.get("spans", ()))
        yield from ((f"{line.place}, span {number}", span) for number, span in enumerate(spans, 1))
    elif "attributes" in values and _first(values, _TIMES["start"]) is not None:  # a log record has no start
        yield line.place, values


def _first(values: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((value for name in names if (value := values.get(name)) not in (None, "")), None)


def _span(path: str, place: str, values: Mapping[str, Any]) -> _Span:
    ids = {**(values.get("context") or {}), **values}
    attributes = _attributes(values.get("attributes"))
    trace, name, parent = (str(_first(ids, names)) for names in (("traceId", "trace_id"), _ID, _PARENT))
    status = _first(values.get("status") or {}, ("code", "status_code"))
    failed = str(status) in _FAILED or attributes.get("error.type") not in (None, "")
    start, end = (_moment(path, place, values, which) for which in ("start", "end"))
    return _Span(place, trace, name, parent, start, end, failed, attributes)


def _moment(path: str, place: str, values: Mapping[str, Any], which: str) -> Decimal:
    """Seconds since 1970."""
    nanoseconds, text = _TIMES[which]
    if (exact := number_of(values.get(nanoseconds))) is not None:
        return exact * SECONDS["ns"]
    if (moment := date_s(values.get(text))) is not None:
        return moment
    raise BenchError(
        f"{path}: {place}: the span has no known {which}: neither {nanoseconds}, in nanoseconds since 1970, nor {text}, a date."
    )


def _attributes(value: Any) -> Mapping[str, Any]:
    """By name; OTLP has them as a list of keys and values."""
    if isinstance(value, list):
        return {str(each.get("key")): _any_value(each.get("value")) for each in value if isinstance(each, Mapping)}
    return value if isinstance(value, Mapping) else {}


def _any_value(value: Any) -> Any:
    """Source: opentelemetry-proto, common/v1/common.proto, AnyValue; whole numbers are texts in JSON."""
    kind: str
    held: Any
    kind, held = next(iter(value.items()), ("", None)) if isinstance(value, Mapping) else ("", value)
    if kind == "arrayValue":
        return [_any_value(each) for each in held.get("values", ())]
    return _attributes(held.get("values", [])) if kind == "kvlistValue" else held

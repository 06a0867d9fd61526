"""One record a request: what its bytes contain, and when they came. Parsing happens here, after the run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import httptools

from bench.load.connection import UNREADABLE
from bench.load.exchange import Exchange
from bench.records.environment import without_secrets
from bench.records.request import Outcome, RequestRecord

__all__ = ["asked_wait", "record_of"]

# Keys of a chat delta that carry what the model generated: an answer, its reasoning, or a call of a tool.
_REFUSALS = (429, 503)
_LONGEST_WAIT_S = 10**9
_SHORTEST_WAIT_S = 0.1  # whoever answers `Retry-After: 0` each time is not to be asked as fast as the network allows
_OUTPUT, _REASONING = ("content", "tool_calls", "refusal"), ("reasoning_content", "reasoning")


def record_of(exchange: Exchange, start: float) -> RequestRecord:
    """The record of an exchange of a run that started at `start` on the exchange's clock."""

    def since(stamp: float | None) -> float | None:
        return None if stamp is None else round(stamp - start, 6)

    response = _Response(exchange)
    answer = _answer(response, exchange.streamed)
    outcome: Outcome
    if exchange.failure == "timeout":
        outcome = "timeout"
    elif response.status is None:
        outcome = "disconnect"
    # What a server sent before it hung up explains more than that it did.
    elif response.status != 200:
        outcome = "http_error"
    elif answer.error is not None:
        outcome = "stream_error"
    elif exchange.failure:
        outcome = "disconnect"
    else:
        outcome = "ok" if answer.complete and response.complete else "truncated"
    sent = exchange.sent if exchange.first_sent is None else exchange.first_sent
    first = answer.tokens[0] if answer.tokens and exchange.streamed else None
    last = answer.tokens[-1] if answer.tokens else None
    usage = answer.usage
    return RequestRecord(
        index=exchange.index,
        after=exchange.after,
        outcome=outcome,
        error=answer.error or (exchange.error if exchange.failure else None),
        status=response.status,
        prompt_asked=exchange.prompt_asked,
        output_asked=exchange.output_asked,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
        scheduled_s=since(exchange.scheduled),
        sent_s=since(sent),
        headers_s=since(response.headers),
        first_byte_s=since(response.pieces[0][0] if response.pieces else None),
        first_token_s=since(first),
        first_output_s=since(answer.first_output if exchange.streamed else None),
        last_token_s=since(last),
        end_s=since(exchange.end),
        ttft_s=None if first is None or sent is None else round(first - sent, 6),
        e2e_s=None if last is None or sent is None else round(last - sent, 6),
        token_times_s=[round(t - start, 6) for t in answer.tokens],
        resent=exchange.resent,
        retry_after_s=response.retry_after_s,
        attempts=exchange.attempts,
        waited_s=round(exchange.waited_s, 6),
    )


def asked_wait(exchange: Exchange) -> float | None:
    """For how long its answer asks to wait before the request is sent again (s); None where it does not, or is no 429 or 503."""
    if exchange.reads and exchange.reads[0][9:12] == b"200":  # nearly all are, and a look at all of it takes long
        return None
    response = _Response(exchange)
    wait = response.retry_after_s if response.status in _REFUSALS else None
    return None if wait is None else max(wait, _SHORTEST_WAIT_S)


class _Response:
    """An exchange's reads as HTTP: status, stamp of the head's end, pieces of the body with their stamps, and whether it ended.

    What a server sends ahead of its answer (100 Continue, 103 Early Hints) is none.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.status: int | None = None
        self.headers: float | None = None
        self.pieces: list[tuple[float, bytes]] = []
        self.encoding = b"identity"
        self.complete = False
        self._retry_after = self._date = ""
        self._parser = httptools.HttpResponseParser(self)
        for self._time, read in zip(exchange.times, exchange.reads, strict=True):
            try:
                self._parser.feed_data(read)
            except UNREADABLE:
                break
        # An answer without a length ends with its connection; the loop knows.
        self.complete = self.complete or (exchange.end is not None and exchange.failure is None and not self._framed)

    _framed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._framed = self._framed or name in (b"content-length", b"transfer-encoding")
        if name == b"content-encoding":
            self.encoding = value.lower()
        elif name == b"retry-after":
            self._retry_after = value.decode("latin-1").strip()
        elif name == b"date":
            self._date = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.headers, self.status = self._time, status

    def on_body(self, body: bytes) -> None:
        self.pieces.append((self._time, body))

    def on_message_complete(self) -> None:
        self.complete = self.status is not None

    @property
    def retry_after_s(self) -> float | None:
        """Seconds from the answer to the moment of its Retry-After; None where it has none, or one that cannot be read.

        A date is counted from the answer's own, which no difference between the two clocks touches.
        """
        if self._retry_after.isascii() and self._retry_after.isdigit():
            return float(min(int(self._retry_after[:12]), _LONGEST_WAIT_S))
        moment = _moment(self._retry_after)
        if moment is None or self.headers is None:
            return None
        arrived = datetime.fromtimestamp(time.time() - (time.monotonic() - self.headers), UTC)
        return max(0.0, round((moment - (_moment(self._date) or arrived)).total_seconds(), 3))

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(piece for _, piece in self.pieces)


def _moment(text: str) -> datetime | None:
    """A date of an HTTP header."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class _Usage(NamedTuple):
    """The server's counts."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None

    @classmethod
    def of(cls, usage: dict[str, Any]) -> _Usage:
        """The counts of a `usage`.

        Raises:
            AttributeError, TypeError: it is none.
        """
        details = usage.get("prompt_tokens_details") or {}
        counts = usage.get("prompt_tokens"), usage.get("completion_tokens"), details.get("cached_tokens")
        if not all(count is None or isinstance(count, int) for count in counts):
            raise TypeError("a count is not an integer")
        return cls(*counts)


@dataclass
class _Answer:
    """What a body holds: arrival of each chunk with tokens, of the first that is not reasoning, the usage, and how it ended."""

    tokens: list[float] = field(default_factory=list)
    first_output: float | None = None
    usage: _Usage = field(default_factory=_Usage)
    error: str | None = None
    complete: bool = False


def _answer(response: _Response, streamed: bool) -> _Answer:
    if response.encoding != b"identity":
        return _Answer(
            error=f"content-encoding {response.encoding[:20].decode(errors='replace')}, which the request did not accept"
        )
    if response.status not in (None, 200):
        return _Answer(error=_error_text(response.body))
    return _streamed(response) if streamed else _whole(response)


def _streamed(response: _Response) -> _Answer:
    answer = _Answer()
    closed = False
    for stamp, event in _events(response.pieces):
        if event == b"[DONE]":
            answer.complete = bool(answer.tokens)
            continue
        content = _json(event)
        if content is None:
            answer.error = f"not JSON: {_quoted(event)}"
            continue
        if content.get("error"):
            answer.error = _error_text(event)
            continue
        try:
            tokens, output = _carries(content)
            if content.get("usage"):
                answer.usage = _Usage.of(content["usage"])
        except (AttributeError, TypeError):
            answer.error = f"no chunk of an answer: {_quoted(event)}"
            continue
        if tokens:
            answer.tokens.append(stamp)
            closed = _closes(content)
        if output and answer.first_output is None:
            answer.first_output = stamp
    # Each chunk before it carried a token or more, so one more than there are tokens carried none.
    if closed and 0 < (answer.usage.completion or 0) < len(answer.tokens):
        answer.tokens.pop()
    return answer


def _carries(content: dict[str, Any]) -> tuple[bool, bool]:
    """Whether a chunk carries tokens, and whether any of them is not reasoning.

    A chunk of /v1/completions with a choice does, even where its text is empty: vLLM sends one when the tokens so far spell no whole
    character. (One that closes the answer may be an exception.) A chunk of a chat does where its delta holds something that was
    generated: a role alone, or an empty text, is none.
    """
    tokens = output = False
    for choice in content.get("choices") or ():
        delta = choice.get("delta")
        answered = delta is None or any(delta.get(key) for key in _OUTPUT)
        tokens = tokens or answered or any(delta.get(key) for key in _REASONING)
        output = output or answered
    return tokens, output


def _closes(content: dict[str, Any]) -> bool:
    """Whether a chunk of /v1/completions ends its answer without a text.

    vLLM's carries the last token nevertheless, where that spells no whole character. llama.cpp's follows the last token's own chunk at
    once, and carries none. The two look alike; only the server's count of tokens distinguishes them.
    """
    return all(
        "delta" not in choice and choice.get("finish_reason") and not choice.get("text") for choice in content["choices"]
    )


def _whole(response: _Response) -> _Answer:
    """An answer that comes in one: its tokens are there when its last byte is."""
    content = _json(response.body)
    if content is None:
        return _Answer()
    if content.get("error"):
        return _Answer(error=_error_text(response.body))
    try:
        usage = _Usage.of(content.get("usage") or {})
    except (AttributeError, TypeError):
        return _Answer(error=f"no usage: {_quoted(json.dumps(content['usage']).encode())}")
    stamps = [response.pieces[-1][0]] if content.get("choices") else []
    return _Answer(stamps, usage=usage, complete=bool(stamps))


def _events(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """(arrival, data) of each server-sent event; an event arrives with the piece that holds its end."""
    parts, stamp = [b""], 0.0  # of a line that has not ended
    for stamp, piece in pieces:
        parts.append(piece)
        if b"\n" not in piece:
            continue
        *lines, rest = b"".join(parts).replace(b"\r\n", b"\n").split(b"\n")
        parts = [rest]
        for line in lines:
            if line.startswith(b"data:"):
                yield stamp, line[5:].strip()
    # A server may leave out the last end of line; an event that was cut is none.
    rest = b"".join(parts)
    event = rest[5:].strip()
    if rest.startswith(b"data:") and (event == b"[DONE]" or _json(event)):
        yield stamp, event


def _json(text: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _error_text(body: bytes) -> str:
    """The server's message, whether it stands in OpenAI's shape or not."""
    error: Any = _json(body) or body.decode(errors="replace")
    while isinstance(error, dict):
        error = error.get("error") or error.get("message") or error.get("detail") or json.dumps(error)
    return without_secrets(str(error).encode(errors="replace")).decode()[:500]


def _quoted(text: bytes) -> str:
    """The beginning of what a server sent, for a message."""
    return repr(without_secrets(text)[:200])

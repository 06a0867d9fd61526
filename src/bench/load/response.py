"""An exchange's reads as HTTP, and its body as server-sent events by the WHATWG's rules, with the moment at which each arrived."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import httptools
import msgspec

from bench.headers import RETRY_AFTER
from bench.load.connection import UNREADABLE
from bench.load.exchange import Exchange

# shortest wait (s): whoever answers `Retry-After: 0` each time is not asked as fast as the network allows; convention
_SHORTEST_WAIT_S = 0.1
_DECIMAL = re.compile(r"\d+(\.\d*)?|\.\d+", re.ASCII)


def asked_wait(exchange: Exchange) -> float | None:
    """For how long its answer asks to wait before the request is sent again (s); None where it does not, or is no 429 or 503."""
    if exchange.reads and exchange.reads[0][9:12] == b"200":  # nearly all are, and a look at all of it takes long
        return None
    response = Response(exchange)
    wait = response.retry_after_s if response.status in RETRY_AFTER else None
    return None if wait is None else max(wait, _SHORTEST_WAIT_S)


class Response:
    """Status, stamp of the head's end, pieces of the body with their stamps, and whether it ended.

    What a server sends ahead of its answer (100 Continue, 103 Early Hints) is not part of it.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.status: int | None = None
        self.headers: float | None = None
        self.pieces: list[tuple[float, bytes]] = []
        self.complete = False
        self._fields: dict[bytes, str] = {}
        self._parser = httptools.HttpResponseParser(self)
        for self._time, read in zip(exchange.times, exchange.reads, strict=True):
            try:
                self._parser.feed_data(read)
            except UNREADABLE:
                break
        # An answer without a length ends with its connection; the loop knows.
        framed = self._fields.keys() & {b"content-length", b"transfer-encoding"}
        self.complete = self.complete or (exchange.end is not None and exchange.failure is None and not framed)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields[name.lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.headers, self.status = self._time, status
        else:
            self._fields.clear()

    def on_body(self, body: bytes) -> None:
        self.pieces.append((self._time, body))

    def on_message_complete(self) -> None:
        self.complete = self.status is not None

    def field(self, name: bytes) -> str:
        """A field of its head, such as `content-type`; empty where it has none."""
        return self._fields.get(name, "")

    @property
    def encoding(self) -> str:
        """How its body is compressed; empty where it is not."""
        parts = map(str.strip, self.field(b"content-encoding").lower().split(","))
        return ", ".join(part for part in parts if part not in ("", "identity"))

    @property
    def retry_after_s(self) -> float | None:
        """Seconds from the answer to the moment that it names; None where it names none, or one that cannot be read.

        `retry-after-ms` (Azure, and what OpenAI's SDKs read first) is finer than `Retry-After`, which is seconds, with decimals from
        some servers. A date is not read.
        """
        for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
            if _DECIMAL.fullmatch(text := self.field(name)):
                return float(text[:16]) * unit_s
        return None

    @property
    def body(self) -> bytes:
        """The body's pieces, joined."""
        return b"".join(piece for _, piece in self.pieces)


DONE = b"[DONE]"
BARE = b"{"
FIELD = re.compile(rb"(?:data|event|id|retry|error)?:")  # how a line of an event stream begins, a comment's too
_BOM = b"\xef\xbb\xbf"

_quickly = msgspec.json.Decoder().decode  # a fifth of the time of json.loads: each chunk of a stream is read

_Stamped = tuple[float, bytes]


class Event(NamedTuple):
    """One event: its arrival (s, on the clock of the pieces), its data, and its type, empty where it names none, `BARE` of an object
    that stands there alone.
    """

    stamp: float
    data: bytes
    name: bytes = b""


def events(pieces: Iterable[_Stamped]) -> Iterator[Event]:
    """The events of a body. An event arrives with the piece that holds its end; one without data is a keep-alive, and left out.

    Args:
        pieces: of the body, each with its arrival.
    """
    data: list[_Stamped] = []
    name = bare = b""
    for stamp, line in _lines(pieces):
        if isinstance(line, Event):
            yield line
        elif not line:
            yield from _dispatched(data, name, stamp)
            data, name, bare = [], b"", b""
        elif line.startswith(BARE) or (bare and not line.startswith(b"data:")):
            first = not bare
            bare += line
            if (first or line.startswith(b"}")) and json_object(bare):
                yield Event(stamp, bare, BARE)
                bare = b""
        elif line[0] != b":"[0]:  # else a comment
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data" and not value.startswith(b":"):  # else a comment that a gateway wrapped
                data.append((stamp, value))
            elif field == b"event":
                name = value
            elif field == b"error":
                data, name = [(stamp, value)], field
    # A server may leave out the last blank line; an event that was cut off is not one.
    yield from (event for event in _dispatched(data, name, None) if event.data == DONE or json_object(event.data))


def _dispatched(data: list[_Stamped], name: bytes, stamp: float | None) -> Iterator[Event]:
    """The event of these lines, at `stamp` or else at its last line; one a line where each is JSON of its own."""
    if len(data) > 1 and all(value == DONE or json_object(value) for _, value in data):
        yield from (Event(at, value, name) for at, value in data)
        return
    joined = b"\n".join(value for _, value in data)
    if joined.strip():
        yield Event(data[-1][0] if stamp is None else stamp, joined.strip(), name)


def _lines(pieces: Iterable[_Stamped]) -> Iterator[tuple[float, bytes | Event]]:
    """Lines, each with the arrival of its end, which is CR LF, LF or CR; the last one may have no end.

    Nearly every piece is one whole event of one line, which comes as that.
    """
    parts: list[bytes] = []  # of a line that has not ended
    begun = after_cr = False
    fresh = True  # whether no event is under way
    stamp, head = 0.0, b""
    for stamp, piece in pieces:
        text = piece
        if not begun:
            head += text
            if len(head) < len(_BOM) and _BOM.startswith(head):
                continue
            text, begun = head.removeprefix(_BOM), True
        if after_cr:
            text, after_cr = text.removeprefix(b"\n"), False
        if fresh and not parts and text[:6] == b"data: " and text[-2:] == b"\n\n":
            line = text[6:-2]
            if b"\n" not in line and b"\r" not in line and line.strip():
                yield stamp, Event(stamp, line.strip())
                continue
        if b"\r" in text:
            after_cr = text.endswith(b"\r")
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        parts.append(text)
        if b"\n" not in text:
            continue
        *lines, rest = b"".join(parts).split(b"\n")
        parts = [rest] if rest else []
        for line in lines:
            yield stamp, line
        fresh = not lines[-1]
    if not begun and head:
        parts.append(head)
    if any(parts):
        yield stamp, b"".join(parts)


def json_object(text: bytes) -> dict[str, Any] | None:
    """A JSON object; None where the text is not one."""
    try:
        content = _quickly(text)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        # What others take for JSON as well: NaN, a lone surrogate, bytes that are no UTF-8.
        try:
            content = json.loads(text.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return content if isinstance(content, dict) else None

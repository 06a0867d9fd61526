"""Server-sent events, by the WHATWG's rules, with the moment at which each arrived.

Source: "Interpreting an event stream", section 9.2.6 of the HTML standard. Three things are read beyond it: a field called `error`, by
which llama.cpp reports that an answer failed, a JSON object without a field's name, by which others do, and lines that lack the blank
line between them, where each is JSON of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

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
            if field == b"data":
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

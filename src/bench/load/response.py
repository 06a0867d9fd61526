"""An exchange's reads as HTTP."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httptools

from bench.headers import RETRY_AFTER
from bench.load.connection import UNREADABLE
from bench.load.exchange import Exchange

_LONGEST_WAIT_S = 10.0**9  # longest wait that an answer may ask for (s); convention
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
        self.encoding = self.content_type = self.location = self.challenge = ""
        self.complete = False
        self._retry_after = self._retry_after_ms = self._date = ""
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
        text = value.decode("latin-1").strip()
        self._framed = self._framed or name in (b"content-length", b"transfer-encoding")
        match name:
            case b"content-encoding":
                parts = [part for part in map(str.strip, text.lower().split(",")) if part not in ("", "identity")]
                self.encoding = ", ".join(parts) or self.encoding
            case b"content-type":
                self.content_type = text
            case b"www-authenticate":
                self.challenge = text
            case b"location":
                self.location = text
            case b"retry-after":
                self._retry_after = text
            case b"retry-after-ms":
                self._retry_after_ms = text
            case b"date":
                self._date = text

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
        """Seconds from the answer to the moment that it names; None where it names none, or one that cannot be read.

        `retry-after-ms` (Azure, and what OpenAI's SDKs read first) is finer than `Retry-After`, which is seconds, with decimals from
        some servers, or a date. A date is counted from the answer's own, which no difference between the two clocks touches.
        """
        for text, unit_s in ((self._retry_after_ms, 0.001), (self._retry_after, 1.0)):
            if _DECIMAL.fullmatch(text):
                return min(float(text[:16]) * unit_s, _LONGEST_WAIT_S)
        moment = _moment(self._retry_after)
        if moment is None or self.headers is None:
            return None
        arrived = datetime.fromtimestamp(time.time() - (time.monotonic() - self.headers), UTC)
        return max(0.0, round((moment - (_moment(self._date) or arrived)).total_seconds(), 3))

    @property
    def body(self) -> bytes:
        """The body's pieces, joined."""
        return b"".join(piece for _, piece in self.pieces)


def _moment(text: str) -> datetime | None:
    """A date of an HTTP header, in UTC where it names no zone."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

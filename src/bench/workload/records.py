"""One record a request: what its bytes said, and when. Parsing happens here, after the run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench.errors import BenchError
from bench.workload.transport import Exchange

__all__ = ["Outcome", "RequestRecord", "read_requests", "write_requests"]

Outcome = Literal["ok", "http_error", "stream_error", "truncated", "disconnect", "timeout"]


@dataclass(frozen=True)
class RequestRecord:
    """One line of `requests.jsonl`. Times are seconds since the run's start, on one monotonic clock; None where absent.

    Attributes:
        index: number of the request in its run.
        outcome: `ok`; `http_error`: a status other than 200; `stream_error`: an error inside a stream that began with 200;
            `truncated`: the stream ended without its last event; `disconnect`; `timeout`.
        error: the server's words, where it said why.
        prompt_tokens, completion_tokens: as the server counted them (`usage`).
        scheduled_s, sent_s, headers_s, first_byte_s, first_token_s, last_token_s, end_s: the stamps.
        ttft_s: first chunk that carries a token − sent. e2e_s: last token chunk − sent.
        token_times_s: arrival of each chunk that carries tokens.
    """

    index: int
    outcome: Outcome
    error: str | None
    status: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    scheduled_s: float | None
    sent_s: float | None
    headers_s: float | None
    first_byte_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    end_s: float | None
    ttft_s: float | None
    e2e_s: float | None
    token_times_s: list[float]

    @classmethod
    def of(cls, exchange: Exchange, start: float) -> RequestRecord:
        """The record of an exchange of a run that started at `start` on the exchange's clock."""

        def since(stamp: float | None) -> float | None:
            return None if stamp is None else round(stamp - start, 6)

        tokens: list[float] = []
        usage: dict[str, Any] = {}
        error: str | None = None
        complete = False
        body = b"".join(piece for _, piece in exchange.pieces)
        if exchange.status is not None and exchange.status != 200:
            error = _error_text(body)
        for stamp, event in _events(exchange) if exchange.status == 200 else ():
            if event == b"[DONE]":
                complete = True
                continue
            content = _json(event)
            if content is None:
                error = f"not JSON: {event[:200]!r}"
            elif "error" in content:
                error = _error_text(event)
            else:
                if content.get("choices"):
                    tokens.append(stamp)
                usage = content.get("usage") or usage
        outcome: Outcome
        if exchange.failure == "timeout":
            outcome = "timeout"
        elif exchange.failure or exchange.status is None:
            outcome = "disconnect"
        elif exchange.status != 200:
            outcome = "http_error"
        elif error is not None:
            outcome = "stream_error"
        else:
            outcome = "ok" if complete and tokens else "truncated"
        first, last, sent = (tokens[0], tokens[-1], exchange.sent) if tokens else (None, None, exchange.sent)
        return cls(
            index=exchange.index,
            outcome=outcome,
            error=error,
            status=exchange.status,
            prompt_tokens=usage.get("prompt_tokens"),
            completion_tokens=usage.get("completion_tokens"),
            scheduled_s=since(exchange.scheduled),
            sent_s=since(sent),
            headers_s=since(exchange.headers),
            first_byte_s=since(exchange.pieces[0][0] if exchange.pieces else None),
            first_token_s=since(first),
            last_token_s=since(last),
            end_s=since(exchange.end),
            ttft_s=None if first is None or sent is None else round(first - sent, 6),
            e2e_s=None if last is None or sent is None else round(last - sent, 6),
            token_times_s=[round(t - start, 6) for t in tokens],
        )


def _events(exchange: Exchange) -> Iterator[tuple[float, bytes]]:
    """(arrival, data) of each server-sent event; an event arrives with the piece that holds its end."""
    rest = b""
    for stamp, piece in exchange.pieces:
        *lines, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield stamp, line[5:].strip()


def _json(text: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _error_text(body: bytes) -> str:
    """The server's message, whether it stands in OpenAI's shape or not."""
    error: Any = _json(body) or body.decode(errors="replace")
    while isinstance(error, dict):
        error = error.get("error") or error.get("message") or error.get("detail") or json.dumps(error)
    return str(error)[:500]


def write_requests(records: Iterable[RequestRecord], path: Path) -> None:
    """Write one JSON line a request."""
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(asdict(record), separators=(",", ":")) + "\n")


def read_requests(path: Path) -> list[RequestRecord]:
    """The records in a `requests.jsonl`.

    Raises:
        BenchError: a line is not a record.
    """
    records = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                records.append(RequestRecord(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise BenchError(f"{path}: line {number} is no request record: {error}") from None
    return records

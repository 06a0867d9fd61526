"""One record a request: what its bytes contain, and when they came. Parsing happens here, after the run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from bench.errors import count_text
from bench.load.answer import Answer, answer_of, contents_of, quoted
from bench.load.exchange import Exchange
from bench.load.response import FIELD, Response
from bench.runs.request import Outcome, RequestRecord
from bench.workloads.endpoints import ENDPOINTS


def record_of(exchange: Exchange, start: float) -> RequestRecord:
    """The record of an exchange of a run that started at `start` on the exchange's clock."""

    def since(stamp: float | None) -> float | None:
        return None if stamp is None else round(stamp - start, 6)

    response = Response(exchange)
    answer = answer_of(response, ENDPOINTS[exchange.endpoint], streamed=exchange.streamed)
    outcome, error = _outcome(exchange, response, answer)
    sent = exchange.sent if exchange.first_sent is None else exchange.first_sent
    first = answer.tokens[0] if answer.tokens and exchange.streamed and not answer.whole else None
    last = answer.tokens[-1] if answer.tokens else None
    usage = answer.usage
    return RequestRecord(
        index=exchange.index,
        after=exchange.let_go,
        outcome=outcome,
        error=error,
        status=response.status,
        prompt_asked=exchange.prompt_asked,
        output_asked=None if exchange.natural else exchange.output_asked,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
        scheduled_s=since(exchange.scheduled),
        sent_s=since(sent),
        headers_s=since(response.headers),
        first_byte_s=since(response.pieces[0][0] if response.pieces else None),
        first_token_s=since(first),
        first_output_s=since(None if first is None else answer.first_output),
        last_token_s=since(last),
        end_s=since(exchange.end),
        ttft_s=None if first is None or sent is None else round(first - sent, 6),
        e2e_s=None if last is None or sent is None else round(last - sent, 6),
        token_times_s=[round(t - start, 6) for t in answer.tokens],
        streamed_tokens=answer.streamed,
        streamed_least=answer.least,
        first_tokens=None if answer.first is None else round(answer.first, 3),
        arrivals=answer.arrivals,
        finish_reason=answer.finish,
        done=answer.done,
        resent=exchange.resent,
        retry_after_s=response.retry_after_s,
        attempts=exchange.attempts,
        waited_s=round(exchange.waited_s, 6),
        draft_tokens=answer.drafts.drafted,
        accepted_tokens=answer.drafts.accepted,
        reasoning_tokens=answer.reasoned,
        request_class=exchange.request_class,
        **(_kept(exchange, response) if exchange.keeps else {}),
    )


def _kept(exchange: Exchange, response: Response) -> dict[str, Any]:
    """What only a workload that keeps answers records."""
    endpoint = ENDPOINTS[exchange.endpoint]
    try:
        text = "".join(map(endpoint.text, contents_of(response, streamed=exchange.streamed)))
        text = text.encode("utf-8", "replace").decode()  # JSON may hold half of a character
    except (AttributeError, LookupError, TypeError):  # it is no answer, which the outcome says
        text = None
    return {
        "answer": text,
        "request_digest": _request_digest(exchange.payload),
        "prompt_place": exchange.place,
        "prompt_digest": exchange.digest,
    }


def _request_digest(payload: bytes) -> str | None:
    """What tells a request from others, but for the model's name: two may be asked the same. None of one that was never written."""
    body = payload.partition(b"\r\n\r\n")[2]
    if not body:
        return None
    content = {key: value for key, value in json.loads(body).items() if key != "model"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _outcome(exchange: Exchange, response: Response, answer: Answer) -> tuple[Outcome, str | None]:
    lost = exchange.error if exchange.failure else None
    if exchange.failure == "timeout":
        return "timeout", lost or answer.error
    if response.status is None:
        return "disconnect", lost
    # What a server sent before it hung up explains more than that it did.
    if response.status != 200:
        return "http_error", answer.error or lost
    if answer.failed:
        return "stream_error", answer.error
    if exchange.failure and not answer.done:
        return "disconnect", lost or answer.error
    if answer.ended and (response.complete or answer.done):
        return "ok", answer.usage.odd or None
    came, last = count_text(len(answer.tokens), "chunk"), response.body.rstrip().rpartition(b"\n")[2]
    words = f"; its last line is {quoted(last)}" if last and not FIELD.match(last) else ""
    return "truncated", answer.error or f"it ended after {came} with tokens, without [DONE], a finish_reason or a usage{words}"

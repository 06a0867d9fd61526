"""A request's bytes, as the openai SDK would send them.

The SDK takes milliseconds a request, which an open loop at hundreds of requests a second cannot pay even beforehand. So it builds
one of each run; the others are that one with another prompt and output length. A test holds them against the SDK's own, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bench.endpoints import ENDPOINTS, Endpoint
from bench.errors import BenchError
from bench.load.prompts import FIRST_ID, request_ids
from bench.load.schedule import PlannedRequest
from bench.load.sdk import sdk_request
from bench.load.target import Target
from bench.records.form import RequestForm
from bench.study import Workload

__all__ = ["Payloads", "letters"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Payloads:
    """Makes the bytes of a run's requests, in the form that the target takes.

    Args:
        seed: makes the prompts; another run must have another. vocabulary: token ids lie below it.

    Raises:
        BenchError: the SDK refuses to build a request.
    """

    def __init__(self, target: Target, workload: Workload, *, seed: str, vocabulary: int) -> None:
        self._endpoint, self._seed, self._vocabulary = ENDPOINTS[workload.endpoint], seed, vocabulary
        self._form = target.form(workload.endpoint)
        self._text, self._limit = self._endpoint.sends_text(self._form), self._endpoint.limit(self._form)
        prompt: str | list[int] = "" if self._text else [0]
        options = self._endpoint.options(self._form, prompt, 1, stream=workload.stream)
        self._head, self._body = _template(target, self._endpoint, options)

    def of(self, request: PlannedRequest) -> bytes:
        """The request's bytes, head and body."""
        self._endpoint.put(self._body, self._prompt(request))
        self._body[self._limit] = request.output_tokens
        body = _json(self._body)
        return self._head % len(body) + body

    def _prompt(self, request: PlannedRequest) -> str | list[int]:
        if not self._text:
            return request_ids(self._seed, request.conversation, request.shared_tokens, request.prompt_tokens, self._vocabulary)
        count, rest = _letters_of(self._form, request.prompt_tokens)
        # What is shared is counted in tokens too, and what the server adds is part of it.
        shared = _letters_of(self._form, request.shared_tokens)[0] if request.shared_tokens else 0
        ids = request_ids(self._seed, request.conversation, shared, count, FIRST_ID + len(_LETTERS))
        return letters(ids) + "." * rest


def _letters_of(form: RequestForm, tokens: int) -> tuple[int, int]:
    """Letters of a prompt of so many tokens, one at least, and full stops to add where a letter takes several."""
    count, rest = divmod(tokens - form.template_tokens, form.letter_tokens)
    return (count, rest) if count > 0 else (1, 0)


def letters(ids: Sequence[int]) -> str:
    """Text whose length in tokens is known: single letters after a space, which tokenizers neither merge nor split further.

    How many tokens a letter takes, and how many the server adds, is in the `RequestForm`.
    """
    return "".join(" " + _LETTERS[(i - FIRST_ID) % 26] for i in ids)


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _template(target: Target, endpoint: Endpoint, options: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """What the SDK sends for a request with these options: the head with a place for the body's length, and the body."""
    request = sdk_request(target, endpoint, options)
    body: dict[str, Any] = json.loads(request.content)
    if _json(body) != request.content:
        raise BenchError(
            "the openai SDK writes JSON otherwise than expected; Saturate needs the pinned version (requirements.lock)."
        )
    lines = [request.method.encode() + b" " + request.url.raw_path.replace(b"%", b"%%") + b" HTTP/1.1"]
    # Compressed answers would be stamped as their compressor flushes them. Headers that are given are written as they are given.
    left_out = {b"accept-encoding", *(name.lower().encode() for name in target.headers)}
    left_out |= {b"authorization"} if target.keyless else set()
    for name, value in request.headers.raw:
        if name.lower() not in left_out:
            lines.append(name + b": " + (b"%d" if name.lower() == b"content-length" else value.replace(b"%", b"%%")))
    lines += [f"{name}: {value}".encode().replace(b"%", b"%%") for name, value in target.headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n", body

"""A request's bytes, as the openai SDK would send them.

The SDK takes milliseconds a request, which an open loop at hundreds of requests a second cannot pay even beforehand. So it builds
one of each run; the others are that one with another prompt and output length. A test holds them against the SDK's own, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import requests

from bench.errors import BenchError
from bench.http import post
from bench.load.prompts import FIRST_ID, request_ids
from bench.load.schedule import PlannedRequest
from bench.load.target import Target
from bench.study import Workload

__all__ = ["Payloads"]


class Payloads:
    """Makes the bytes of a run's requests.

    Args:
        seed: makes the prompts; another run must have another. vocabulary: token ids lie below it.

    Raises:
        BenchError: the SDK refuses to build a request.
    """

    def __init__(self, target: Target, workload: Workload, *, seed: str, vocabulary: int) -> None:
        self._chat, self._seed, self._vocabulary = workload.endpoint == "chat", seed, vocabulary
        self._units = _Units(target) if self._chat else None
        self._head, self._body = _template(target, workload)

    def of(self, request: PlannedRequest) -> bytes:
        """The request's bytes, head and body."""
        prompt = self._prompt(request)
        if self._chat:
            self._body["messages"] = [{"role": "user", "content": prompt}]
        else:
            self._body["prompt"] = prompt
        self._body["max_tokens"] = request.output_tokens
        body = _json(self._body)
        return self._head % len(body) + body

    def _prompt(self, request: PlannedRequest) -> str | list[int]:
        if self._units is None:
            return request_ids(self._seed, request.conversation, request.shared_tokens, request.prompt_tokens, self._vocabulary)
        letters, rest = self._units.count(request.prompt_tokens)
        # What is shared is counted in tokens too, and the template is part of it.
        shared = self._units.count(request.shared_tokens)[0] if request.shared_tokens else 0
        ids = request_ids(self._seed, request.conversation, shared, letters, FIRST_ID + len(self._units.LETTERS))
        return self._units.text(ids) + "." * rest


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _template(target: Target, workload: Workload) -> tuple[bytes, dict[str, Any]]:
    """What the SDK sends for a request of this workload: the head with a place for the body's length, and the body."""
    # Here, since it takes a second to import, which nothing but a run should pay.
    import httpx2  # noqa: PLC0415
    import openai  # noqa: PLC0415

    class Caught(Exception):
        """The request is built; there is nothing to send it to."""

    class Catch(httpx2.BaseTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            self.request = request
            raise Caught

    catch = Catch()
    options: dict[str, Any] = {
        "model": target.model,
        "max_tokens": 1,
        "temperature": 0,
        "stream": workload.stream,
        "extra_body": {"ignore_eos": True},
    }
    if workload.stream:
        options["stream_options"] = {"include_usage": True}
    try:
        with httpx2.Client(transport=catch) as http, openai.OpenAI(
            base_url=f"{target.base_url.rstrip('/')}/v1", api_key=target.api_key, http_client=http, max_retries=0
        ) as sdk:  # fmt: skip
            if workload.endpoint == "chat":
                sdk.chat.completions.create(messages=[{"role": "user", "content": ""}], **options)
            else:
                sdk.completions.create(prompt=[0], **options)
    except Exception as error:
        if not hasattr(catch, "request"):
            raise BenchError(
                f"the openai SDK would not build a request: {target.without_secrets(repr(error))}. Check the model's name and "
                "OPENAI_API_KEY."
            ) from None
    request = catch.request
    body: dict[str, Any] = json.loads(request.content)
    if _json(body) != request.content:
        raise BenchError(
            "the openai SDK writes JSON otherwise than expected; Saturate needs the pinned version (requirements.lock)."
        )
    lines = [request.method.encode() + b" " + request.url.raw_path.replace(b"%", b"%%") + b" HTTP/1.1"]
    # Compressed answers would be stamped as their compressor flushes them.
    left_out = {b"accept-encoding", *(name.lower().encode() for name in target.headers)}
    if target.headers and target.api_key == Target.api_key:
        left_out.add(b"authorization")  # a gateway that takes another header may refuse a key that is none
    for name, value in request.headers.raw:
        if name.lower() not in left_out:
            lines.append(name + b": " + (b"%d" if name.lower() == b"content-length" else value.replace(b"%", b"%%")))
    lines += [f"{name}: {value}".encode().replace(b"%", b"%%") for name, value in target.headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n", body


class _Units:
    """Text whose length in tokens is known: single letters after a space, which tokenizers neither merge nor split further.

    How many tokens a letter takes, and how many the chat's template adds, is asked of the server's /tokenize once a run; a server
    without it is taken to count one token a letter and none for the template, and its own count shows it where that is wrong.
    """

    LETTERS = "abcdefghijklmnopqrstuvwxyz"

    def __init__(self, target: Target) -> None:
        self._target = target
        few, many = (self._ask(n) for n in (8, 72))
        each = (many - few) // 64 if few else 0
        # A count that does not grow with the text counts nothing.
        self._each, self._template = (each, few - 8 * each) if each > 0 else (1, 0)

    def _ask(self, count: int) -> int:
        """Tokens of a chat with a text of `count` letters; 0 where the server does not count them."""
        chat = {"model": self._target.model, "messages": [{"role": "user", "content": self.text([FIRST_ID] * count)}]}
        try:
            answer = self._post("tokenize", chat)
            if "count" in answer:
                return int(answer["count"])
            # llama.cpp counts tokens of text alone, and has its template applied elsewhere.
            text = self._post("apply-template", chat)["prompt"]
            return len(self._post("tokenize", {"content": text, "parse_special": True})["tokens"])
        except (requests.RequestException, ValueError, KeyError, TypeError):
            return 0

    def _post(self, path: str, content: dict[str, Any]) -> Any:
        return post(f"{self._target.base_url}/{path}", content, headers=self._target.headers).json()

    def count(self, tokens: int) -> tuple[int, int]:
        """Letters of a chat of so many tokens, one at least, and full stops to add where a letter takes several."""
        letters, rest = divmod(tokens - self._template, self._each)
        return (letters, rest) if letters > 0 else (1, 0)

    def text(self, ids: Sequence[int]) -> str:
        """The text of these ids."""
        return "".join(" " + self.LETTERS[(i - FIRST_ID) % 26] for i in ids)

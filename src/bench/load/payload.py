"""A request's bytes, as the openai SDK would send them.

The SDK takes milliseconds a request, which an open loop at hundreds of requests a second cannot pay even beforehand. So it builds
one of each run; the others are that one with another prompt and output length. A test holds them against the SDK's own, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from bench.errors import BenchError
from bench.load.answer import Continued
from bench.load.sdk import sdk_request
from bench.load.target import Target
from bench.workloads.endpoints import ENDPOINTS, Endpoint, Prompt
from bench.workloads.prompts import Making, Origin
from bench.workloads.schedule import PlannedRequest
from bench.workloads.workload import Workload


class Payloads:
    """Makes the bytes of a run's requests, in the form that the target takes.

    Args:
        seed: makes the prompts; another run must have another. schedule_seed: the same for runs that are compared.
        vocabulary: token ids lie below it.

    Raises:
        BenchError: the SDK refuses to build a request, or a file of prompts cannot be read.
    """

    def __init__(self, target: Target, workload: Workload, *, seed: str, schedule_seed: str = "0", vocabulary: int) -> None:
        self._of: dict[str | None, _Payloads] = {}
        for name, part in workload.parts.items():
            model = workload.classes[name].model if name else None
            seeds = {"seed": seed, "schedule_seed": schedule_seed}
            self._of[name] = _Payloads(
                replace(target, model=model or target.model),
                part,
                **{key: f"{value}/{name}" if name else value for key, value in seeds.items()},
                vocabulary=vocabulary,
            )

    def of(self, request: PlannedRequest) -> bytes:
        """The request's bytes, head and body."""
        return self._of[request.request_class].of(_in_class(request))

    def origin(self, request: PlannedRequest) -> Origin | None:
        """Which of the source's prompts the request has; None where prompts are made."""
        return self._of[request.request_class].origin(_in_class(request))

    def continued(self, request: PlannedRequest) -> Continued | None:
        """What is known of a turn whose history will hold the server's own answers; None where there is no such history."""
        return self._of[request.request_class].continued(request)


def _in_class(request: PlannedRequest) -> PlannedRequest:
    """The request with its conversation's number within its class, by which its prompt is drawn."""
    return request if request.request_class is None else replace(request, conversation=request.drawn)


class _Payloads:
    """Payloads of a workload without classes, or of one class."""

    def __init__(self, target: Target, workload: Workload, *, seed: str, schedule_seed: str, vocabulary: int) -> None:
        self._endpoint = endpoint = ENDPOINTS[workload.endpoint]
        form = target.form(workload.endpoint)
        self._limit = endpoint.limit(form) if endpoint.limits else None
        turns = workload.turns
        making = Making(
            endpoint, form, workload.cache, seed, schedule_seed, vocabulary, turns=workload.turn_count, own=workload.own_history
        )
        self._prompt, self._origin = workload.prompts.maker(making), workload.prompts.origins(making)
        self._extras = workload.prompts.extras(making)
        self._own = making.own
        placeholder: Prompt = "" if endpoint.sends_text(form) else [0]
        options = endpoint.options(form, placeholder, 1, stream=workload.stream, natural=workload.natural, body=workload.body)
        self._head, self._bare = template(target, endpoint, options)
        self._body = self._bare
        self._session = (turns.session_header, seed) if turns and turns.session_header else None

    def of(self, request: PlannedRequest) -> bytes:
        head, body = self._written(request), as_json(self._body)
        return head % len(body) + body

    def origin(self, request: PlannedRequest) -> Origin | None:
        return self._origin(request)

    def continued(self, request: PlannedRequest) -> Continued | None:
        if not self._own:
            return None
        head, (key,) = self._written(request), self._endpoint.keys
        # The list of messages is the body's last key: in an object, order means nothing.
        rest = as_json({name: value for name, value in self._body.items() if name != key})[:-1]
        opening = b"%s%s%s:[" % (rest, b"," * (len(rest) > 1), as_json(key))
        messages = self._body[key]
        recorded = bool(request.turn) and messages[0]["role"] == "assistant"
        return Continued(head, opening, as_json(messages)[1:-1], recorded)

    def _written(self, request: PlannedRequest) -> bytes:
        """The head, with a place for the body's length; the body is this request's from now on."""
        prompt = self._prompt(request)
        self._body = self._bare | dict(self._extras(request))
        self._endpoint.put(self._body, prompt)
        if self._limit:
            self._body[self._limit] = request.output_tokens
        if not self._session:
            return self._head
        name, seed = self._session
        value = hashlib.sha256(f"{seed}/{request.conversation}".encode()).hexdigest()[:16]
        return self._head[:-2] + f"{name}: {value}\r\n\r\n".encode().replace(b"%", b"%%")


def as_json(body: Any) -> bytes:
    """As the SDK writes it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def template(target: Target, endpoint: Endpoint, options: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """What the SDK sends for a request with these options: the head with a place for the body's length, and the body."""
    request = sdk_request(target, endpoint, options)
    body: dict[str, Any] = json.loads(request.content)
    if as_json(body) != request.content:
        raise BenchError(
            "the openai SDK writes JSON differently than expected; Saturate needs the pinned version (requirements.lock)."
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

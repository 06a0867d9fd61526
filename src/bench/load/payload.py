"""A request's bytes, as the openai SDK would send them.

The SDK takes milliseconds a request, which an open loop at hundreds of requests a second cannot pay even beforehand. So it builds
one of each run; the others are that one with another prompt and output length. A test holds them against the SDK's own, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bench.errors import BenchError
from bench.load.answer import Continued
from bench.load.exchange import Exchange
from bench.load.sdk import sdk_request
from bench.load.target import Target
from bench.workloads.endpoints import ENDPOINTS, Endpoint, Prompt
from bench.workloads.prompts import Making
from bench.workloads.schedule import PlannedRequest
from bench.workloads.workload import Workload


def exchanges(
    target: Target, workload: Workload, *, seed: str, schedule_seed: str = "0", vocabulary: int
) -> Callable[[PlannedRequest], Exchange]:
    """What makes the exchange of each request of a run, with its bytes in the form that the target takes.

    Args:
        seed: makes the prompts; another run must have another. schedule_seed: the same for runs that are compared.
        vocabulary: token ids lie below it.

    Raises:
        BenchError: the SDK refuses to build a request, or a file of prompts cannot be read.
    """
    if not workload.classes:
        return _maker(target, workload, seed, schedule_seed, vocabulary)
    makers = {}
    for name, each in workload.classes.items():
        named, seeds = replace(target, model=each.model or target.model), (f"{seed}/{name}", f"{schedule_seed}/{name}")
        makers[name] = _maker(named, workload.of(name), *seeds, vocabulary)
    # In a class a prompt is drawn by its conversation's number there.
    return lambda request: makers[request.request_class or ""](replace(request, conversation=request.drawn))


def _maker(
    target: Target, workload: Workload, seed: str, schedule_seed: str, vocabulary: int
) -> Callable[[PlannedRequest], Exchange]:
    """What makes those of a workload without classes, or of one class."""
    endpoint, form = ENDPOINTS[workload.endpoint], target.form(workload.endpoint)
    natural = workload.natural
    own = workload.turns is not None and not workload.prompts.sized  # whether the server's own answers are the history
    made_of = workload.prompts.maker(
        Making(endpoint, form, workload.cache, seed, schedule_seed, vocabulary, workload.turn_count)
    )
    placeholder: Prompt = "" if endpoint.sends_text(form) else [0]
    options = endpoint.options(form, placeholder, 1, stream=workload.stream, natural=natural, body=workload.body)
    common, bare = template(target, endpoint, options)
    session = workload.turns.session_header if workload.turns else None

    def make(request: PlannedRequest) -> Exchange:
        made, head = made_of(request), common
        body = {**bare, **made.extras}
        endpoint.put(body, made.prompt)
        if endpoint.limits:
            body[endpoint.limit(form)] = request.output_tokens
        if session:
            value = hashlib.sha256(f"{seed}/{request.conversation}".encode()).hexdigest()[:16]
            head = head[:-2] + f"{session}: {value}\r\n\r\n".encode().replace(b"%", b"%%")
        text = as_json(body)
        return Exchange(
            request.index,
            head % len(text) + text,
            _continued(head, body, endpoint, request) if own else None,
            prompt_asked=request.prompt_asked,
            output_asked=request.output_tokens or None,
            natural=natural,
            due_s=request.due_s,
            after=request.after,
            think_s=request.think_s,
            streamed=workload.stream,
            endpoint=workload.endpoint,
            keeps=workload.keep_answers,
            place=made.place if workload.keep_answers else None,
            digest=made.digest if workload.keep_answers else None,
            request_class=request.request_class,
        )

    return make


def _continued(head: bytes, body: dict[str, Any], endpoint: Endpoint, request: PlannedRequest) -> Continued:
    (key,) = endpoint.keys
    # The list of messages is the body's last key: in an object, order means nothing.
    rest = as_json({name: value for name, value in body.items() if name != key})[:-1]
    opening = b"%s%s%s:[" % (rest, b"," * (len(rest) > 1), as_json(key))
    recorded = bool(request.turn) and body[key][0]["role"] == "assistant"
    return Continued(head, opening, as_json(body[key])[1:-1], recorded)


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
    # Compressed answers would be stamped as their compressor flushes them. Headers that are given are written as they are given.
    left_out = {b"accept-encoding", *(name.lower().encode() for name in target.headers)}
    # A gateway that takes another header may refuse a key that does not exist.
    left_out |= {b"authorization"} if target.headers and target.key is None else set()
    kept = [(name, value) for name, value in request.headers.raw if name.lower() not in left_out]
    lines = [request.method.encode() + b" " + request.url.raw_path.replace(b"%", b"%%") + b" HTTP/1.1"]
    for name, value in [*kept, *((name.encode(), value.encode()) for name, value in target.headers.items())]:
        lines.append(name + b": " + (b"%d" if name.lower() == b"content-length" else value.replace(b"%", b"%%")))
    return b"\r\n".join(lines) + b"\r\n\r\n", body

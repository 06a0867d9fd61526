"""Requests by the openai SDK: what it would send, and how it reads what a server answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.load.exchange import Exchange
from bench.load.response import Response
from bench.load.target import Target
from bench.workloads.endpoints import Endpoint

if TYPE_CHECKING:
    import httpx2
    import openai


@dataclass
class Reading:
    """One answer, as the SDK read it.

    Attributes:
        text: of the answer, without reasoning. finish: why it ended. prompt, completion: the counts of its usage.
        error: why the SDK could not read it.
    """

    text: str = ""
    finish: str | None = None
    prompt: int | None = None
    completion: int | None = None
    error: str | None = None


@contextmanager
def _client(target: Target, transport: httpx2.BaseTransport, timeout_s: float) -> Iterator[openai.OpenAI]:
    # Here, since it takes a second to import, which nothing but a run should pay.
    import httpx2  # noqa: PLC0415
    import openai  # noqa: PLC0415

    with httpx2.Client(transport=transport, timeout=timeout_s, headers={"Accept-Encoding": "identity"}) as http, openai.OpenAI(
        base_url=f"{target.base_url.rstrip('/')}/v1",
        api_key=target.api_key,
        http_client=http,
        max_retries=0,
    ) as sdk:  # fmt: skip
        yield sdk


def sdk_request(target: Target, endpoint: Endpoint, options: dict[str, Any]) -> httpx2.Request:
    """What the SDK would send.

    Raises:
        BenchError: it refuses to build a request.
    """
    import httpx2  # noqa: PLC0415

    class Caught(Exception):
        """The request is built; there is nothing to send it to."""

    class Catch(httpx2.BaseTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            self.request = request
            raise Caught

    catch = Catch()
    try:
        with _client(target, catch, 5.0) as sdk:
            endpoint.created(sdk, target.model, options)
    except Exception as error:
        if not hasattr(catch, "request"):
            raise BenchError(
                f"the openai SDK would not build a request: {target.without_secrets(repr(error))}. Check the model's name and "
                "OPENAI_API_KEY."
            ) from None
    return catch.request


def sdk_reading(target: Target, endpoint: Endpoint, options: dict[str, Any], exchange: Exchange) -> Reading:
    """How the SDK reads the answer that an exchange has. Args: options: of the request."""
    import httpx2  # noqa: PLC0415

    class Replay(httpx2.BaseTransport):
        def handle_request(self, _request: httpx2.Request) -> httpx2.Response:
            response = Response(exchange)
            return httpx2.Response(response.status or 0, headers={"Content-Type": response.content_type}, content=response.body)

    reading = Reading()
    try:
        with _client(target, Replay(), 5.0) as sdk:
            answer = endpoint.created(sdk, target.model, options)
            for chunk in answer if exchange.streamed else [answer]:
                said = endpoint.read(chunk)
                reading.text += said.text
                reading.finish = said.finish or reading.finish
                for prompt, completion in (
                    [said.counts] if said.counts else []
                ):  # one event may have the one, a later one the other
                    reading.prompt = reading.prompt if prompt is None else prompt
                    reading.completion = reading.completion if completion is None else completion
    except Exception as error:  # whatever a parser of other people's text may raise
        reading.error = target.without_secrets(f"{type(error).__name__}: {error}")[:300]
    return reading

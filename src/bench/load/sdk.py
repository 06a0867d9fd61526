"""Requests by the openai SDK: what it would send, and how it reads what a server answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.load.exchange import Exchange
from bench.load.response import Response
from bench.load.target import Target
from bench.workloads.endpoints import Endpoint

if TYPE_CHECKING:
    import httpx2
    import openai


@contextmanager
def _client(target: Target, handle: Callable[[httpx2.Request], httpx2.Response]) -> Iterator[openai.OpenAI]:
    """The SDK, whose requests `handle` answers in place of a server."""
    # Here, since it takes a second to import, which nothing but a run should pay.
    import httpx2  # noqa: PLC0415
    import openai  # noqa: PLC0415

    transport = httpx2.MockTransport(handle)
    with httpx2.Client(transport=transport, headers={"Accept-Encoding": "identity"}) as http, openai.OpenAI(
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
    caught: list[httpx2.Request] = []

    def catch(request: httpx2.Request) -> httpx2.Response:
        caught.append(request)
        raise ConnectionError  # there is nothing to send it to

    try:
        with _client(target, catch) as sdk:
            endpoint.created(sdk, target.model, options)
    except Exception as error:
        if not caught:
            raise BenchError(
                f"the openai SDK would not build a request: {target.without_secrets(repr(error))}. Check the model's name and "
                "OPENAI_API_KEY."
            ) from None
    return caught[0]


def sdk_contents(target: Target, endpoint: Endpoint, options: dict[str, Any], exchange: Exchange) -> list[dict[str, Any]]:
    """The objects that the SDK reads in the answer that an exchange has: its events, or the whole; it may raise anything.

    Args:
        options: of the request.
    """
    import httpx2  # noqa: PLC0415

    response = Response(exchange)
    headers = {"Content-Type": response.field(b"content-type")}

    def replay(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(response.status or 0, headers=headers, content=response.body)

    with _client(target, replay) as sdk:
        answer = endpoint.created(sdk, target.model, options)
        chunks = answer if exchange.streamed else [answer]
        return [chunk if isinstance(chunk, dict) else chunk.to_dict(warnings=False) for chunk in chunks]

"""Requests by the openai SDK: what it would send, and how it reads what a server answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError
from bench.load.answer import ends_in_error
from bench.load.exchange import Exchange, oversized
from bench.load.response import DONE
from bench.load.target import Target
from bench.runs.request import RequestForm
from bench.workloads.endpoints import Endpoint, Prompt, Read

if TYPE_CHECKING:
    import httpx2
    import openai


@dataclass
class Reading:
    """One answer, as the SDK read it, and its bytes with their stamps for our own reader.

    Attributes:
        exchange: the request's, as the load client would have kept it. text: of the answer, without reasoning. finish: why it ended.
        prompt, completion: the counts of its usage. error: why the SDK could not read it. endless: whether it was given up for being
            far longer than what was asked for.
    """

    exchange: Exchange
    text: str = ""
    finish: str | None = None
    prompt: int | None = None
    completion: int | None = None
    error: str | None = None
    endless: bool = False


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


def sdk_reading(
    target: Target, form: RequestForm, endpoint: Endpoint, prompt: Prompt, output: int, *, stream: bool, timeout_s: float
) -> Reading:
    """Send one request with the SDK and read its answer.

    Args:
        prompt: text, or token ids. output: tokens that it asks for. timeout_s: within which the answer has to end.
    """
    import httpx2  # noqa: PLC0415
    import openai  # noqa: PLC0415

    from bench.http import tls_context  # noqa: PLC0415

    until = time.monotonic() + timeout_s

    class Endless(Exception):
        """The answer is far longer than what was asked for."""

    class TooLate(Exception):
        """It has not ended in time."""

    class Tap(httpx2.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream, self._pieces = stream, iter(stream)
            self._failed = False

        def __iter__(self) -> Iterator[bytes]:
            for piece in self._pieces:
                if not piece:
                    continue
                exchange.times.append(time.monotonic())
                exchange.reads.append(b"%x\r\n%s\r\n" % (len(piece), piece))
                if oversized(exchange):
                    raise Endless
                if exchange.times[-1] > until:
                    raise TooLate
                self._failed = ends_in_error(exchange)
                yield piece
                if self._failed:
                    return

        def close(self) -> None:
            # Where the SDK gives up, our reader goes on.
            if not self._failed and not any(DONE in read for read in exchange.reads[-3:]):
                with suppress(Exception):
                    deque(self, maxlen=0)
            self._stream.close()

    class Recording(httpx2.HTTPTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            if target.keyless:
                del request.headers["Authorization"]
            request.headers.update(target.headers)
            response = super().handle_request(request)
            kept = [
                b"%s: %s\r\n" % pair
                for pair in response.headers.raw
                if pair[0].lower() not in (b"content-length", b"transfer-encoding")
            ]
            head = b"HTTP/1.1 %d X\r\n%stransfer-encoding: chunked\r\n\r\n" % (response.status_code, b"".join(kept))
            exchange.times, exchange.reads = [time.monotonic()], [head]
            response.stream = Tap(response.stream)
            return response

    options = endpoint.options(form, prompt, output, stream=stream)
    exchange = Exchange(0, output_asked=output, streamed=stream, endpoint=endpoint.name, scheduled=time.monotonic())
    reading = Reading(exchange)
    verify = tls_context() if target.base_url.startswith("https:") else True
    exchange.sent = time.monotonic()
    ended = False
    try:
        with _client(target, Recording(verify=verify), timeout_s) as sdk:
            answer = endpoint.created(sdk, target.model, options)
            for chunk in answer if stream else [answer]:
                _add(reading, endpoint.read(chunk))
            ended = True
    except openai.APIStatusError as error:
        with suppress(Exception):  # its body may be no text
            error.response.read()
        reading.error, ended = f"HTTP {error.status_code}", True
    except Endless:
        exchange.failure, reading.endless = "disconnect", True
        exchange.error = reading.error = "the answer is far longer than what was asked for"
    except (openai.APITimeoutError, TooLate):
        exchange.failure = "timeout"
        exchange.error = reading.error = f"no whole answer within {timeout_s:g} s"
    except openai.APIConnectionError as error:
        exchange.failure = "disconnect"
        exchange.error = reading.error = str(error.__cause__ or error)
    except Exception as error:  # whatever a parser of other people's text may raise
        reading.error = target.without_secrets(f"{type(error).__name__}: {error}")[:300]
        ended = exchange.failure is None
    exchange.end = time.monotonic()
    if exchange.reads and ended:
        exchange.times.append(exchange.end)
        exchange.reads.append(b"0\r\n\r\n")
    return reading


def _add(reading: Reading, said: Read) -> None:
    reading.text += said.text
    reading.finish = said.finish or reading.finish
    for prompt, completion in [said.counts] if said.counts else []:  # one event may have the one, a later one the other
        reading.prompt = reading.prompt if prompt is None else prompt
        reading.completion = reading.completion if completion is None else completion

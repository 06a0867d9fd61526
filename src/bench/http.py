"""Ask a server a small question, past any proxy: nothing has a place between us and what we measure."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError

__all__ = ["MOST_BYTES", "Oversized", "bounded", "direct_session", "get", "post"]

# A server must not fill the memory: neither with one answer, nor with one that never ends. Expositions of large servers have 0.1 MiB.
MOST_BYTES, _MOST_S = 8 * 2**20, 60.0


class Oversized(requests.RequestException):
    """An answer that is larger than any that is expected, or that does not end."""


def direct_session() -> requests.Session:
    """A session that ignores HTTP_PROXY and its like, and follows a server to no other one: what that answers would be recorded."""
    session = _OneServer()
    session.trust_env = False
    return session


class _OneServer(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        target = super().get_redirect_target(resp)
        here, there = urlsplit(resp.url), urlsplit(urljoin(resp.url, target or ""))
        return target if (here.scheme, here.netloc) == (there.scheme, there.netloc) else None


def get(url: str, *, key: str | None = None, timeout_s: float = 5.0) -> requests.Response:
    """GET `url`, with an API key where one is given.

    Raises:
        requests.RequestException: no answer, or one that is too large.
    """
    with direct_session() as session:
        return bounded(session.get(url, headers=_authorized(key), timeout=timeout_s, stream=True))


def post(url: str, content: dict[str, Any], *, key: str | None = None, timeout_s: float = 30.0) -> requests.Response:
    """POST `content` as JSON to `url`, with an API key where one is given.

    Raises:
        requests.RequestException: no answer, or one that is too large.
    """
    with direct_session() as session:
        return bounded(session.post(url, json=content, headers=_authorized(key), timeout=timeout_s, stream=True))


def bounded(answer: requests.Response) -> requests.Response:
    """The answer of a request made with `stream=True`, its body read as far as `MOST_BYTES`, after decompression, and for a minute.

    Raises:
        Oversized: there is more.
        requests.ConnectionError: it was cut off, or is not what its head announces.
    """
    content, begin = bytearray(), time.monotonic()
    try:
        # Not `iter_content`, which waits until a part is whole, however slowly its bytes come.
        while part := answer.raw.read1(1 << 16, decode_content=True):
            content += part
            if len(content) > MOST_BYTES:
                raise Oversized(f"{answer.url} answers with more than {MOST_BYTES // 2**20} MiB")
            if time.monotonic() - begin > _MOST_S:
                raise Oversized(f"{answer.url} has not ended its answer after {_MOST_S:g} s")
    except HTTPError as error:
        answer.close()
        raise requests.ConnectionError(error) from None
    except Oversized:
        answer.close()
        raise
    # Where `content`, `text` and `json()` look for a body that is read; its connection stays open for the next request.
    answer._content, answer._content_consumed = bytes(content), True  # type: ignore[attr-defined]
    return answer


def _authorized(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}

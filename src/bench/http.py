"""Ask a server a small question, past any proxy: nothing has a place between us and what we measure."""

from __future__ import annotations

from typing import Any

import requests

__all__ = ["direct_session", "get", "post"]


def direct_session() -> requests.Session:
    """A session that ignores HTTP_PROXY and its like."""
    session = requests.Session()
    session.trust_env = False
    return session


def get(url: str, *, key: str | None = None, timeout_s: float = 5.0) -> requests.Response:
    """GET `url`, with an API key where one is given.

    Raises:
        requests.RequestException: no answer.
    """
    with direct_session() as session:
        return session.get(url, headers=_authorized(key), timeout=timeout_s)


def post(url: str, content: dict[str, Any], *, key: str | None = None, timeout_s: float = 30.0) -> requests.Response:
    """POST `content` as JSON to `url`, with an API key where one is given.

    Raises:
        requests.RequestException: no answer.
    """
    with direct_session() as session:
        return session.post(url, json=content, headers=_authorized(key), timeout=timeout_s)


def _authorized(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}

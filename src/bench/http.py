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


def get(url: str, *, timeout_s: float = 5.0) -> requests.Response:
    """GET `url`.

    Raises:
        requests.RequestException: no answer.
    """
    with direct_session() as session:
        return session.get(url, timeout=timeout_s)


def post(url: str, content: dict[str, Any], *, timeout_s: float = 30.0) -> requests.Response:
    """POST `content` as JSON to `url`.

    Raises:
        requests.RequestException: no answer.
    """
    with direct_session() as session:
        return session.post(url, json=content, timeout=timeout_s)

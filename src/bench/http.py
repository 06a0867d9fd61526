"""Ask a server a small question, past any proxy: nothing has a place between us and what we measure."""

from __future__ import annotations

import requests

__all__ = ["direct_session", "get"]


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

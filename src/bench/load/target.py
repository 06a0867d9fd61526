"""The server that load is sent to."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from bench.errors import BenchError

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server: `base_url` without `/v1`, and the name under which it serves the model.

    Raises:
        BenchError: `base_url` is no address.
    """

    base_url: str
    model: str
    api_key: str = "none"

    def __post_init__(self) -> None:
        try:
            url = urlsplit(self.base_url)
            host, _ = url.hostname or "", url.port  # a port beyond 65535 raises
            host.encode("idna")  # as looking it up does: an empty or overlong part raises
        except ValueError as error:
            raise BenchError(f"{self.base_url!r} is no address: {error}. One is like http://127.0.0.1:8000.") from None
        if url.username is not None or url.password is not None:
            raise BenchError(
                "an address that holds a user or a password would be recorded; give a key in OPENAI_API_KEY instead."
            )
        if url.scheme not in ("http", "https") or not host:
            raise BenchError(f"{self.base_url!r} is no address: it starts with http:// or https:// and a host's name.")

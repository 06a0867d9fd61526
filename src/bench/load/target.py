"""The server that load is sent to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.errors import BenchError
from bench.fields import checked_address
from bench.records.environment import without_user, without_values

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server: `base_url` without `/v1`, and the name under which it serves the model.

    Attributes:
        api_key: sent to `/v1` as `Authorization: Bearer …`. headers: sent with each request; an `Authorization` among them replaces
            the key. Their values are secrets.

    Raises:
        BenchError: `base_url` is no address.
    """

    base_url: str
    model: str
    api_key: str = field(default="none", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        try:
            checked_address(self.base_url)
        except ValueError as error:
            raise BenchError(f"{without_user(self.base_url)!r} is {error}.") from None

    def without_secrets(self, text: str) -> str:
        """A server's words without the key and the headers' values."""
        return without_values(text, (self.api_key, *self.headers.values()))

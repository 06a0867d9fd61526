"""The server that load is sent to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.errors import BenchError
from bench.fields import checked_address
from bench.runs.environment import without_user, without_values
from bench.runs.request import RequestForm


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server: `base_url` without `/v1`, and the name under which it serves the model.

    Attributes:
        api_key: sent to `/v1` as `Authorization: Bearer …`. headers: sent with each request; an `Authorization` among them replaces
            the key. Their values are secrets.
        forms: how requests are written, by endpoint; `bench.load.introduction` finds that out.
        counts: whether answers say how many tokens they have; true until an introduction shows that they do not.
        reuses: whether a connection carries one request after another. What stands before a server may close one that it holds to it,
            and with it a request of ours that waits; so to servers that we did not start, each request goes on a connection of its own.

    Raises:
        BenchError: `base_url` is no address.
    """

    base_url: str
    model: str
    api_key: str = field(default="none", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    forms: Mapping[str, RequestForm] = field(default_factory=dict)
    counts: bool = True
    reuses: bool = True

    def __post_init__(self) -> None:
        try:
            checked_address(self.base_url)
        except ValueError as error:
            raise BenchError(f"{without_user(self.base_url)!r}: {error}.") from None

    def form(self, endpoint: str) -> RequestForm:
        """How requests to `endpoint` are written."""
        return self.forms.get(endpoint, RequestForm())

    @property
    def socket(self) -> tuple[str, int, bool]:
        """Its host and port, and whether it speaks TLS."""
        url = urlsplit(self.base_url)
        tls = url.scheme == "https"
        return url.hostname or "", url.port or (443 if tls else 80), tls

    @property
    def key(self) -> str | None:
        """The API key; None without one."""
        return None if self.api_key == Target.api_key else self.api_key

    def without_secrets(self, text: str) -> str:
        """A server's words without the key and the headers' values."""
        return without_values(text, (self.api_key, *self.headers.values()))

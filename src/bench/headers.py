"""Headers of requests, whose values stand in environment variables: a study names the variables and holds no value."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

from bench.errors import BenchError

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110's token
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# How a request is framed, and what its answer has to be, is the client's to say.
_OURS = (
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
)


def checked_name(name: str) -> str:
    """`name`, if a request may have a header that is called so; else a ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no header's name")
    if name.lower() in _OURS:
        raise ValueError(f"{name} is set by the client itself")
    return name


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """`headers`, if each is one that a request may have, with a value such as `$NAME` or `Bearer ${NAME}`.

    Raises:
        ValueError: one is not; the message does not repeat its value.
    """
    for name, value in headers.items():
        checked_name(name)
        if not _VARIABLE.search(value):
            raise ValueError(
                f"{name} contains the value itself; export it, and name its variable, such as {name}: $GATEWAY_KEY"
            )
        if not _VALUE.fullmatch(value):
            raise ValueError(f"{name} has a value that cannot be sent; give one line of ASCII, without spaces around it")
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("a header appears twice; upper and lower case are the same")
    return dict(headers)


def filled_headers(headers: Mapping[str, str], *, where: str) -> dict[str, str]:
    """The headers with the variables' values in place of their names.

    Args:
        where: what the message of an error begins with.

    Raises:
        BenchError: a variable is not set, or holds what no header can; the message does not repeat it.
    """

    return {name: _VARIABLE.sub(partial(_value, f"{where}.{name}"), template) for name, template in headers.items()}


def _value(where: str, found: re.Match[str]) -> str:
    variable = found[1] or found[2]
    value = os.environ.get(variable)
    if not value:
        raise BenchError(f"{where}: the variable {variable} is {'empty' if value == '' else 'not set'}. Export it.")
    if not _VALUE.fullmatch(value):
        raise BenchError(
            f"{where}: the variable {variable} cannot be sent in a header: it must be one line of ASCII, without spaces around it."
        )
    return value


def same_server(one: str, other: str) -> bool:
    """Whether two addresses have scheme, host and port in common: headers and a key for the one may go to the other."""
    return origin(one) == origin(other)


def origin(address: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of an address."""
    url = urlsplit(address)
    return url.scheme, url.hostname, url.port or {"http": 80, "https": 443}.get(url.scheme)


def own_headers(address: str, base_url: str, headers: Mapping[str, str]) -> dict[str, str]:
    """What a request to `address` carries for the server at `base_url`: its headers, and the key in OPENAI_API_KEY unless they have an
    `Authorization`. Nothing where `address` is another server's.

    Raises:
        BenchError: the key is what no header can hold; the message does not repeat it.
    """
    if not same_server(address, base_url):
        return {}
    key = os.environ.get("OPENAI_API_KEY")
    if not key or any(name.lower() == "authorization" for name in headers):
        return dict(headers)
    if not _VALUE.fullmatch(key):
        raise BenchError(
            "OPENAI_API_KEY cannot be sent in a header: it must be one line of ASCII, without spaces around it. Export it again."
        )
    return {"Authorization": f"Bearer {key}", **headers}


UNAUTHORIZED = (401, 403)
UNFIT = (400, 413, 422)  # what was asked, such as its length
RATE_LIMITED = 429
GATEWAY = (502, 503, 504)  # nothing behind it answers: not yet, not now, or not any more
BUSY = (RATE_LIMITED, *GATEWAY)  # says nothing about what was asked
RETRY_AFTER = (RATE_LIMITED, 503)  # may name the moment for another try

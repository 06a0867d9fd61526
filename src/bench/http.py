"""Ask a server a small question, past any proxy: nothing has a place between us and what we measure."""

from __future__ import annotations

import io
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from bench.bounds import MOST_BYTES, PATIENCE_S, SOON_S
from bench.headers import same_server


class Oversized(requests.RequestException):
    """An answer that is larger than any that is expected, or that does not end."""


class Broken(requests.ConnectionError):
    """An answer that began, and stopped, was cut off, or is not what its head announces."""


def api_root(address: str) -> str:
    """What an address has before `/v1`, whether it was given with it or not."""
    return address.rstrip("/").removesuffix("/v1").rstrip("/")


def metrics_root(address: str) -> str:
    """What an address of metrics has before their path: where its server answers other questions."""
    url = urlsplit(address)
    path = url.path.rstrip("/")
    for end in ("/metrics", "/engine_metrics", "/prometheus", "/v1"):
        path = path.removesuffix(end)
    return urlunsplit((url.scheme, url.netloc, path, "", ""))


def tls_context() -> ssl.SSLContext:
    """What servers' certificates are verified with: the system's authorities, or those of SSL_CERT_FILE."""
    return _context(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))


@cache
def _context(*_given: str | None) -> ssl.SSLContext:
    """Args: given: the variables' values, which OpenSSL heeds: another value is another context."""
    return ssl.create_default_context()


class _Verifying(HTTPAdapter):
    """Connections that are verified as those of the load are, not with the authorities that `requests` brings along."""

    def build_connection_pool_key_attributes(self, request: requests.PreparedRequest, verify: Any, cert: Any = None) -> Any:
        host, pool = super().build_connection_pool_key_attributes(request, verify, cert)
        if host["scheme"] == "https":
            pool["ssl_context"] = tls_context()
        return host, pool

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Does nothing: the context knows the authorities."""


def direct_session(headers: Mapping[str, str] | None = None) -> requests.Session:
    """A session that ignores HTTP_PROXY and its like, and sends `headers` with each request.

    It follows a server to no other one: what that answers would be recorded.
    """
    session = _OneServer()
    session.trust_env = False
    session.mount("https://", _Verifying())
    session.headers.update(headers or {})
    return session


class _OneServer(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        target = super().get_redirect_target(resp)
        return None if target is None or not same_server(resp.url, urljoin(resp.url, target)) else target


def get(
    url: str, *, key: str | None = None, headers: Mapping[str, str] | None = None, timeout_s: float = SOON_S
) -> requests.Response:
    """GET `url`, with an API key where one is given. A redirection is followed on the same scheme, host and port, and nowhere else.

    Args:
        headers: an `Authorization` among them replaces the key.

    Raises:
        requests.RequestException: no answer, or one that is too large.
    """
    login = {"Authorization": f"Bearer {key}"} if key else {}
    with direct_session({**login, **(headers or {})}) as session:
        try:
            answer = session.get(url, timeout=timeout_s, stream=True)
        except requests.Timeout as error:
            raise type(error)(f"no answer within {timeout_s:g} s", request=error.request) from error
        return bounded(answer)


def get_models(base_url: str, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> requests.Response:
    """Ask a server for its models. Args and errors as of `get`."""
    return get(f"{base_url}/v1/models", key=key, headers=headers)


def listed_models(answer: requests.Response) -> list[str] | None:
    """The names in an answer of `get_models`, whether its list stands in an object or alone; None where it has no list."""
    try:
        content = answer.json() if answer.ok else None
        if isinstance(content, dict):
            content = content.get("data") or content.get("models", content.get("data"))
        return None if content is None else [str(entry.get("id") or entry["name"]) for entry in content]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def models_text(names: Sequence[str]) -> str:
    """Models as a server lists them, ten at most; a name is quoted where it could be anything else."""
    shown = (name if name.isprintable() and len(name) <= 120 else repr(name)[:120] for name in names[:10])
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "") or "no model"


def leads_away(answer: requests.Response) -> str | None:
    """Where an answer leads that was not followed; None where it leads nowhere."""
    if answer.status_code not in range(300, 400) or "Location" not in answer.headers:
        return None
    return urljoin(answer.url, answer.headers["Location"])


def bounded(answer: requests.Response) -> requests.Response:
    """The answer of a request made with `stream=True`, its body read as far as `MOST_BYTES`, after decompression, and for a minute.

    Raises:
        Oversized: there is more.
        Broken: it stopped, was cut off, or is not what its head announces.
    """
    content, begin = bytearray(), time.monotonic()
    try:
        # Not `iter_content`, which waits until a part is whole, however slowly its bytes come.
        while part := answer.raw.read1(1 << 16, decode_content=True):
            content += part
            if len(content) > MOST_BYTES:
                raise Oversized(f"{answer.url} answers with more than {MOST_BYTES // 2**20} MiB")
            if time.monotonic() - begin > PATIENCE_S:
                raise Oversized(f"{answer.url} has not ended its answer after {PATIENCE_S:g} s")
    except HTTPError as error:
        answer.close()
        raise Broken(f"its answer broke off after {len(content):,} bytes ({type(error).__name__})") from None
    except Oversized:
        answer.close()
        raise
    answer.raw = io.BytesIO(content)  # from which `content`, `text` and `json()` read
    return answer


def problem(error: OSError) -> str:
    """Why no server answered, in words for its user."""
    if unverified := _unverified(error):
        return (
            f"its certificate is not accepted: {unverified.verify_message.rstrip('.')}; name the file of its authority in "
            "SSL_CERT_FILE, if that is what is missing"
        )
    match error:
        case requests.exceptions.SSLError() | ssl.SSLError():
            return "it does not speak TLS; does its address begin with http://?"
        case requests.exceptions.Timeout() | Oversized() | Broken():
            return str(error)
        case requests.exceptions.ConnectionError():
            return "no such host, connection refused, or hung up without an answer in HTTP/1.1"
        case requests.RequestException():
            return type(error).__name__
    return error.strerror or str(error)


def _unverified(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The refusal of a certificate that `error` is, or wraps: urllib3 and requests keep it as an argument, a reason or a context."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        inner = [getattr(error, "reason", None), *error.args, error.__cause__, error.__context__]
        error = next((each for each in inner if isinstance(each, BaseException)), None)
    return error

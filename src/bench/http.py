"""Ask a server a small question, past any proxy: nothing has a place between us and what we measure."""

from __future__ import annotations

import io
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import DecodeError, HTTPError, ProtocolError, ReadTimeoutError

from bench.headers import same_server

# A server must not fill the memory: neither with one answer, nor with one that never ends. Expositions of large servers have 0.1 MiB.
MOST_BYTES, _MOST_S = 8 * 2**20, 60.0
E = TypeVar("E", bound=BaseException)


class Oversized(requests.RequestException):
    """An answer that is larger than any that is expected, or that does not end."""


class Broken(requests.ConnectionError):
    """An answer that began, and was cut off, or is not what its head announces."""


# Files of authorities that are trusted beside the system's: OpenSSL's variable, and that of `requests`.
_AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# OpenSSL's numbers of what can be wrong with a certificate (X509_V_ERR_…).
_EXPIRED, _NOT_YET, _STRANGERS, _ANOTHER_HOST = 10, 9, {2, 18, 19, 20, 21}, {62, 64}


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
    """What servers' certificates are verified with: the system's authorities, and those of SSL_CERT_FILE and REQUESTS_CA_BUNDLE.

    Raises:
        requests.exceptions.SSLError: a variable names no file of certificates.
    """
    return _context(*map(os.environ.get, (*_AUTHORITIES, "SSL_CERT_DIR")))


@cache
def _context(*given: str | None) -> ssl.SSLContext:
    """Args: given: the variables' values, since another value is another context."""
    context = ssl.create_default_context()  # which heeds OpenSSL's variables, and ignores a file that is not there
    for name, path in zip(_AUTHORITIES, given, strict=False):
        if path:
            try:
                context.load_verify_locations(**{"capath" if Path(path).is_dir() else "cafile": path})
            except OSError as error:
                why = "no such file" if isinstance(error, FileNotFoundError) else "no file of certificates that can be read"
                raise requests.exceptions.SSLError(f"{name} is {path}: {why}") from None
    return context


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
    url: str, *, key: str | None = None, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0
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
        requests.ReadTimeout: it stopped.
        Broken: it was cut off, or is not what its head announces.
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
        size = f"{len(content):,} byte{'s' * (len(content) != 1)}"
        if isinstance(error, ReadTimeoutError):
            raise requests.ReadTimeout(f"its answer stopped after {size}, before its end") from None
        if isinstance(error, DecodeError):
            encoding = repr(answer.headers.get("Content-Encoding"))[:60]
            raise Broken(f"its answer is not what Content-Encoding says, {encoding}") from None
        raise Broken(f"its answer was cut off after {size}") from None
    except Oversized:
        answer.close()
        raise
    answer.raw = io.BytesIO(content)  # from which `content`, `text` and `json()` read
    return answer


def wanted(challenge: str | None) -> str | None:
    """What a `WWW-Authenticate` asks for that no API key is, such as a user and a password; None where it may be one."""
    scheme = (challenge or "").split(" ")[0].strip(",")[:20]
    if scheme.lower() in ("", "bearer", "apikey"):
        return None
    return f"{'a user and a password' if scheme.lower() in ('basic', 'digest') else 'another login'} ({scheme} authentication)"


def problem(error: OSError) -> str:
    """Why no server answered, in words for its user."""
    verification = _cause(error, ssl.SSLCertVerificationError)
    if verification is not None:
        return _certificate_problem(verification)
    match error:
        case requests.exceptions.SSLError() | ssl.SSLError():
            named = str(error).startswith(_AUTHORITIES)
            return str(error) if named else "it does not speak TLS; does its address begin with http://?"
        case requests.exceptions.Timeout() | Oversized() | Broken():
            return str(error)
        case requests.exceptions.ConnectionError() if _cause(error, ProtocolError):
            return "it hung up without an answer in HTTP/1.1"
        case requests.exceptions.ConnectionError():
            return "connection refused, or no such host"
        case requests.RequestException():
            return type(error).__name__
    return error.strerror or str(error)


def _certificate_problem(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in _STRANGERS:
        return (
            f"its certificate is signed by an authority that is not trusted here ({error.verify_message}); "
            "name the authority's file in SSL_CERT_FILE"
        )
    if code in _ANOTHER_HOST:
        return f"its certificate is for another host: {error.verify_message.rstrip('.')}"
    if code in (_EXPIRED, _NOT_YET):
        return f"its certificate {'has expired' if code == _EXPIRED else 'is not valid yet; is the clock right?'}"
    return f"its certificate is not accepted: {error.verify_message}"


def _cause(error: BaseException | None, kind: type[E]) -> E | None:
    """The error of this kind that `error` is, or wraps: urllib3 and requests keep it as an argument, a reason or a context."""
    while error is not None:
        if isinstance(error, kind):
            return error
        inner = [getattr(error, "reason", None), *error.args, error.__cause__, error.__context__]
        error = next((each for each in inner if isinstance(each, BaseException)), None)
    return None

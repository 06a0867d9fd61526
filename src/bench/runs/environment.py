"""Environment variables: which are secrets, which of the user's reach a server that is started here, and what of them is recorded
and compared.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REDACTED = "<secret>"  # wherever a value is hidden; deployments' digests hold it
SET = "set"  # what a record keeps of a secret
_SHORTEST = 8  # characters of a secret that is looked for in a text; a shorter one would be found in any
# Names of keys, tokens and passwords; `TOKEN` only at the end, since many settings count tokens.
_SECRET_NAME = re.compile(
    r"(^|_)(token|passwd|passphrase|pwd|pat|auth|bearer|cookie|credentials?|key)$|api_?key|access_?key|private_?key|secret|password",
    re.IGNORECASE,
)
_NO_SECRET = ("prompt_cache_key",)  # of bodies, though it is called a key
# A user in an address, and how well-known tokens begin.
_SECRET_VALUE = re.compile(
    r"://[^/\s@]+@|(?<![A-Za-z0-9])(hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abp]-|AKIA|eyJ)[A-Za-z0-9_.-]{12,}|\bBearer\s"
)
# Variables whose values hold settings of an engine and its libraries, and can be printed.
_HARMLESS = re.compile(
    r"(VLLM_(CPU|USE|ATTENTION|LOGGING|WORKER|NO)_|OMP_|KMP_|NCCL_|CUDA_|TORCH_|PYTORCH_|TRITON_)\w*"
    r"|HF_HUB_OFFLINE|DO_NOT_TRACK|TRANSFORMERS_OFFLINE|LD_PRELOAD"
)
# What schedulers assign, and where something is kept: neither changes what a server does.
_NOT_COUNTED = re.compile(r"CUDA_VISIBLE_DEVICES|(HF|TORCH)_HOME|\w+_CACHE(_DIR|_ROOT|_PATH)?")


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable, or a flag without its dashes, looks like it holds a secret."""
    return bool(_SECRET_NAME.search(name.replace("-", "_")) or _SECRET_VALUE.search(value))


def secret_in(value: Any, *, within: str = "") -> str | None:
    """The place of the first key or text in a JSON value that looks like a secret; None without one."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        place = f"{within}.{key}".lstrip(".")
        name = "" if isinstance(key, int) or key in _NO_SECRET else str(key)
        if isinstance(each, str) and is_secret(name, each):
            return place
        if found := secret_in(each, within=place):
            return found
    return None


def redacted(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables, with `<secret>` in place of what looks like a secret."""
    return {name: REDACTED if is_secret(name, value) else value for name, value in environment.items()}


def without_secrets(text: bytes, *environments: Mapping[str, str]) -> bytes:
    """What a server sent or printed, with `<secret>` in place of each secret of `environments`, by default of what is exported here."""
    return hidden(text, secrets_in(*(environments or (os.environ,))))


def secrets_in(*environments: Mapping[str, str]) -> list[bytes]:
    """The secrets of `environments` that are long enough to be looked for, a longer one before its parts."""
    # A shell's PWD is a folder, whatever its name looks like.
    values = {value for each in environments for name, value in each.items() if is_secret(name, value) and name != "PWD"}
    known = sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)
    return [value.encode(errors="surrogateescape") for value in known]


def hidden(text: bytes, secrets: Iterable[bytes]) -> bytes:
    """A text with `<secret>` in place of each of `secrets`."""
    for secret in secrets:
        text = text.replace(secret, REDACTED.encode())
    return text


def redacted_command(command: Sequence[str]) -> list[str]:
    """A command line, with `<secret>` in place of what looks like a secret."""
    parts = []
    for before, part in zip(["", *command], command, strict=False):
        flag, equals, value = part.partition("=")
        if before.startswith("--") and "=" not in before and not part.startswith("-") and is_secret(before.lstrip("-")):
            parts.append(REDACTED)
        elif equals and is_secret(flag.lstrip("-"), value):
            parts.append(f"{flag}={REDACTED}")
        else:
            parts.append(REDACTED if _SECRET_VALUE.search(part) else part)
    return parts


def shown_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What a page shows of a server's variables: the values of those that are known to be harmless, `<secret>` for all others."""
    return {
        name: value if _HARMLESS.fullmatch(name) and not is_secret(name, value) else REDACTED
        for name, value in environment.items()
    }


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """What a record keeps of the user's variables: harmless values, `set` for a secret, and a digest of all others."""

    def kept(name: str, value: str) -> str:
        if is_secret(name, value):
            return SET
        return value[:200] if _HARMLESS.fullmatch(name) else f"sha256:{hashlib.sha256(value.encode()).hexdigest()[:12]}"

    return {name: kept(name, value) for name, value in sorted(environment.items())}


def counted(record: Mapping[str, str] | None) -> dict[str, str]:
    """Those of `recorded` variables that must be alike in runs that are compared.

    Left out are secrets, what a scheduler assigns (`CUDA_VISIBLE_DEVICES`), and where caches lie.
    """
    return {name: value for name, value in (record or {}).items() if value != SET and not _NOT_COUNTED.fullmatch(name)}


def environment_text(record: Mapping[str, str] | None) -> str | None:
    """The `counted` variables in one line; `none exported` where there are none, None where nothing was recorded."""
    if record is None:
        return None
    return ", ".join(f"{name}={value}" for name, value in counted(record).items()) or "none exported"


def without_values(text: str, values: Iterable[str]) -> str:
    """A server's words, with `<secret>` in place of each of `values`, for one that repeats the key that it refuses."""
    for secret in secret_parts(values):
        text = text.replace(secret, REDACTED)
    return text


def secret_parts(values: Iterable[str]) -> list[str]:
    """What of secret headers is looked for in a text, the longest first: of `Bearer KEY` a server repeats the key alone."""
    parts = {part for value in values for part in (value, *value.split()) if len(part) >= _SHORTEST}
    return sorted(parts, key=len, reverse=True)


def without_user(address: str) -> str:
    """An address without the user and the password in it."""
    return re.sub(r"://[^/\s@]+@", "://", address)


_NOT_FOR_THE_ENGINE = (
    # Snakemake sets these to the job's threads for every child; the engine chooses its own.
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "PYTHONPATH"),
    # Images of containers often set it; then each of the engine's processes would compile all that it imports at each start.
    "PYTHONDONTWRITEBYTECODE",
)
# Kubernetes and Docker give these for each service beside one: a Service called `vllm` sets VLLM_PORT=tcp://…, at which vLLM ends.
# Source: Kubernetes, docs/concepts/services-networking/service (environment variables).
_LINK = re.compile(r"(?:tcp|udp|sctp)://\S+")
_OF_A_SERVICE = r"_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"


def for_a_server(exported: Mapping[str, str]) -> dict[str, str]:
    """The variables that a server inherits: all but those that are meant for others.

    Proxies, paths of libraries and settings of engines are the user's, so they are kept, and recorded if they can change results.
    """
    dropped = {*_NOT_FOR_THE_ENGINE, *service_variables(exported)}
    return {name: value for name, value in exported.items() if name not in dropped}


def service_variables(exported: Mapping[str, str]) -> list[str]:
    """Variables by which Kubernetes or Docker announces other services, in order; the cluster's own stay, as programs look for them."""
    ports = (name for name, value in exported.items() if name.endswith("_PORT") and _LINK.fullmatch(value))
    services = {name.removesuffix("_PORT") for name in ports} - {"KUBERNETES"}
    return sorted(name for name in exported if any(re.fullmatch(each + _OF_A_SERVICE, name) for each in services))

"""Whether a server that is not started here serves what the study asks of it."""

from __future__ import annotations

import os
from typing import Any

import requests

from bench.errors import BenchError, shown
from bench.http import get, post
from bench.records.environment import without_secrets
from bench.study import DeploymentSpec

__all__ = ["refuse_unlike"]


def refuse_unlike(spec: DeploymentSpec, endpoint: str) -> None:
    """Ask an external server for its models.

    Args:
        endpoint: of the deployment's requests, `completions` or `chat`.

    Raises:
        BenchError: nothing answers at its address, what answers has no OpenAI API, or it does not serve the deployment's model.
    """
    base, key = str(spec.engine.base_url).rstrip("/").removesuffix("/v1"), os.environ.get("OPENAI_API_KEY")
    where = f"engines.{spec.deployment.engine}.base_url"
    try:
        answer = get(f"{base}/v1/models", key=key)
    except requests.RequestException as error:
        raise BenchError(
            f"{where}: no server answers at {base} ({_reason(error)}). Start it, or correct the address."
        ) from None
    if answer.status_code in (401, 403):
        raise BenchError(
            f"{where}: {base} answers {answer.status_code}: it wants an API key{', and another one' if key else ''}. "
            "Export it as OPENAI_API_KEY."
        )
    names = _models(answer)
    if names is None:
        raise BenchError(
            f"{where}: {base}/v1/models answers {answer.status_code} without a list of models, so this is not an OpenAI-compatible "
            "server. Give the address of one, without /v1/..."
        )
    if spec.served_name in names:
        return
    # Some servers list one name and take any: the answer to a request decides.
    said = _refusal(base, spec.served_name, endpoint, key)
    if said is not None:
        raise BenchError(
            f"deployments.{spec.name}.served_name: {base} does not serve {spec.served_name!r} ({said}). It lists "
            f"{', '.join(map(_named, names[:10])) or 'no model'}. Write the name of one of its models."
        )


def _reason(error: requests.RequestException) -> str:
    match error:
        case requests.exceptions.SSLError():
            return "its certificate is not accepted, or it does not speak TLS"
        case requests.exceptions.Timeout():
            return "no answer within 5 s"
        case requests.exceptions.ConnectionError():
            return "connection refused, or no such host"
    return type(error).__name__


def _models(answer: requests.Response) -> list[str] | None:
    """The names in an answer of /v1/models; None where it is not one."""
    try:
        entries = answer.json()["data"] if answer.ok else None
        return None if entries is None else [str(entry["id"]) for entry in entries]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _named(model: str) -> str:
    """A model as a server lists it; quoted where it could be anything else."""
    return model if model.isprintable() and len(model) <= 120 else shown(model)


def _refusal(base: str, model: str, endpoint: str, key: str | None) -> str | None:
    """How the server refuses a request for one token of `model`; None where it does not, or is too busy to answer in time."""
    content: dict[str, Any] = {"model": model, "max_tokens": 1, "stream": False}
    content |= {"messages": [{"role": "user", "content": "a"}]} if endpoint == "chat" else {"prompt": "a"}
    path = "chat/completions" if endpoint == "chat" else "completions"
    try:
        answer = post(f"{base}/v1/{path}", content, key=key)
    except requests.exceptions.Timeout:
        return None
    except requests.RequestException as error:
        return _reason(error)
    return (
        None
        if answer.ok
        else f"{answer.status_code} {shown(without_secrets(answer.content).decode(errors='replace').strip(), 200)}"
    )

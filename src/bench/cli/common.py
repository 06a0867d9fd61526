"""Checks and files that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bench.endpoints import ENDPOINTS
from bench.errors import BenchError
from bench.published import Accelerator, accelerators
from bench.yaml_file import read_yaml

if TYPE_CHECKING:
    from bench.load.target import Target

__all__ = [
    "headers_of",
    "introduced",
    "known_accelerators",
    "refuse_missing_gpus",
    "refuse_wrong_address",
    "refuse_wrong_share",
    "requests_of",
    "target_of",
]

_OUTPUT_TOKENS = 128  # of an answer, where nothing says how many
_LONGEST_NATURAL = 1024  # tokens after which a natural answer ends, likewise


def known_accelerators(hardware: Path | None) -> dict[str, Accelerator]:
    """Every accelerator, with the user's own of the file `hardware`.

    Raises:
        BenchError: the file is missing, or an entry is wrong.
    """
    if hardware and not hardware.is_file():
        raise BenchError(f"--hardware {hardware}: no such file.")
    try:
        return accelerators(read_yaml(hardware) if hardware else None)
    except BenchError as error:
        raise BenchError(f"--hardware {hardware}: {error}" if hardware else str(error)) from None


def refuse_wrong_share(share: float) -> None:
    """Refuse a share of memory that an engine cannot take.

    Raises:
        BenchError: it is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise BenchError(f"--gpu-memory-utilization is {share:g}; it is a share, above 0 and at most 1.")


def refuse_wrong_address(metrics: str | None) -> None:
    """Refuse a `--metrics` that is no address.

    Raises:
        BenchError: it says why.
    """
    from bench.fields import checked_address  # noqa: PLC0415 - few commands take one

    try:
        checked_address(metrics or "http://localhost", of_metrics=True)
    except ValueError as error:
        raise BenchError(f"--metrics is {error}.") from None


def headers_of(options: Iterable[str]) -> dict[str, str]:
    """The headers that `--header 'Name: $VARIABLE'` names, with the variables' values.

    Raises:
        BenchError: one is no header, holds a value of its own, or names a variable that is not set.
    """
    from bench.study.headers import checked_headers, filled_headers  # noqa: PLC0415 - few commands send any

    headers = {}
    for option in options:
        name, colon, value = option.partition(":")
        if not colon or name.strip() in headers:
            raise BenchError("--header: each is of another name, such as --header 'X-Api-Key: $GATEWAY_KEY'.")
        headers[name.strip()] = value.strip()
    try:
        return filled_headers(checked_headers(headers), where="--header")
    except ValueError as error:
        raise BenchError(
            f"--header: {error}. Quote it in single quotes, so that the shell leaves the variable's name alone."
        ) from None


def target_of(options: SimpleNamespace) -> Target:
    """The server that `--base-url`, `--model` and `--header` name.

    Raises:
        BenchError: one of them cannot be used.
    """
    from bench.http import api_root  # noqa: PLC0415 - few commands take one
    from bench.load.target import Target  # noqa: PLC0415

    headers = headers_of(options.header)
    try:
        return Target(
            api_root(options.base_url), options.model, os.environ.get("OPENAI_API_KEY") or "none", headers, reuses=False
        )
    except BenchError as error:
        raise BenchError(f"--base-url: {error}") from None


def requests_of(options: SimpleNamespace, **further: Any) -> dict[str, Any]:
    """What `--workload` says of requests, with what other options say in its place.

    Args:
        further: what the command's own options say; None where they say nothing.

    Raises:
        BenchError: the file cannot be read, or nothing says what prompts are.
    """
    if options.workload and not options.workload.is_file():
        raise BenchError(f"--workload {options.workload}: no such file.")
    if options.prompts and options.prompt_length:
        raise BenchError("--prompts and --prompt-length: prompts of a file have their own lengths. Leave one of them out.")
    content = read_yaml(options.workload) if options.workload else {}
    given = {
        "archetype": options.archetype,
        "prompts": options.prompts,
        "prompt_tokens": options.prompt_length,
        "output_tokens": options.output_length,
        "endpoint": options.endpoint,
        **further,
    }
    content |= {key: value for key, value in given.items() if value is not None}
    if not content.keys() & {"archetype", "prompts", "prompt_tokens", "trace"}:
        raise BenchError(
            "--prompt-length is missing: prompt tokens of each request. Or give --prompts FILE, --archetype or --workload FILE."
        )
    content = {"endpoint": "completions", **content}
    endpoint = ENDPOINTS.get(str(content["endpoint"]))
    generates = endpoint is None or endpoint.work.generates
    if options.natural:
        asked = content.get("output_tokens")
        longest = asked.get("max") if isinstance(asked, dict) else asked
        content["output_tokens"] = {"distribution": "natural", "max": longest or _LONGEST_NATURAL}
    elif generates and not content.keys() & {"archetype", "output_tokens", "trace"}:
        content["output_tokens"] = _OUTPUT_TOKENS
    return content


def introduced(target: Target, options: SimpleNamespace, endpoint: str, *, stream: bool = True) -> Target:
    """The target, with the form of requests that it accepts at an endpoint; a line on stderr for what is not exact.

    Raises:
        BenchError: an `--omit` is not known, or the server accepts no form of request.
    """
    from bench.load.introduction import introduce  # noqa: PLC0415 - few commands send requests
    from bench.records.form import OPTIONAL  # noqa: PLC0415

    if unknown := [name for name in options.omit if name not in OPTIONAL]:
        raise BenchError(f"--omit {unknown[0]}: not something that can be left out. There are: {', '.join(OPTIONAL)}.")
    return introduce(
        target,
        endpoint,
        stream=stream,
        vocabulary=options.vocabulary,
        omit=options.omit,
        timeout_s=options.timeout,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )


def refuse_missing_gpus(endpoints: Iterable[str], *, option: str) -> None:
    """Refuse an `nvml:` endpoint that cannot be read here, before anything is measured for it.

    Raises:
        BenchError: it says why, and under which option the endpoint was given.
    """
    from bench.telemetry import is_nvml, nvml_problem  # noqa: PLC0415 - no other command needs it

    for endpoint in filter(is_nvml, endpoints):
        if problem := nvml_problem(endpoint):
            raise BenchError(f"{option} {endpoint}: {problem}.")

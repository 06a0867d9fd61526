"""What several commands check of their options, and make of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.study.slo import Slo


def refuse_strange_classes(slos: Collection[Slo], classes: Collection[str], whose: str) -> None:
    """Refuse an SLO of a class that nothing has. Args: whose: the classes are, such as `the workload does`."""
    from bench.study.slo import applying

    if strange := [slo for slo in slos if slo not in applying(slos, classes)]:
        known = f"the classes are {', '.join(classes)}" if classes else "there are no classes"
        raise BenchError(f"--slo: {strange[0]} limits a class that {whose} not have; {known}.")


def refuse_wrong_address(metrics: str | None) -> None:
    """Refuse a `--metrics` that is no address."""
    from bench.fields import checked_address

    try:
        checked_address(metrics or "http://localhost", of_metrics=True)
    except ValueError as error:
        raise BenchError(f"--metrics is {error}.") from None


def headers_of(options: Iterable[str]) -> dict[str, str]:
    """The headers that `--header 'Name: $VARIABLE'` names, with the variables' values.

    Raises:
        BenchError: one is no header, holds a value of its own, or names a variable that is not set.
    """
    from bench.headers import checked_headers, filled_headers

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


def refuse_missing_gpus(endpoints: Iterable[str], *, option: str) -> None:
    """Refuse an `nvml:` endpoint that cannot be read here, before anything is measured for it."""
    from bench.measure.nvml import nvml_problem
    from bench.servers.gpu_metrics import is_nvml

    for endpoint in filter(is_nvml, endpoints):
        if problem := nvml_problem(endpoint):
            raise BenchError(f"{option} {endpoint}: {problem}.")

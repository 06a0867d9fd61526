"""What several commands check of their options, and make of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import BenchError
from bench.shipped import BENCH

if TYPE_CHECKING:
    from bench.models.accelerators import Accelerator
    from bench.study.config import Thresholds
    from bench.study.slo import Slo

#: Beside a run, the `--threshold` options with which `bench workload` took it.
THRESHOLDS = "thresholds.json"


def known_accelerators(hardware: Path | None) -> dict[str, Accelerator]:
    """Every accelerator, with the user's own of the file `hardware`."""
    from bench.models.accelerators import accelerators
    from bench.yaml_file import read_yaml

    if hardware and not hardware.is_file():
        raise BenchError(f"--hardware {hardware}: no such file.")
    try:
        return accelerators(read_yaml(hardware) if hardware else None)
    except BenchError as error:
        raise BenchError(f"--hardware {hardware}: {error}" if hardware else str(error)) from None


def refuse_wrong_share(share: float) -> None:
    """Refuse a share of memory that is not above 0 and at most 1."""
    if not 0 < share <= 1:
        raise BenchError(f"--gpu-memory-utilization is {share:g}; it is a share, above 0 and at most 1.")


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


def keep_thresholds(options: Iterable[str] | None, run: Path) -> None:
    """Write the `--threshold` options beside the run that was taken with them, so that it has one verdict."""
    if options:
        (run / THRESHOLDS).write_text(json.dumps(list(options)) + "\n", encoding="utf-8")


def kept_thresholds(runs: Iterable[Path]) -> list[str]:
    """The `--threshold` options with which these runs were taken; none where they had none.

    Raises:
        BenchError: they had different ones, or a file of them cannot be read.
    """
    kept: dict[tuple[str, ...], Path] = {}
    for run in runs:
        file = run / THRESHOLDS
        try:
            options = tuple(map(str, json.loads(file.read_text(encoding="utf-8")) if file.exists() else ()))
        except (OSError, ValueError, TypeError) as error:
            raise BenchError(f"{file}: not readable ({error}). Remove it, or give --threshold.") from None
        kept[options] = run
    if len(kept) > 1:
        (_, one), (_, other) = list(kept.items())[:2]
        raise BenchError(f"{one} and {other} had different thresholds. `{BENCH} figures` with --threshold judges them alike.")
    return [option for options in kept for option in options]


def thresholds_of(options: Iterable[str] | None) -> Thresholds:
    """The thresholds that `--threshold NAME=VALUE` names; of the others the defaults."""
    from pydantic import ValidationError

    from bench.study.config import Thresholds

    values = {}
    for text in options or []:
        name, _, value = text.partition("=")
        if name not in Thresholds.model_fields:
            raise BenchError(f"--threshold {text}: give NAME=VALUE with one of {', '.join(Thresholds.model_fields)}.")
        values[name] = value
        try:
            Thresholds.model_validate({name: value}, strict=False)
        except ValidationError as error:
            raise BenchError(f"--threshold {text}: {error.errors()[0]['msg']}.") from None
    return Thresholds.model_validate(values, strict=False)


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

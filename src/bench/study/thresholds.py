"""The thresholds of validity as options name them, `NAME=VALUE`, and those with which a run was taken, kept beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from bench.errors import BenchError
from bench.runs.paths import THRESHOLDS
from bench.shipped import BENCH
from bench.study.config import Thresholds


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

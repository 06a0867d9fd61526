"""Comparisons with a study's baseline: their effects as a table, and beside it what was compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.analysis.compare import ALONE, UNCOMPARED, Comparison
from bench.analysis.failures import FAILURES
from bench.analysis.identical import IDENTICAL
from bench.analysis.locked import Difference
from bench.records.columns import schema_of
from bench.records.files import plain, typed


@dataclass(frozen=True)
class _Sides:
    """What of a `Comparison` its effects do not say; tables as lists of rows."""

    matched: int
    failures: tuple[Any, ...]
    answers: tuple[Any, ...]
    runs: tuple[int, int]
    invalid: tuple[int, int]
    alone: tuple[Any, ...]
    uncompared: tuple[Any, ...]
    absent: tuple[str, ...]
    differences: tuple[Difference, ...]
    replica: bool


def effects_table(found: Mapping[str, Comparison]) -> pl.DataFrame:
    """The effects of all comparisons, as `results/analysis/comparisons.parquet` has them."""
    return pl.concat([pl.DataFrame(schema=schema_of("comparisons")), *(each.effects for each in found.values())])


def sides(found: Mapping[str, Comparison]) -> dict[str, Any]:
    """By deployment what was compared, as plain data."""
    return {
        name: plain(
            _Sides(
                each.matched,
                tuple(each.failures.to_dicts()),
                tuple(each.answers.to_dicts()),
                each.runs,
                each.invalid,
                tuple(each.alone.to_dicts()),
                tuple(each.uncompared.to_dicts()),
                tuple(each.absent),
                tuple(each.differences),
                each.replica,
            )
        )
        for name, each in found.items()
    }


def read_comparisons(effects: pl.DataFrame, compared: Mapping[str, Any]) -> dict[str, Comparison]:
    """The comparisons again, without their pairs of runs. Args: compared: as `sides` gives it."""
    found = {}
    for name, content in compared.items():
        known = typed(_Sides, content, name, most=float("inf"))
        found[name] = Comparison(
            matched=known.matched,
            effects=effects.filter(pl.col("deployment") == name),
            failures=pl.DataFrame(list(known.failures), schema=FAILURES),
            answers=pl.DataFrame(list(known.answers), schema=IDENTICAL),
            runs=known.runs,
            invalid=known.invalid,
            alone=pl.DataFrame(list(known.alone), schema=ALONE),
            uncompared=pl.DataFrame(list(known.uncompared), schema=UNCOMPARED),
            absent=list(known.absent),
            differences=list(known.differences),
            replica=known.replica,
        )
    return found

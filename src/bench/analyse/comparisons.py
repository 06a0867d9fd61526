"""Comparisons with a study's baseline: their effects as a table, and beside it what was compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import polars as pl

from bench.analysis.compare import ALONE, UNCOMPARED, Comparison
from bench.analysis.failures import FAILURES
from bench.analysis.identical import IDENTICAL
from bench.analysis.locked import Differs
from bench.runs.columns import schema_of
from bench.runs.files import plain, typed

_TABLES: dict[str, Any] = {"failures": FAILURES, "answers": IDENTICAL, "alone": ALONE, "uncompared": UNCOMPARED}


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
    estimates: tuple[str, ...]
    differences: tuple[Differs, ...]
    replica: bool


def effects_table(found: Mapping[str, Comparison]) -> pl.DataFrame:
    """The effects of all comparisons, as `results/analysis/comparisons.parquet` has them."""
    return pl.concat([pl.DataFrame(schema=schema_of("comparisons")), *(each.effects for each in found.values())])


def sides(found: Mapping[str, Comparison]) -> dict[str, Any]:
    """By deployment what was compared, as plain data."""
    return {
        name: plain(_Sides(**{field.name: _plain(getattr(each, field.name)) for field in fields(_Sides)}))
        for name, each in found.items()
    }


def _plain(value: Any) -> Any:
    rows = value.to_dicts() if isinstance(value, pl.DataFrame) else value
    return tuple(rows) if isinstance(rows, list) else rows


def read_comparisons(effects: pl.DataFrame, compared: Mapping[str, Any]) -> dict[str, Comparison]:
    """The comparisons again, without their pairs of runs. Args: compared: as `sides` gives it."""
    found = {}
    for name, content in compared.items():
        known = vars(typed(_Sides, content, name, most=float("inf")))
        tables = {key: pl.DataFrame(list(known[key]), schema=schema) for key, schema in _TABLES.items()}
        lists = {key: list(known[key]) for key in ("absent", "estimates", "differences")}
        found[name] = Comparison(effects=effects.filter(pl.col("deployment") == name), **{**known, **tables, **lists})
    return found

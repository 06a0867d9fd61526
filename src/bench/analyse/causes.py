"""Causes as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import polars as pl

from bench.analysis.evidence import Bottleneck
from bench.predict.relief_record import Gain
from bench.runs.columns import schema_of

_NAMES = [field.name for field in fields(Bottleneck)]
Curve = tuple[str, str]


def causes_table(found: Mapping[Curve, Bottleneck]) -> pl.DataFrame:
    """One row a curve: its cause, and what shows it."""
    rows = [
        {
            **{"deployment": name, "workload": workload, "cause": each.cause},
            **vars(each),
            "gains": [vars(gain) for gain in each.gains],
        }
        for (name, workload), each in found.items()
    ]
    return pl.DataFrame(rows, schema=schema_of("causes"))


def read_causes(table: pl.DataFrame) -> dict[Curve, Bottleneck]:
    """The causes by deployment and workload."""
    return {(row["deployment"], row["workload"]): _read(row) for row in table.iter_rows(named=True)}


def _read(row: Mapping[str, Any]) -> Bottleneck:
    told = {name: row[name] for name in _NAMES}
    return Bottleneck(**{**told, "runs": tuple(row["runs"]), "gains": tuple(Gain(**gain) for gain in row["gains"])})

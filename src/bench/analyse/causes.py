"""Causes as rows of a table: a cause's code, and the fields of its evidence as columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

import polars as pl

from bench.analysis.evidence import At, Bottleneck, Evidence
from bench.analysis.judging import Unsettled
from bench.records.columns import schema_of

__all__ = ["causes_table", "read_causes"]

_KINDS: dict[str, type[Any]] = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(Evidence)}
_CODES = {kind: code for code, kind in _KINDS.items()}
Curve = tuple[str, str]


def causes_table(found: Mapping[Curve, Bottleneck]) -> pl.DataFrame:
    """One row a curve: its cause, and what shows it."""
    rows = [
        {
            "deployment": name,
            "workload": workload,
            "cause": each.cause,
            "runs": list(each.runs),
            **_row(each.evidence, "evidence"),
        }
        for (name, workload), each in found.items()
    ]
    return pl.DataFrame(rows, schema=schema_of("causes"))


def read_causes(table: pl.DataFrame) -> dict[Curve, Bottleneck]:
    """The causes by deployment and workload."""
    return {
        (row["deployment"], row["workload"]): Bottleneck(row["cause"], _evidence(row, "evidence"), tuple(row["runs"]))
        for row in table.iter_rows(named=True)
    }


def _row(evidence: Evidence | None, column: str, start: str = "") -> dict[str, Any]:
    """The columns of evidence. Args: column: that of its code. start: what the names of its fields begin with."""
    if evidence is None:
        return {}
    row: dict[str, Any] = {column: _CODES[type(evidence)]}
    for field in fields(evidence):
        match value := getattr(evidence, field.name):
            case At():
                row |= {f"{start}{name}": each for name, each in vars(value).items()}
            case Unsettled():
                row |= {f"{start}unsettled": value.kind, f"{start}needs_s": value.needs_s}
            case _ if field.name == "held":
                row |= _row(value, "held", "held_")
            case _:
                row[f"{start}{field.name}"] = value
    return row


def _evidence(row: Mapping[str, Any], column: str, start: str = "") -> Any:
    """The evidence again; None where there is none."""
    if row[column] is None:
        return None
    kind = _KINDS[row[column]]
    values: dict[str, Any] = {}
    for field in fields(kind):
        match field.name:
            case "at":
                values["at"] = At(row[f"{start}level"], row[f"{start}unit"], row[f"{start}burst"])
            case "unsettled":
                values["unsettled"] = Unsettled(row["unsettled"], row["needs_s"])
            case "held":
                values["held"] = _evidence(row, "held", "held_")
            case name:
                values[name] = row[f"{start}{name}"]
    return kind(**values)

"""How a server recovers from a step in its load."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Recovery:
    """One run with a step in its load: seconds until TTFT was as before; None where it was not before the end, or is not known."""

    deployment: str
    workload: str
    level: float
    valid: bool
    recovered: bool
    after_s: float | None


def recoveries(runs: pl.DataFrame) -> list[Recovery]:
    """How each run with a step in its load recovered. Args: runs: summary rows (`recovered`, `recovery_s`, `valid`)."""
    return [
        Recovery(row["deployment"], row["workload"], row["level"], row["valid"], row["recovered"], row["recovery_s"])
        for row in runs.drop_nulls("recovered").iter_rows(named=True)
    ]

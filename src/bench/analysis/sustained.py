"""What an open loop shows of one server: the load that it sustains, its latency there, and how it recovers from a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

__all__ = ["Recovery", "Sustained", "recoveries", "sustained"]


@dataclass(frozen=True)
class Sustained:
    """One curve of an open loop.

    Attributes:
        point: row of `operating_points`. ttft_p99_s: at C_max, of so many judged `requests`; whether they carry a bound, `bounded`.
            missed_p50_s: the median TTFT at the first load that is not carried. None where not known (s).
    """

    deployment: str
    workload: str
    point: Mapping[str, Any]
    ttft_p99_s: float | None
    bounded: bool
    missed_p50_s: float | None


@dataclass(frozen=True)
class Recovery:
    """One run with a step in its load: seconds until TTFT was as before; None where it was not before the end, or is not known."""

    deployment: str
    workload: str
    level: float
    valid: bool
    recovered: bool
    after_s: float | None


def sustained(runs: pl.DataFrame, points: pl.DataFrame) -> list[Sustained]:
    """The load that each curve sustains within the SLOs; without any, while requests do not pile up and hardly any fail.

    Args:
        runs: summary rows. points: of `operating_points`, of open loops.
    """
    found = []
    for point in points.to_dicts():
        curve = runs.filter(
            pl.col("valid") & (pl.col("deployment") == point["deployment"]) & (pl.col("workload") == point["workload"])
        )
        there, beyond = (curve.filter(pl.col("level").is_in([point[at]])) for at in ("c_max", "missed_at"))
        found.append(
            Sustained(
                deployment=point["deployment"],
                workload=point["workload"],
                point=point,
                ttft_p99_s=_median(there, "steady_ttft_p99_s"),
                bounded=there.height > 0 and there["steady_ttft_p99_bound_s"].null_count() == 0,
                missed_p50_s=_median(beyond, "steady_ttft_p50_s"),
            )
        )
    return found


def recoveries(runs: pl.DataFrame) -> list[Recovery]:
    """How each run with a step in its load recovered. Args: runs: summary rows (`recovered`, `recovery_s`, `valid`)."""
    return [
        Recovery(row["deployment"], row["workload"], row["level"], row["valid"], row["recovered"], row["recovery_s"])
        for row in runs.drop_nulls("recovered").iter_rows(named=True)
    ]


def _median(runs: pl.DataFrame, column: str) -> float | None:
    value = runs[column].median()
    return None if value is None else float(value)  # type: ignore[arg-type]

"""What would have to stop a release: regressions that are proven, those that are not, and whether one could have been seen at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.findings.comparison.effects import CONFIGURATION, Noise, Ratio, metric_of, sessions_for, shared_by_machine

if TYPE_CHECKING:
    from bench.findings.comparison.compare import Comparison


def regressions(effects: pl.DataFrame, beyond_percent: float = 0.0) -> pl.DataFrame:
    """The levels and metrics whose whole interval is worse than the baseline by more than `beyond_percent`."""
    verdict = pl.when(pl.col("scope") == "all").then("pooled").otherwise("verdict")
    return _beyond(effects.filter(verdict == "worse"), "high", "low", beyond_percent)


def unproven(found: Comparison, beyond_percent: float) -> pl.DataFrame:
    """The metrics that are worse over all levels by more than `beyond_percent` as they were measured, without proof.

    Where the reference loads show that the machine was faster for the candidate, it is asked of the machine's own speed.
    """
    faster = found.machine.value if found.machine and shared_by_machine(found.machine) == "better" else 1.0
    estimates = found.overall.with_columns(pl.col("ratio") * pl.when(_higher()).then(faster).otherwise(1 / faster))
    proven = regressions(found.effects, beyond_percent).select("deployment", "metric")
    return _beyond(estimates, "ratio", "ratio", beyond_percent).join(proven, on=["deployment", "metric"], how="anti")


def _higher() -> pl.Expr:
    return pl.col("metric").map_elements(lambda name: metric_of(name).higher_is_better, pl.Boolean)


def _beyond(effects: pl.DataFrame, of_higher: str, of_lower: str, percent: float) -> pl.DataFrame:
    """The rows that are worse by more than `percent`. Args: of_higher: column that says so of a metric of which more is better."""
    share = percent / 100
    return effects.filter(pl.when(_higher()).then(pl.col(of_higher) < 1 - share).otherwise(pl.col(of_lower) > 1 + share))


def blind(found: Comparison, percent: float) -> list[dict[str, Any]]:
    """The metrics in which a regression of `percent` over all levels could have been overlooked: fewer than 8 of 10 are found, and the
    interval does not exclude it.

    Returns:
        `deployment`, `metric`, `could_see` (percent; null where nothing could), and `sessions` of each side that would find it at the
        noise measured (null where that is not known, or more than 100).
    """
    metrics = found.overall["metric"].n_unique()
    rows = [
        {
            "deployment": row["deployment"],
            "metric": row["metric"],
            "could_see": None if row["could_see"] is None else 100 * row["could_see"],
            "sessions": None
            if row["noise"] is None
            else sessions_for(percent / 100, Noise(row["noise"], row["spread"]), row["levels"], row["repeats"], metrics),
        }
        for row in found.overall.iter_rows(named=True)
        if (row["could_see"] is None or 100 * row["could_see"] > percent) and not _excluded(row, percent, found.machine)
    ]
    return rows + [{"deployment": None, "metric": name, "could_see": None, "sessions": None} for name in found.absent]


def _excluded(row: Mapping[str, Any], percent: float, machine: Ratio | None) -> bool:
    """Whether the interval of a row lies wholly on the better side of a regression of `percent`; not where the machine got faster."""
    if row["low"] is None or row["high"] is None or (machine and shared_by_machine(machine) == "better"):
        return False
    higher, share = metric_of(row["metric"]).higher_is_better, percent / 100
    return bool(row["low"] > 1 - share if higher else row["high"] < 1 + share)


def unseen(found: Comparison) -> list[Mapping[str, Any]]:
    """Levels that both sides measured without a pair that compares, but for those at which the candidate fails significantly more."""
    worse = [[row[key] for key in CONFIGURATION] for row in found.failures if row["verdict"] == "worse"]
    return [row for row in found.uncompared if [row[key] for key in CONFIGURATION] not in worse]

"""What would have to stop a release: significant regressions, and whether one could have been seen at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.analysis.power import Noise, sessions_for
from bench.records.columns import METRICS

if TYPE_CHECKING:
    from bench.analysis.compare import Comparison

__all__ = ["Sight", "blind", "needed", "regressions", "sight", "unseen"]


@dataclass(frozen=True)
class Sight:
    """What a comparison could have seen of a metric (percent), and what half of that would take.

    Attributes:
        sessions: of each side that find `half`; None for more than 100. spread_assumed: whether how far sessions differ is.
    """

    metric: str
    could_see: float
    sessions: int | None
    spread_assumed: bool

    @property
    def half(self) -> float:
        """Half of what could be seen (percent)."""
        return self.could_see / 2


def regressions(effects: pl.DataFrame, beyond_percent: float = 0.0) -> pl.DataFrame:
    """The levels, regions and metrics whose whole interval is worse than the baseline by more than `beyond_percent`."""
    share = beyond_percent / 100
    higher = pl.col("metric").replace_strict({name: metric.higher_is_better for name, metric in METRICS.items()})
    beyond = pl.when(higher).then(pl.col("high") < 1 - share).otherwise(pl.col("low") > 1 + share)
    verdict = pl.when(pl.col("scope") == "all").then("pooled").otherwise("verdict")
    return effects.filter((pl.col("scope") != "trend") & (verdict == "worse") & beyond)


def needed(row: dict[str, Any], percent: float, metrics: int) -> int | None:
    """Sessions of each side that would find a difference of `percent` over all levels, at the noise of a row of `overall`.

    None where the noise is not known, or more than 100.
    """
    if row["noise"] is None:
        return None
    return sessions_for(percent / 100, Noise(row["noise"], row["spread"]), row["levels"], row["repeats"], metrics)


def blind(found: Comparison, percent: float) -> list[dict[str, Any]]:
    """The metrics in which a regression of `percent` over all levels could have been overlooked: fewer than 8 of 10 are found.

    Returns:
        `deployment`, `metric`, `could_see` (percent; null where nothing could) and `sessions` that it would take.
    """
    metrics = found.overall["metric"].n_unique()
    rows = [
        {
            "deployment": row["deployment"],
            "metric": row["metric"],
            "could_see": None if row["could_see"] is None else 100 * row["could_see"],
            "sessions": needed(row, percent, metrics),
        }
        for row in found.overall.iter_rows(named=True)
        if row["could_see"] is None or 100 * row["could_see"] > percent
    ]
    absent: Sequence[dict[str, Any]] = [
        {"deployment": None, "metric": name, "could_see": None, "sessions": None} for name in found.absent
    ]
    return [*rows, *absent]


def unseen(found: Comparison) -> pl.DataFrame:
    """Levels that both sides measured without a pair that compares, but for those at which the candidate fails significantly more."""
    worse = found.failures.filter(verdict="worse")
    return found.uncompared.join(worse, on=["deployment", "workload", "axis", "level"], how="anti")


def sight(found: Comparison) -> Sight | None:
    """What a comparison could have seen of output tokens/s, or its first metric; None where nothing shows."""
    row = next(found.overall.iter_rows(named=True), None)
    if row is None or row["could_see"] is None:
        return None
    seen = 100 * row["could_see"]
    sessions = needed(row, seen / 2, found.overall["metric"].n_unique())
    return Sight(row["metric"], seen, sessions, row["spread_assumed"])

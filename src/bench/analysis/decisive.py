"""Which factor decides which metric, and how far that can be relied upon."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from bench.analysis.factors import FACTORS, METRICS, cells, confounded, marginal_means, with_metrics
from bench.analysis.importance import FEWEST_CELLS, FEWEST_SCORE, importances

__all__ = ["Decided", "Decisive", "FactorEffect", "decided"]


@dataclass(frozen=True)
class FactorEffect:
    """One factor's part in a metric.

    Attributes:
        importance, low, high: loss of R² when it is shuffled, and its spread. change: the factor by which the metric changes from the
            factor's lowest value to its highest, `between`, all else alike; None where it has no order or no configuration has both.
    """

    factor: str
    importance: float
    low: float
    high: float
    change: float | None = None
    between: tuple[float, float] | None = None


@dataclass(frozen=True)
class Decisive:
    """What decides one metric.

    Attributes:
        score: R² on configurations that the model has not seen, with its range over rounds. effects: of the factors whose
            importance is surely above 0, the largest first; None where the model predicts too badly to say. none: factors without a
            visible effect.
    """

    metric: str
    score: tuple[float, float, float]
    effects: tuple[FactorEffect, ...] | None
    none: tuple[str, ...]


@dataclass(frozen=True)
class Decided:
    """A family of workloads in which factors are crossed.

    Attributes:
        configurations: with a valid run. fewest: of which there have to be so many. together: pairs of factors that vary together, so
            that their effects cannot be separated.
    """

    family: str
    metrics: tuple[Decisive, ...]
    configurations: int
    together: tuple[tuple[str, str], ...]
    fewest: int = FEWEST_CELLS


def decided(runs: pl.DataFrame) -> list[Decided]:
    """What decides each metric in each family of crossed factors.

    Args:
        runs: summary rows, as `with_metrics` takes them.
    """
    crossed = runs.filter((pl.col("arrival") == "burst") & (pl.col("workload") != pl.col("family")))
    found = []
    for family in crossed["family"].unique(maintain_order=True):
        valid = with_metrics(crossed.filter(pl.col("family") == family))
        table = cells(valid)
        shares = importances(valid) if table.height else pl.DataFrame(schema={"metric": pl.String})
        means = {name: marginal_means(valid, name) for name in FACTORS if name != "model_order"} if table.height else {}
        metrics = [
            _decisive(shares.filter(pl.col("metric") == title), means)
            for title in METRICS.values()
            if title in shares["metric"]
        ]
        found.append(Decided(family, tuple(metrics), table.height, tuple(confounded(table))))
    return found


def _decisive(rows: pl.DataFrame, means: dict[str, pl.DataFrame]) -> Decisive:
    """Args: rows: of `importances`, of one metric."""
    first = rows.row(0, named=True)
    score = (first["score"], first["score_low"], first["score_high"])
    if first["score"] < FEWEST_SCORE:
        return Decisive(first["metric"], score, None, ())
    sure = rows.filter(pl.col("low") > 0).sort("importance", descending=True)
    none = rows.filter(pl.col("low") <= 0)["factor"].to_list()
    return Decisive(first["metric"], score, tuple(_effect(row, means) for row in sure.to_dicts()), tuple(none))


def _effect(row: dict[str, float | str], means: dict[str, pl.DataFrame]) -> FactorEffect:
    column = next(name for name, title in FACTORS.items() if title == row["factor"])
    change, between = None, None
    if column in means:
        curve = means[column].filter(pl.col("metric") == row["metric"])
        ends = curve.group_by("value").agg(pl.col("mean").log().mean().exp()).sort("value")
        if ends.height > 1:
            (low, least), (high, most) = ends.row(0), ends.row(-1)
            change, between = most / least, (low, high)
    importance, low_end, high_end = (float(row[key]) for key in ("importance", "low", "high"))
    return FactorEffect(str(row["factor"]), importance, low_end, high_end, change, between)

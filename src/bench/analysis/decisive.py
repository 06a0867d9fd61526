"""Which factor decides which metric, and how reliable that is."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from bench.analysis.factors import (
    ARRIVALS,
    METRICS,
    cells,
    confounded,
    factors_of,
    marginal_means,
    unordered,
    varying,
    with_metrics,
)
from bench.analysis.importance import FEWEST_SCORE, importances
from bench.servers.settings import settings_in
from bench.study.questions import CROSSED, FEWEST_CONFIGURATIONS, crossed_families


@dataclass(frozen=True)
class FactorEffect:
    """One factor's part in a metric.

    Attributes:
        change: the factor by which the metric changes from the factor's lowest value to its highest, `between`, all else alike; None
            where its values have no order or no model has both.
    """

    factor: str
    change: float | None = None
    between: tuple[float, float] | tuple[str, str] | None = None


@dataclass(frozen=True)
class Decisive:
    """What decides one metric.

    Attributes:
        score: R² on configurations that the model has not seen, with its range over rounds. effects: of the factors whose
            importance is significantly above 0, the largest first; None where the model predicts too badly to say. none: factors
            without a visible effect.
    """

    metric: str
    score: tuple[float, float, float]
    effects: tuple[FactorEffect, ...] | None
    none: tuple[str, ...]


@dataclass(frozen=True)
class Decided:
    """A family of workloads in which factors are crossed.

    Attributes:
        configurations: with a valid run. fewest: configurations that it takes. measured: with any run. together: pairs of factors
            that vary together, so that their effects cannot be separated.
    """

    family: str
    metrics: tuple[Decisive, ...]
    configurations: int
    measured: int
    together: tuple[tuple[str, str], ...]
    fewest: int = FEWEST_CONFIGURATIONS


def crossed(runs: pl.DataFrame) -> pl.Series:
    """Whether each summary row is of a family in which factors are crossed."""
    asked = ("deployment", "family", "arrival", "model", *CROSSED, *settings_in(runs.columns))
    families = crossed_families(runs.select(asked).to_dicts())
    return runs["family"].is_in(list(families)) & runs["arrival"].is_in(list(ARRIVALS))


def decided(runs: pl.DataFrame) -> list[Decided]:
    """What decides each metric in each family of crossed factors.

    Args:
        runs: summary rows, as `with_metrics` takes them.
    """
    found = []
    for _, family in runs.filter(crossed(runs)).group_by("family", maintain_order=True):
        valid = with_metrics(family)
        names = factors_of(valid)
        table, measured = cells(valid), cells(with_metrics(family.with_columns(valid=True)))
        shares = importances(valid) if table.height else pl.DataFrame(schema={"metric": pl.String})
        ordered = [name for name in varying(valid) if name != "model_order" and not unordered(valid[name])]
        means = {names[name]: marginal_means(valid, name) for name in ordered}
        metrics = [
            _decisive(shares.filter(pl.col("metric") == title), means)
            for title in METRICS.values()
            if title in shares["metric"]
        ]
        found.append(Decided(family["family"][0], tuple(metrics), table.height, measured.height, tuple(confounded(table))))
    return found


def _decisive(rows: pl.DataFrame, means: dict[str, pl.DataFrame]) -> Decisive:
    """Args: rows: of `importances`, of one metric. means: of `marginal_means`, by what the factor is called."""
    first = rows.row(0, named=True)
    score = (first["score"], first["score_low"], first["score_high"])
    if first["score"] < FEWEST_SCORE:
        return Decisive(first["metric"], score, None, ())
    sure = rows.filter(pl.col("low") > 0).sort("importance", descending=True)
    none = rows.filter(pl.col("low") <= 0)["factor"].to_list()
    return Decisive(first["metric"], score, tuple(_effect(row, means) for row in sure.to_dicts()), tuple(none))


def _effect(row: dict[str, float | str], means: dict[str, pl.DataFrame]) -> FactorEffect:
    change, between = None, None
    if (known := means.get(str(row["factor"]))) is not None:
        curve = known.filter(pl.col("metric") == row["metric"])
        # Models differ in more than this factor: a ratio takes one model with both ends.
        low, high = (curve.filter(pl.col("value") == end) for end in (curve["value"].min(), curve["value"].max()))
        both = low.join(high, on="model", suffix="_high").filter(pl.col("value") < pl.col("value_high"))
        if both.height:
            change = both.select((pl.col("mean_high") / pl.col("mean")).log().mean().exp()).item()
            between = both.select(
                *(("value", "value_high") if known["label"].is_null().all() else ("label", "label_high"))
            ).row(0)
    return FactorEffect(str(row["factor"]), change, between)

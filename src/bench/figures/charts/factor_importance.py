"""What a model of each metric owes to each factor."""

from typing import Any

import altair as alt
import polars as pl

from bench.analysis.factors import cells, confounded
from bench.analysis.importance import FEWEST_SCORE, importances
from bench.figures.families import by_family
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import NEUTRAL, nothing_to_show
from bench.study.questions import FEWEST_CONFIGURATIONS
from bench.words.factors import model_score, together

_TITLE = "importance (loss of R²)"
_WIDTH = 330


@figure(
    "factor-importance",
    title="What decides each metric",
    question="How much worse is a metric predicted when one factor is shuffled?",
    reading="Permutation importance: R² of gradient-boosted trees on configurations that they have not seen, less R² with the "
    "factor shuffled. Above 1 the shuffled factor leads further astray than the mean would. Bars: means; lines: 2.5 % to "
    "97.5 % of twenty shuffles in each of two rounds; a factor whose line reaches 0 or lies below it has no effect that shows. "
    "The R² in a panel's title is the model's; below 0.5 no importance is given.",
    invalid="Left out",
    by_axis=False,
)
def factor_importance(results: Results) -> alt.TopLevelMixin:
    """Permutation importance of each factor with its spread, a panel a metric.

    Args:
        results: `runs` as `bench.analysis.factors.with_metrics` takes them.
    """
    return by_family(results, _drawn)


def _drawn(runs: pl.DataFrame) -> alt.TopLevelMixin:
    rows, table = importances(runs), cells(runs)
    if rows.is_empty():
        return nothing_to_show(
            f"{table.height} configurations have valid runs; {FEWEST_CONFIGURATIONS} in which a metric is known are the fewest of "
            "which folds can be held out"
        )
    known = rows.drop_nulls("importance")
    low, high = (value or 0.0 for value in known.select(pl.min("low"), pl.max("high")).row(0))
    x = alt.X(
        "importance:Q",
        title=_TITLE,
        scale=alt.Scale(domain=[1.05 * min(0.0, low), 1.05 * max(high, 0.1)], nice=False, zero=True),
    )
    notes = [together(pairs)] if (pairs := confounded(table)) else []
    panels = [_panel(part, x, notes) for part in rows.partition_by("metric", maintain_order=True)]
    return alt.ConcatChart(concat=panels, columns=2)


def _panel(part: pl.DataFrame, x: alt.X, notes: list[str]) -> alt.LayerChart:
    score: dict[str, Any] = part.row(0, named=True)
    title = alt.TitleParams(
        score["metric"].split(" (")[0],
        subtitle=[model_score(score), *notes],
        fontSize=13,
        anchor="start",
    )
    if score["importance"] is None:
        return nothing_to_show(f"R² is below {FEWEST_SCORE}").properties(width=_WIDTH, title=title)
    base = alt.Chart(part)
    y = alt.Y("factor:N", title=None, sort=part["factor"].to_list())
    bars = base.mark_bar(color=NEUTRAL, opacity=0.75, height=14).encode(
        x=x,
        y=y,
        tooltip=["factor:N", *(alt.Tooltip(f"{key}:Q", format=".3f") for key in ("importance", "low", "high"))],
    )
    spread = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=_TITLE), x2=alt.X2("high:Q"), y=y)
    return alt.LayerChart(layer=[bars, spread]).properties(width=_WIDTH, height=alt.Step(28), title=title)

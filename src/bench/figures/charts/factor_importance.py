"""What a model of each metric owes to each factor."""

import altair as alt
import polars as pl

from bench.analysis.factors import FACTORS, METRICS, importances, with_metrics
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import PALETTE, nothing_to_show


@figure(
    "factor-importance",
    title="What decides each metric",
    question="How much worse is a metric told when one factor is shuffled?",
    reading="Permutation importance: R² of gradient-boosted trees on configurations that they have not seen, less R² with the "
    "factor shuffled. Above 1 the shuffled factor leads further astray than the mean would. Bars: means; lines: 2.5 % to "
    "97.5 % of ten shuffles in each of ten folds. The R² in a panel's title is the model's; below 0.5 no importance is "
    "told.",
    invalid="Left out",
    by_axis=False,
)
def factor_importance(results: Results) -> alt.ConcatChart | alt.LayerChart:
    """Permutation importance of each factor with its spread, a panel a metric.

    Args:
        results: `runs` as `bench.analysis.factors.with_metrics` takes them.
    """
    rows = importances(with_metrics(results.runs))
    if rows.is_empty():
        return nothing_to_show("fewer than 20 configurations of swept lengths")
    highest = rows["high"].max()
    lowest = min(0.0, float(rows["low"].min() or 0.0))  # type: ignore[arg-type]
    x = alt.X(
        "importance:Q",
        title="importance (loss of R²)",
        scale=alt.Scale(domain=[1.05 * lowest, 1.05 * float(highest or 1.0)]),  # type: ignore[arg-type]
    )
    panels = []
    for title in METRICS.values():
        part = rows.filter(pl.col("metric") == title)
        if part.is_empty():
            continue
        score = part.row(0, named=True)
        words = f"R² {score['score']:.2f} ({score['score_low']:.2f} to {score['score_high']:.2f}), n = {score['n']}"
        if score["importance"] is None:
            words += ": too low, no importance told"
        known = part.drop_nulls("importance")
        base = alt.Chart(known if not known.is_empty() else part.with_columns(importance=0.0, low=0.0, high=0.0))
        y = alt.Y("factor:N", title=None, sort=list(FACTORS.values()))
        panels.append(
            alt.layer(
                base.mark_bar(color=PALETTE[0], opacity=0.75, height=14).encode(
                    x=x, y=y, tooltip=["factor:N", alt.Tooltip("importance:Q", format=".3f")]
                ),
                base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title="importance (loss of R²)"), x2="high:Q", y=y),
            ).properties(
                width=330,
                height=alt.Step(28),
                title=alt.TitleParams(title.split(" (")[0], subtitle=words, fontSize=13, anchor="start"),
            )
        )
    return alt.ConcatChart(concat=panels, columns=2)

"""Which factors and metrics go together."""

import altair as alt
import polars as pl

from bench.analysis.factors import FACTORS, METRICS, correlations, with_metrics
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import nothing_to_show


@figure(
    "factor-correlations",
    title="Which factors and metrics go together",
    question="How strongly is each metric correlated with each factor?",
    reading="Pearson's r over the configurations of a model, repeats averaged first, with its 95 % interval and its strength: none "
    "below 0.1, low, medium from 0.3, high from 0.5, very high from 0.7. It sees straight lines only: a metric that rises "
    "and falls with a factor has an r near 0.",
    invalid="Left out",
    by_axis=False,
)
def factor_correlations(results: Results) -> alt.FacetChart | alt.LayerChart:
    """Pearson's r of factors and metrics, a panel a model.

    Args:
        results: `runs` as `bench.analysis.factors.with_metrics` takes them.
    """
    rows = correlations(with_metrics(results.runs)).filter(pl.col("r").is_finite())
    if rows.is_empty():
        return nothing_to_show("no factor varies in three configurations")
    interval = pl.when(pl.col("low").is_not_null()).then(pl.format("{} to {}", pl.col("low").round(2), pl.col("high").round(2)))
    rows = rows.with_columns(
        interval=interval.fill_null(""), ink=pl.when(pl.col("r").abs() > 0.6).then(pl.lit("white")).otherwise(pl.lit("black"))
    )
    base = alt.Chart().encode(
        x=alt.X(
            "metric:N",
            title=None,
            sort=list(METRICS.values()),
            axis=alt.Axis(labelAngle=0, labelExpr="split(datum.label, ' (')[0]"),
        ),
        y=alt.Y("factor:N", title=None, sort=list(FACTORS.values())),
    )
    scale = alt.Scale(domain=[-1, 1], scheme="blueorange")
    cells = base.mark_rect().encode(
        color=alt.Color("r:Q", legend=None, scale=scale),
        tooltip=["factor:N", "metric:N", alt.Tooltip("r:Q", format=".3f"), alt.Tooltip("rank_r:Q", title="Spearman's", format=".3f"),
                 "interval:N", "band:N", alt.Tooltip("n:Q", title="configurations")],
    )  # fmt: skip
    ink = alt.Color("ink:N", scale=None)
    number = base.mark_text(dy=-12, fontSize=14, fontWeight="bold").encode(text=alt.Text("r:Q", format=".2f"), color=ink)
    strength = base.mark_text(dy=4, fontSize=11).encode(text="band:N", color=ink)
    between = base.mark_text(dy=18, fontSize=10).encode(text="interval:N", color=ink)
    chart: alt.FacetChart = (
        alt.layer(cells, number, strength, between, data=rows)
        .resolve_scale(color="independent")
        .properties(width=alt.Step(118), height=alt.Step(58))
        .facet(facet=alt.Facet("model:N", title=None), columns=2)
    )
    return chart

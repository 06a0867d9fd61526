"""Which factors and metrics go together."""

import altair as alt
import polars as pl

from bench.analysis.factors import METRICS, correlations, factors_of, metrics_of
from bench.figures.families import by_family
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import nothing_to_show
from bench.words.factors import correlation


@figure(
    "factor-correlations",
    title="Which factors and metrics go together",
    question="How strongly is each metric correlated with each factor?",
    reading="Pearson's r over the configurations of a model, repeats averaged first, with its 95 % interval and its strength: none "
    "below 0.1, low, medium from 0.3, high from 0.5, very high from 0.7. It sees straight lines only; Spearman's ρ sees whatever "
    "rises or falls all the way.",
    invalid="Left out",
    by_axis=False,
)
def factor_correlations(results: Results) -> alt.TopLevelMixin:
    """Pearson's r of factors and metrics, a panel a model.

    Args:
        results: `runs` as `bench.analysis.factors.with_metrics` takes them.
    """
    return by_family(results, _drawn)


def _drawn(runs: pl.DataFrame) -> alt.TopLevelMixin:
    rows = correlations(runs)
    if rows.is_empty():
        return nothing_to_show("no factor varies in three configurations")
    interval = [
        f"{low:.2f} to {high:.2f}".replace("-", "−") if low is not None else ""
        for low, high in rows.select("low", "high").rows()
    ]
    rows = rows.with_columns(
        interval=pl.Series(interval, dtype=pl.String),
        band=pl.Series([correlation(*row) for row in rows.select("strength", "r").rows()], dtype=pl.String),
        panel=pl.format("{} ({} configurations)", "model", pl.col("n").max().over("model")),
        ink=pl.when(pl.col("r").abs() > 0.72).then(pl.lit("white")).otherwise(pl.lit("black")),
    )
    titles = [title for title in metrics_of(runs).values() if title in rows["metric"]]
    base = alt.Chart().encode(
        x=alt.X("metric:N", title=None, sort=titles, axis=alt.Axis(labelAngle=0, labelExpr="split(datum.label, ' (')[0]")),
        y=alt.Y("factor:N", title=None, sort=list(dict.fromkeys((*factors_of(runs).values(), *rows["factor"])))),
    )
    tooltip = ["factor:N", "metric:N", alt.Tooltip("r:Q", format=".3f"),
               alt.Tooltip("rank_r:Q", title="Spearman's ρ", format=".3f"),
               "interval:N", "band:N", alt.Tooltip("n:Q", title="configurations")]  # fmt: skip
    cells = base.mark_rect().encode(
        color=alt.Color("r:Q", legend=None, scale=alt.Scale(domain=[-1, 1], scheme="blueorange")), tooltip=tooltip
    )
    ink = alt.Color("ink:N", scale=None)
    number = base.mark_text(dy=-20, fontSize=14, fontWeight="bold").encode(text=alt.Text("r:Q", format=".2f"), color=ink)
    strength = base.mark_text(dy=-4, fontSize=11).encode(text=alt.Text("band:N"), color=ink)
    between = base.mark_text(dy=10, fontSize=10).encode(text=alt.Text("interval:N"), color=ink)
    ranks = (
        base.transform_calculate(rho="'ρ ' + format(datum.rank_r, '.2f')")
        .mark_text(dy=23, fontSize=10)
        .encode(text=alt.Text("rho:N"), color=ink)
    )
    chart: alt.FacetChart = (
        alt.layer(cells, number, strength, between, ranks, data=rows)
        .resolve_scale(color="independent")
        .properties(width=alt.Step(118), height=alt.Step(68))
        .facet(facet=alt.Facet("panel:N", title=None, sort=None), columns=2 if len(titles) <= len(METRICS) else 1)
    )
    return chart

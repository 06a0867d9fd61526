"""Revenue, cost and profit against demand."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.analysis import best_points
from bench.analysis.economics import lasting
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import NEUTRAL, PALETTE, PANELS_A_ROW, curve_column, level_axis, nothing_to_show, with_curve
from bench.study.questions import wanted

_LINES = {"revenue_per_h": "revenue", "cost_per_h": "cost", "profit_per_h": "profit"}
_DASHES = {"revenue": [1, 0], "cost": [6, 3], "profit": [2, 2]}


@figure(
    "economics",
    applies=wanted("priced"),
    order=90,
    title="Revenue, cost and profit against demand",
    question="From which load on does an instance earn what it costs, and at which load does it earn the most?",
    reading="USD an hour of one instance under each load: revenue from output tokens/s, cost of its GPUs (or machine), energy and "
    "requests, and profit, what is left; means of a level's valid runs, in their steady windows. Diamond: the load that leaves the "
    "most, whether it meets the SLOs or not; grey, dashed: the operating point, within them. Beyond saturation throughput falls and "
    "cost stays. Prices are those of the study's decision. Each panel has a scale of its own.",
    invalid="Left out",
    uses=(
        *("slo", "failed_share", "accelerator", "price_per_hour", "energy_price_per_kwh"),
        *("cost_per_million_requests", "price_per_million_tokens"),
    ),
)
def economics_chart(results: Results) -> alt.FacetChart | alt.LayerChart:
    """R, C and Π over load, a panel a curve.

    Args:
        results: `runs` with `level`, `priced_tokens_per_s` and `valid`; `decision` with its prices.
    """
    priced = lasting(results.priced.filter("valid").drop_nulls("profit_per_h"))
    if priced.is_empty():
        return nothing_to_show("no price of an hour and of tokens is given, or no run is valid")
    levels = (
        with_curve(results, priced)
        .group_by("curve", "level", maintain_order=True)
        .agg(pl.col(*_LINES).mean())
        .unpivot(on=list(_LINES), index=["curve", "level"], variable_name="line", value_name="usd")
        .with_columns(pl.col("line").replace(_LINES))
    )
    best = with_curve(results, best_points(priced)).select(
        "curve", level="best_at", usd="best_profit", line=pl.lit("profit"), best=pl.lit(True)
    )
    rows = pl.concat([levels.with_columns(best=pl.lit(False)), best.select("curve", "level", "line", "usd", "best")])
    operated = (
        with_curve(results, results.points)
        .drop_nulls("operate_at")
        .select("curve", level="operate_at", line=pl.lit("operated"))
        .join(levels, on="curve", how="semi")  # no panel for a burst, which earns nothing that lasts
    )
    rows = pl.concat([rows, operated], how="diagonal")
    names = list(_DASHES)
    x, y = level_axis(results), alt.Y("usd:Q", title="USD an hour")
    strokes = alt.Legend(symbolType="stroke")
    colour = alt.Color(
        "line:N", title=None, sort=names, legend=strokes, scale=alt.Scale(domain=names, range=PALETTE[: len(names)])
    )
    dashes = list(_DASHES.values())
    dash = alt.StrokeDash("line:N", title=None, sort=names, legend=strokes, scale=alt.Scale(domain=names, range=dashes))
    tooltip = [
        alt.Tooltip("curve:N"),
        alt.Tooltip("line:N"),
        alt.Tooltip("level:Q"),
        alt.Tooltip("usd:Q", title="USD an hour", format=".4f"),
    ]
    base = alt.Chart(rows)
    plain = base.transform_filter("datum.best === false")
    chart: alt.FacetChart = (
        alt.layer(
            base.transform_filter("datum.line == 'operated'").mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(x=x),
            plain.mark_line().encode(x=x, y=y, color=colour, strokeDash=dash),
            plain.mark_point(filled=True, size=35, opacity=1).encode(x=x, y=y, color=colour, tooltip=tooltip),
            base.transform_filter("datum.best")
            .mark_point(shape="diamond", fill="white", size=130, strokeWidth=2, opacity=1)
            .encode(x=x, y=y, color=colour, tooltip=tooltip),
        )
        .properties(width=280, height=260)
        .facet(facet=alt.Facet("curve:N", title=None, sort=curve_column(results)), columns=PANELS_A_ROW)
        .resolve_scale(y="independent")
        .resolve_axis(x="independent")
    )
    return chart

"""Revenue, cost and profit against demand."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import polars as pl

from bench.analysis import best_points
from bench.analysis.economics import lasting
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import curve_colour, curve_dash, curve_shape, level_axis, nothing_to_show, with_curve
from bench.study.questions import wanted

_LINES = {"revenue_per_h": "revenue", "cost_per_h": "cost", "profit_per_h": "profit"}


@figure(
    "economics",
    applies=wanted("priced"),
    order=90,
    title="Revenue, cost and profit against demand",
    question="From which load on does an instance earn what it costs, and at which load does it earn the most?",
    reading="USD an hour of one instance under each load: revenue from output tokens/s, cost of its GPUs (or machine), energy and "
    "requests, and profit, what is left, a panel each; means of a level's valid runs, in their steady windows. Diamond: the "
    "load that leaves the most, whether it meets the SLOs or not; upright, dashed: the operating point, within them. Beyond "
    "saturation throughput falls and cost stays. Prices are those of the study's decision.",
    invalid="Left out",
    uses=(
        *("slo", "failed_share", "accelerator", "price_per_hour", "energy_price_per_kwh"),
        *("cost_per_million_requests", "price_per_million_tokens"),
    ),
)
def economics_chart(results: Results) -> alt.FacetChart | alt.LayerChart:
    """R, C and Π over load, a panel each, a line a curve.

    Args:
        results: `runs` with `level`, `priced_tokens_per_s` and `valid`; `decision` with its prices.
    """
    priced = lasting(results.priced.filter("valid").drop_nulls("profit_per_h"))
    if priced.is_empty():
        valid = results.priced["valid"].any()
        return nothing_to_show("no price of an hour and of tokens is given" if valid else "no run is valid")
    of_these = replace(results, runs=results.runs.join(priced, on=["deployment", "workload"], how="semi"), whole=results.study)
    levels = (
        with_curve(results, priced)
        .group_by("curve", "workload", "level", maintain_order=True)
        .agg(pl.col(*_LINES).mean())
        .unpivot(on=list(_LINES), index=["curve", "workload", "level"], variable_name="line", value_name="usd")
        .with_columns(pl.col("line").replace(_LINES))
    )
    best = with_curve(results, best_points(priced)).select(
        "curve", "workload", level="best_at", usd="best_profit", line=pl.lit("profit"), best=pl.lit(True)
    )
    rows = pl.concat([levels.with_columns(best=pl.lit(False)), best], how="diagonal")
    operated = (
        with_curve(results, results.points)
        .drop_nulls("operate_at")
        .select("curve", level="operate_at", line=pl.lit("profit"), operated=pl.lit(True))
        .join(levels, on="curve", how="semi")  # no panel for a burst, which earns nothing that lasts
    )
    rows = pl.concat([rows, operated], how="diagonal")
    x, y, colour = level_axis(results), alt.Y("usd:Q", title="USD an hour"), curve_colour(of_these)
    tooltip = ["curve:N", "line:N", "level:Q", alt.Tooltip("usd:Q", title="USD an hour", format=".4f")]
    base = alt.Chart(rows)
    plain = base.transform_filter("datum.best === false")
    chart: alt.FacetChart = (
        alt.layer(
            base.transform_filter("datum.operated").mark_rule(strokeDash=[5, 4]).encode(x=x, color=colour),
            plain.mark_line().encode(x=x, y=y, color=colour, strokeDash=curve_dash(results)),
            plain.mark_point(filled=True, size=35, opacity=1).encode(
                x=x, y=y, color=colour, shape=curve_shape(of_these), tooltip=tooltip
            ),
            base.transform_filter("datum.best")
            .mark_point(shape="diamond", fill="white", size=130, strokeWidth=2, opacity=1)
            .encode(x=x, y=y, color=colour, tooltip=tooltip),
        )
        .properties(width=280, height=260)
        .facet(facet=alt.Facet("line:N", title=None, sort=list(_LINES.values())), columns=len(_LINES))
        .resolve_axis(x="independent")
    )
    return chart

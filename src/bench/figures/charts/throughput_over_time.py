"""Throughput over time, a line a level."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import PANELS_A_ROW, curve_column, with_curve
from bench.study.questions import tokens_over_time


@figure(
    "throughput-over-time",
    applies=tokens_over_time,
    order=100,
    title="Throughput over time",
    question="Does a run keep its speed, and how does its end look?",
    reading="Output tokens a second at the client, in bins of half a second, a line a level. Beyond saturation a run has a plateau "
    "that more load does not raise, and a tail in which the requests that had to wait run alone. Each panel has a scale of "
    "its own.",
    invalid="Dashed",
)
def throughput_over_time(results: Results) -> alt.FacetChart:
    """Output tokens a second over time: the first repeat of each level, a panel a curve.

    Args:
        results: `timeseries` with the series `throughput` (tokens/s) over `elapsed_s` (s).
    """
    runs = with_curve(results, results.runs).select("deployment", "run", "curve", "valid")
    rows = (
        results.timeseries.filter(pl.col("series") == "throughput")
        .join(runs, on=["deployment", "run"])
        .filter(pl.col("repeat") == pl.col("repeat").min().over("curve", "level"))
        .select("curve", "level", "elapsed_s", "value", "valid")
    )
    # Ordinal, so that the legend has the measured levels and no others; viridis darkens with the load, in print too.
    scale = alt.Scale(scheme="viridis", reverse=True)
    chart: alt.FacetChart = (
        alt.Chart(rows)
        .mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=12))
        .encode(
            x=alt.X("elapsed_s:Q", title="time since the run's start (s)"),
            y=alt.Y("value:Q", title="output tokens/s"),
            detail=alt.Detail("level:Q"),
            color=alt.Color("level:O", title=results.axis.replace("_", " "), scale=scale, legend=alt.Legend(format="~g")),
            strokeDash=alt.StrokeDash(
                "valid:N", title="valid", legend=None, scale=alt.Scale(domain=[True, False], range=[[1, 0], [3, 3]])
            ),
            tooltip=[alt.Tooltip("level:Q"), alt.Tooltip("elapsed_s:Q", format=".2f"), alt.Tooltip("value:Q", format=".0f")],
        )
        .properties(width=280, height=260)
        .facet(facet=alt.Facet("curve:N", title=None, sort=curve_column(results)), columns=PANELS_A_ROW)
        .resolve_scale(x="independent", y="independent")
    )
    return chart

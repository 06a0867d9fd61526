"""Time to first token against concurrency."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import concurrency_axis, curve_colour, curve_column, with_curve

_MEASURES = {"ttft_mean_s": "mean", "ttft_p50_s": "P50", "ttft_p99_s": "P99"}


@figure(
    "ttft",
    title="Time to first token against concurrency",
    question="How long does a user wait for the first token as load rises?",
    reading="Under a burst each request waits behind the others' prefill, so the time rises about in line with the load; a knee shows "
    "under paced arrivals only. A P99 of fewer than 100 requests is the slowest of them.",
)
def ttft(results: Results) -> alt.FacetChart:
    """Mean, P50 and P99 of TTFT at each level (medians over repeats), a panel a curve.

    Args:
        results: `runs` with `concurrency`, `ttft_mean_s`, `ttft_p50_s`, `ttft_p99_s` (s) and `valid`.
    """
    runs = with_curve(results, results.runs)
    long = (
        runs.unpivot(on=list(_MEASURES), index=["curve", "concurrency", "valid"], variable_name="measure", value_name="seconds")
        .with_columns(pl.col("measure").replace(_MEASURES))
        .filter(pl.col("seconds").is_not_null())
    )
    x = concurrency_axis(results.runs["concurrency"])
    y = alt.Y("seconds:Q", title="TTFT (s)")
    # The same measure has the same dash and shape in each panel; the colour says again which curve it is.
    measures = list(_MEASURES.values())
    dashes = alt.Scale(domain=measures, range=[[1, 0], [6, 3], [2, 2]])
    shapes = alt.Scale(domain=measures, range=["circle", "square", "triangle-up"])
    dash = alt.StrokeDash("measure:N", title="TTFT", sort=measures, scale=dashes)
    shape = alt.Shape("measure:N", title="TTFT", sort=measures, scale=shapes)
    colour = curve_colour(results).legend(None)
    base = alt.Chart(long)
    line = (
        base.transform_filter("datum.valid")
        .transform_aggregate(seconds="median(seconds)", groupby=["curve", "concurrency", "measure"])
        .mark_line()
        .encode(x=x, y=y, color=colour, strokeDash=dash)
    )
    dots = (
        base.transform_filter("datum.valid")
        .mark_point(filled=True, size=45, opacity=1)
        .encode(
            x=x,
            y=y,
            color=colour,
            shape=shape,
            tooltip=["measure:N", "concurrency:Q", alt.Tooltip("seconds:Q", format=".3f")],
        )
    )
    crosses = (
        base.transform_filter("!datum.valid")
        .mark_point(shape="cross", angle=45, size=60, strokeWidth=1.5)
        .encode(x=x, y=y, color=colour)
    )
    return (
        alt.layer(line, dots, crosses)
        .properties(width=280, height=260)
        .facet(column=alt.Column("curve:N", title=None, sort=curve_column(results)))
    )

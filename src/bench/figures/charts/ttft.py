"""Time to first token against load."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import NEUTRAL, PANELS_A_ROW, curve_colour, curve_column, level_axis, with_curve, with_whole
from bench.study.questions import levels
from bench.words.charts import whole_runs_note

_MEASURES = {"ttft_mean_s": "mean", "ttft_p50_s": "P50", "ttft_p99_s": "P99"}
_DASHES = {"mean": [1, 0], "P50": [6, 3], "P99": [2, 2]}
_BOUND, _NO_BOUND = "P99, with bound", "P99, no bound"
_TRIANGLE = "M0,-1.25L1.25,0.95L-1.25,0.95Z"
# A P99 that its requests cannot carry is no fact: a triangle with a hole (drawn the other way round, which leaves it out).
_SHAPES = {
    "mean": "circle",
    "P50": "square",
    _BOUND: _TRIANGLE,
    _NO_BOUND: f"{_TRIANGLE} M0,-0.55L-0.65,0.6L0.65,0.6Z",
}


@figure(
    "ttft",
    applies=levels(2),
    order=60,
    title="Time to first token against load",
    question="How long does a user wait for the first token as load rises?",
    reading="Under a burst each request waits behind the others' prefill, so the time rises about in line with the load; a knee "
    "shows under paced arrivals only. Hollow: fewer than 662 requests, the P99 is an estimate without a bound (below 100 "
    "requests, the slowest of them). A filled P99 has a whisker up to the value that the true one does not exceed, at 99 % "
    "confidence. Grey, dashed: the limits of the study's SLOs. Each panel has a scale of its own.",
    uses=("slo",),
    note=lambda results: whole_runs_note(results.whole_runs.height, marks="In grey squares"),
)
def ttft(results: Results) -> alt.FacetChart:
    """Mean, P50 and P99 of TTFT at each level (medians over repeats), a panel a curve; hollow where a P99 has no bound.

    Args:
        results: `runs` with `level`, `ttft_mean_s`, `ttft_p50_s`, `ttft_p99_s`, `ttft_p99_bound_s` (s), `ttft_n` and `valid`.
    """
    runs = with_curve(results, results.runs)
    kept = ["deployment", "run", "curve", "level", "valid", "ttft_n", "ttft_p99_bound_s"]
    measure, bound = pl.col("measure"), pl.col("bound")
    p99 = measure == "P99"
    long = (
        runs.unpivot(on=list(_MEASURES), index=kept, variable_name="measure", value_name="seconds")
        .filter(pl.col("seconds").is_not_null())
        .with_columns(measure.replace(_MEASURES))
        .with_columns(bound=pl.when(p99).then("ttft_p99_bound_s"))
        .with_columns(
            told=pl.when(p99, bound.is_null()).then(pl.lit(_NO_BOUND)).when(p99).then(pl.lit(_BOUND)).otherwise(measure)
        )
        .drop("ttft_p99_bound_s")
    )
    long = with_whole(results, long).drop("deployment", "run")
    x = level_axis(results)
    y = alt.Y("seconds:Q", title="TTFT (s)")
    # The same measure has the same dash and shape in each panel; the colour says again which curve it is.
    dash = alt.StrokeDash("measure:N", legend=None, scale=alt.Scale(domain=list(_DASHES), range=list(_DASHES.values())))
    told = {name: shape for name, shape in _SHAPES.items() if name in long["told"]}
    shape = alt.Shape(
        "told:N",
        title="TTFT",
        sort=list(told),
        scale=alt.Scale(domain=list(told), range=list(told.values())),
        legend=alt.Legend(symbolFillColor="#555555", symbolStrokeColor="transparent"),
    )
    colour = curve_colour(results).legend(None)
    valid = alt.Chart(long).transform_filter("datum.valid")
    whole = (
        valid.transform_filter("datum.whole")
        .mark_point(shape="square", size=190, strokeWidth=1.2, color=NEUTRAL, opacity=1)
        .encode(x=x, y=y)
    )
    line = (
        valid.transform_aggregate(seconds="median(seconds)", groupby=["curve", "level", "measure"])
        .mark_line()
        .encode(x=x, y=y, color=colour, strokeDash=dash)
    )
    whiskers = valid.mark_errorbar(ticks=True, thickness=1.5).encode(x=x, y=y, y2=alt.Y2("bound:Q"), color=colour)
    # White below, so that no line runs through a hole.
    ground = (
        valid.transform_filter(f"datum.told == '{_NO_BOUND}'")
        .mark_point(shape=_TRIANGLE, filled=True, size=60, color="white", opacity=1)
        .encode(x=x, y=y)
    )
    dots = valid.mark_point(filled=True, size=60, opacity=1).encode(
        x=x,
        y=y,
        shape=shape,
        color=colour,
        tooltip=[
            alt.Tooltip("told:N", title="TTFT"),
            alt.Tooltip("level:Q"),
            alt.Tooltip("ttft_n:Q", title="requests"),
            alt.Tooltip("seconds:Q", format=".3f"),
            alt.Tooltip("bound:Q", title="99 % bound", format=".3f"),
        ],
    )
    crosses = (
        alt.Chart(long)
        .transform_filter("!datum.valid")
        .mark_point(shape="cross", angle=45, size=60, strokeWidth=1.5)
        .encode(
            x=x,
            y=y,
            color=colour,
            tooltip=[alt.Tooltip("measure:N"), alt.Tooltip("level:Q"), alt.Tooltip("seconds:Q", format=".3f")],
        )
    )
    limits = [
        alt.Chart(long)
        .transform_aggregate(groupby=["curve"])
        .mark_rule(strokeDash=[5, 4], color="#777777")
        .encode(y=alt.YDatum(slo.limit_s))
        for slo in results.decision.slos
        if slo.metric == "ttft"
    ]
    chart: alt.FacetChart = (
        alt.layer(*limits, line, whiskers, ground, dots, crosses, whole)
        .properties(width=280, height=260)
        .facet(facet=alt.Facet("curve:N", title=None, sort=curve_column(results)), columns=PANELS_A_ROW)
        .resolve_scale(y="independent")
        .resolve_axis(x="independent")
    )
    return chart

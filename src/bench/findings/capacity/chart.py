"""How near each load comes to each SLO's limit."""

import math

import polars as pl

from bench.findings.tables import Tables
from bench.parse.level_values import level_values
from bench.report.altair import alt
from bench.report.chart_words import margin_title
from bench.report.figure import figure
from bench.report.theme import (
    curve_colour,
    curve_dash,
    curve_shape,
    level_axis,
    log_scale,
    nothing_to_show,
    panels_a_row,
    with_curve,
)

_CURVE = ("deployment", "workload")
_CLOSEST, _FARTHEST = 0.05, 20.0  # of the limit; what lies beyond is drawn at the edge
_BAR = 1.1  # of the axis, the factor that a curve's bar takes at the bottom
_PANELS_A_ROW = 3


def _finding(results: Tables) -> str | None:
    return margin_title(results.points, results.decision.slos)


@figure(
    "slo-margin",
    title="How near each load comes to each limit",
    question="Which SLO is missed first, and how sharply?",
    reading="Latency ÷ its limit, dashed at 100 %: points of runs, lines of all requests of a level's valid runs. Bars: where "
    "the limit lies, at 95 % confidence. Points beyond 5 % or 2,000 % stand at the edge.",
    finding=_finding,
)
def slo_margin(results: Tables) -> alt.FacetChart | alt.LayerChart:
    """Percentile ÷ limit of each SLO against load, a panel an SLO.

    Args:
        results: `runs` with `level`, `valid` and the columns of the decision's SLOs (s).
    """
    slos = [slo for slo in results.decision.slos if slo.column in results.runs.columns]
    if not slos:
        return nothing_to_show("the study's `decision` names no SLO")
    names, limits = {slo.column: str(slo) for slo in slos}, {slo.column: slo.limit_s for slo in slos}
    # a row a run, and a row a level, which has no run
    shown = [results.runs.select(*_CURVE, "run", "level", "valid", *names), level_values(results.runs, list(names))]
    rows = (
        with_curve(results, pl.concat(shown, how="diagonal_relaxed"))
        .join(results.points.select(*_CURVE, "low", "high"), on=list(_CURVE), how="left", maintain_order="left")
        .unpivot(
            on=list(names),
            index=[*_CURVE, "curve", "run", "level", "valid", "low", "high"],
            variable_name="slo",
            value_name="seconds",
        )
        .drop_nulls("seconds")
        .with_columns(reached=pl.col("seconds") / pl.col("slo").replace_strict(limits, return_dtype=pl.Float64))
        .with_columns(pl.col("slo").replace(names), at=pl.col("reached").clip(_CLOSEST, _FARTHEST))
        .with_columns(pl.col("seconds", "reached").replace(math.inf, None))  # JSON has no infinity
        .drop("deployment")
    )
    if rows.is_empty():
        return nothing_to_show("no run has a latency that an SLO limits")
    low, high = _domain(rows)
    bars = rows.drop_nulls(["low", "high"])["curve"].unique(maintain_order=True).to_list()
    place = {curve: low / _BAR ** (i + 1) for i, curve in enumerate(reversed(bars))}
    rows = rows.with_columns(bar=pl.col("curve").replace_strict(place, default=None, return_dtype=pl.Float64))
    foot = low / _BAR ** (len(bars) + 1) if bars else low
    scale = log_scale(foot, high)
    title = "percentile ÷ its limit (log)"
    x, colour, shape = level_axis(results), curve_colour(results), curve_shape(results)
    y = alt.Y("at:Q", title=title, scale=scale, axis=alt.Axis(format="~%"))
    base = alt.Chart(rows)
    tooltip = [
        "curve:N",
        "run:N",
        alt.Tooltip("slo:N", title="SLO"),
        "level:Q",
        alt.Tooltip("seconds:Q", format=".3g"),
        alt.Tooltip("reached:Q", title="of its limit", format=".0%"),
    ]
    band = (
        base.transform_filter("isValid(datum.bar)")
        .transform_aggregate(low="min(low)", high="min(high)", groupby=["curve", "bar"])
        .mark_rule(strokeWidth=5, opacity=0.6, strokeCap="round")
        .encode(x=level_axis(results, "low"), x2="high:Q", y=alt.Y("bar:Q", title=title, scale=scale), color=colour)
    )
    limit = base.transform_aggregate(groupby=["slo"]).mark_rule(strokeDash=[5, 4], color="#000000").encode(y=alt.YDatum(1.0))
    lines = (
        base.transform_filter("!isValid(datum.run)").mark_line().encode(x=x, y=y, color=colour, strokeDash=curve_dash(results))
    )
    runs = base.transform_filter("isValid(datum.run)")
    dots = (
        runs.transform_filter("datum.valid")
        .mark_point(filled=True, size=45, opacity=1)
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip)
    )
    crosses = (
        runs.transform_filter("!datum.valid")
        .mark_point(shape="cross", angle=45, size=60, strokeWidth=1.5)
        .encode(x=x, y=y, color=colour, tooltip=tooltip)
    )
    chart: alt.FacetChart = (
        alt.layer(band, limit, lines, dots, crosses)
        .properties(width=340, height=280)
        .facet(
            facet=alt.Facet("slo:N", title=None, sort=list(names.values())),
            columns=panels_a_row(len(names), most=_PANELS_A_ROW),
        )
        .resolve_axis(x="independent")
    )
    return chart


def _domain(rows: pl.DataFrame) -> list[float]:
    """From the lowest to the highest, the limit among them, within what can be read."""
    low, high = float(rows["at"].min()), float(rows["at"].max())  # type: ignore[arg-type]
    return [max(_CLOSEST, min(0.8, 0.9 * low)), min(_FARTHEST, max(1.25, 1.1 * high))]

"""How near each load comes to each SLO's limit."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    NEUTRAL,
    PALETTE,
    PANELS_A_ROW,
    curve_column,
    level_axis,
    nothing_to_show,
    shapes,
    with_curve,
)
from bench.study.questions import wanted
from bench.words.charts import margin_title

_CURVE = ("deployment", "workload")
_CLOSEST, _FARTHEST = 0.05, 20.0  # of the limit; what lies beyond is drawn at the edge


def _finding(results: Results) -> str | None:
    """Which SLO ends the load, where it is the same one for every curve."""
    return margin_title(results.points, results.decision.slos)


@figure(
    "slo-margin",
    applies=wanted("slo"),
    order=25,
    title="How near each load comes to each limit",
    question="Which SLO ends the load, and how sharply?",
    reading="Each point is a run: the percentile that an SLO limits, divided by its limit (logarithmic). Below 100 %, the dashed line, "
    "the run meets it. Lines run through the medians of the levels. Grey: where C_max lies, at 95 % confidence, by a search where "
    "there is one, else by these runs, where both ends are established. A steep line is a sharp limit: little more load misses by far. "
    "What is beyond 5 % or 2,000 % stands at the edge.",
    uses=("slo", "failed_share", "searches"),
    finding=_finding,
)
def slo_margin(results: Results) -> alt.FacetChart | alt.LayerChart:
    """Percentile ÷ limit of each SLO against load, a panel a curve.

    Args:
        results: `runs` with `level`, `valid` and the columns of the decision's SLOs (s); `limits`.
    """
    slos = results.decision.slos
    if not slos:
        return nothing_to_show("the study's `decision` names no SLO")
    ends = {
        (name, workload): (low, high) for name, workload, low, high in results.points.select(*_CURVE, "low", "high").iter_rows()
    }
    ends |= {curve: (found.low, found.high) for curve, found in results.limits.items()}
    bounds = pl.DataFrame(
        [(*curve, *both) for curve, both in ends.items()],
        schema={**dict.fromkeys(_CURVE, pl.String), "low": pl.Float64, "high": pl.Float64},
        orient="row",
    )
    runs = with_curve(results, results.runs).join(bounds, on=list(_CURVE), how="left", maintain_order="left")
    names, limits = {slo.column: str(slo) for slo in slos}, {slo.column: slo.limit_s for slo in slos}
    rows = (
        runs.unpivot(
            on=list(names), index=["curve", "level", "valid", "low", "high"], variable_name="slo", value_name="seconds"
        )
        .drop_nulls("seconds")
        .with_columns(reached=pl.col("seconds") / pl.col("slo").replace_strict(limits, return_dtype=pl.Float64))
        .with_columns(pl.col("slo").replace(names))
    )
    if rows.is_empty():
        return nothing_to_show("no run has a latency that an SLO limits")
    order = list(names.values())
    scale = alt.Scale(type="log", domain=_domain(rows), clamp=True, nice=False)
    x = level_axis(results)
    y = alt.Y(
        "reached:Q",
        title="percentile ÷ its limit (log)",
        scale=scale,
        axis=alt.Axis(format="~%", values=[0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]),
    )
    colour = alt.Color("slo:N", title="SLO", sort=order, scale=alt.Scale(domain=order, range=PALETTE[: len(order)]))
    shape = alt.Shape("slo:N", title="SLO", sort=order, scale=alt.Scale(domain=order, range=shapes(len(order))))
    base = alt.Chart(rows)
    tooltip = [
        alt.Tooltip("slo:N", title="SLO"),
        alt.Tooltip("level:Q"),
        alt.Tooltip("seconds:Q", format=".3g"),
        alt.Tooltip("reached:Q", title="of its limit", format=".0%"),
    ]
    band = (
        base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        .transform_aggregate(low="min(low)", high="min(high)", groupby=["curve"])
        .mark_rect(color=NEUTRAL, opacity=0.2)
        .encode(x=level_axis(results, "low"), x2="high:Q")
    )
    limit = base.transform_aggregate(groupby=["curve"]).mark_rule(strokeDash=[5, 4], color="#000000").encode(y=alt.YDatum(1.0))
    valid = base.transform_filter("datum.valid")
    lines = (
        valid.transform_aggregate(reached="median(reached)", groupby=["curve", "level", "slo"])
        .mark_line()
        .encode(x=x, y=y, color=colour)
    )
    dots = valid.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip)
    crosses = (
        base.transform_filter("!datum.valid")
        .mark_point(shape="cross", angle=45, size=60, strokeWidth=1.5)
        .encode(x=x, y=y, color=colour, tooltip=tooltip)
    )
    chart: alt.FacetChart = (
        alt.layer(band, limit, lines, dots, crosses)
        .properties(width=280, height=260)
        .facet(facet=alt.Facet("curve:N", title=None, sort=curve_column(results)), columns=PANELS_A_ROW)
        .resolve_axis(x="independent")
    )
    return chart


def _domain(rows: pl.DataFrame) -> list[float]:
    """From the lowest to the highest, the limit among them, within what can be read."""
    low, high = float(rows["reached"].min()), float(rows["reached"].max())  # type: ignore[arg-type]
    return [max(_CLOSEST, min(0.8, 0.9 * low)), min(_FARTHEST, max(1.25, 1.1 * high))]

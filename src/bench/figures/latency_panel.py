"""A panel of one latency against load: a percentile with its bounds, the median, and the limit of an SLO."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import polars as pl

from bench.analysis.level_values import level_values
from bench.figures.results import Results
from bench.figures.theme import NEUTRAL, curve_colour, curve_dash, curve_shape, level_axis, points
from bench.figures.ticks import log_ticks, ticked
from bench.study.slo import Slo

_LEVEL = ("curve", "workload", "level")
_LOG = 20  # times the lowest value, from which on a panel is logarithmic
_WIDTH, _HEIGHT = 330, 220
_FARTHEST = 3.0  # times the highest value: a limit beyond would leave the panel half empty, and is not drawn


@dataclass(frozen=True)
class LatencyPanel:
    """One latency: its name and unit, `what` of it is drawn, from which columns (`tail`: a point a run), and the tail's SLO."""

    name: str
    what: str
    unit: str
    tail: str
    median: str | None = None
    slo: Slo | None = None


def latency_panel(results: Results, runs: pl.DataFrame, panel: LatencyPanel) -> alt.LayerChart:
    """The panel, of `runs` with their curves (`with_curve`, `with_whole`)."""
    known = f"{panel.tail.removesuffix('_s')}_bound_s"
    bound = pl.col(known) if known in runs.columns else pl.lit(None, dtype=pl.Float64)
    rows = runs.drop_nulls(panel.tail).select(
        *("curve", "workload", "run", "level", "valid", "whole"),
        tail=pl.col(panel.tail),
        median=pl.col(panel.median) if panel.median else pl.lit(None, dtype=pl.Float64),
        bound=bound,
        unbounded=bound.is_null() & pl.lit(known in runs.columns),
    )
    lines = _level_lines(runs, panel)
    limit = panel.slo.limit_s if panel.slo else None
    scale, axis, log = _scale(rows, limit)
    title = f"{panel.name} ({panel.unit}{', log' if log else ''})"
    x, colour = level_axis(results), curve_colour(results)
    y, middle = (alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis) for field in ("tail", "median"))
    base = alt.Chart(rows)
    valid = base.transform_filter("datum.valid")
    tooltip = [
        "curve:N",
        "run:N",
        "level:Q",
        alt.Tooltip("tail:Q", title=panel.what, format=".3g"),
        alt.Tooltip("median:Q", title="P50", format=".3g"),
        alt.Tooltip("bound:Q", title="99 % bound", format=".3g"),
    ]
    dash = curve_dash(results)
    layers = [
        lines.transform_filter("isValid(datum.median)")
        .mark_line(strokeWidth=1, opacity=0.7)
        .encode(x=x, y=middle, color=colour, strokeDash=dash),
        lines.mark_line().encode(x=x, y=y, color=colour, strokeDash=dash),
        valid.mark_rule(strokeWidth=1.5, clip=True).encode(x=x, y=y, y2=alt.Y2("bound:Q"), color=colour),
        points(base, y, x, colour, hollow="unbounded", shape=curve_shape(results), tooltip=tooltip),
        valid.transform_filter("datum.whole")
        .mark_point(shape="square", size=190, strokeWidth=1.2, color=NEUTRAL, opacity=1)
        .encode(x=x, y=y),
    ]
    if limit is not None and scale.domain[1] >= limit:
        at = alt.Chart(pl.DataFrame({"limit": [limit]}))
        layers.insert(0, at.mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(y=alt.Y("limit:Q", title=title, scale=scale)))
    heading = alt.TitleParams(
        f"{panel.what}; thin: P50" if panel.median else panel.what, fontSize=15, fontWeight="normal", anchor="start"
    )
    return alt.LayerChart(layer=layers, width=_WIDTH, height=_HEIGHT, title=heading)


def _level_lines(runs: pl.DataFrame, panel: LatencyPanel) -> alt.Chart:
    """Of each level the values of `tail` and `median`, those that are known and finite: a failed request has no latency."""
    columns = {"tail": panel.tail, **({"median": panel.median} if panel.median else {})}
    curves = runs.select("deployment", "workload", "curve").unique(maintain_order=True)
    levels = level_values(runs, list(columns.values())).join(curves, on=["deployment", "workload"], maintain_order="left")
    finite = {name: pl.when(pl.col(column).is_finite()).then(pl.col(column)) for name, column in columns.items()}
    rows = levels.select(*_LEVEL, median=None).with_columns(levels.select(**finite)).drop_nulls("tail")
    return alt.Chart(rows)


def _scale(rows: pl.DataFrame, limit: float | None) -> tuple[alt.Scale, alt.Axis, bool]:
    """Logarithmic (the last value) where all that the panel shows spans more than a factor of 20, else from 0."""
    values = [value for column in ("tail", "median", "bound") for value in rows[column].drop_nulls()]
    if limit is not None and limit <= _FARTHEST * max(values):
        values.append(limit)
    low, high = min(values), max(values)
    if low > 0 and high > _LOG * low:
        ends = [0.8 * low, 1.25 * high]
        return alt.Scale(type="log", domain=ends, nice=False), ticked(log_ticks(*ends), *ends, format="~g"), True
    return alt.Scale(domain=[0, 1.1 * high or 1.0], nice=False), alt.Axis(tickCount=6), False

"""Every latency against load, of all requests and of each class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from bench.findings.levels import reasons
from bench.findings.tables import Tables
from bench.parse.level_values import level_values
from bench.report.altair import alt
from bench.report.chart_words import whole_runs_note
from bench.report.figure import figure
from bench.report.theme import (
    NEUTRAL,
    curve_colour,
    curve_dash,
    curve_shape,
    level_axis,
    log_scale,
    nothing_to_show,
    panels_a_row,
    points,
    with_curve,
    with_whole,
)
from bench.runs.classes import class_column, class_names
from bench.runs.latencies import LATENCIES
from bench.study.slo import Slo

_TITLES = {**{name: latency.title for name, latency in LATENCIES.items()}, "itl": "ITL"}
_OF_ALL = [(metric, "p99") for metric in ("ttft", "ttfo", "tpot", "itl", "e2e")]  # where no SLO limits another percentile
_OF_CLASS = (("ttft", "p95"), ("e2e", "p95"))  # of a class without limits
_LOG = 20  # times the lowest value, from which on a panel is logarithmic
_FARTHEST = 3.0  # times the highest value: a limit beyond would leave the panel half empty, and is not drawn


@dataclass(frozen=True)
class _Panel:
    """One latency: `what` is drawn and in which unit, from which columns (`tail`: a point a run), and the tail's SLO."""

    what: str
    unit: str
    tail: str
    median: str | None = None
    slo: Slo | None = None


@figure(
    "latencies",
    title="Latencies against load",
    question="How long does a user wait as load rises?",
    reading="Points are runs, lines all requests of a level's valid runs. Thin: P50; thick: the percentile that an SLO limits "
    "(dashed), else P99, of a class P95. Hollow: too few requests for a bound; whiskers: the bound, at 99 % "
    "confidence.",
    columns=lambda results: {each.tail: each.what for each in _panels(results)},
    note=lambda results: whole_runs_note(results.whole_runs.height, marks="In grey squares"),
)
def latencies(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """TTFT, TPOT, ITL, E2E, queue time and waiting requests over load, and the latencies of classes: a panel each, a line a curve.

    Args:
        results: `runs` with `level`, the latencies' percentiles and bounds (s), `server_queue_time_mean_s`, `waiting_standing`,
            `classes` and `valid`.
    """
    runs = with_whole(results, with_curve(results, results.runs))
    known = {name for name in runs.columns if runs[name].null_count() < runs.height}
    panels = [_drawn(results, runs, each) for each in _panels(results) if each.tail in known]
    if not panels:
        return nothing_to_show("no run has a latency")
    return alt.concat(*panels, columns=panels_a_row(len(panels), most=3))


def _panels(results: Tables) -> list[_Panel]:
    names = dict.fromkeys(name for text in results.runs["classes"].unique(maintain_order=True) for name in class_names(text))
    queue = _Panel("queue time at the server, mean", "s", "server_queue_time_mean_s")
    waiting = _Panel("requests that wait", "requests", "waiting_standing")
    return [*_of_class(results, None), queue, waiting, *(panel for name in names for panel in _of_class(results, name))]


def _of_class(results: Tables, name: str | None) -> Iterator[_Panel]:
    """The latencies of a class, or of all requests: of a class those that an SLO limits, else usual ones."""
    limits = {slo.metric: slo for slo in results.decision.slos if slo.request_class == name}
    limited = [(slo.metric, slo.percentile) for slo in limits.values()]
    without = set() if "ttfo" in limits or reasons(results.runs) else {"ttfo"}  # it is TTFT where nothing reasons
    for metric, percentile in (limited or _OF_CLASS) if name else _OF_ALL:
        if metric in without:
            continue
        at = limits[metric].percentile if metric in limits else percentile
        what = f"{f'{name}: ' if name else ''}{_TITLES[metric]} {at.upper()}"
        yield _Panel(
            what, "s", class_column(name, f"{metric}_{at}_s"), class_column(name, f"{metric}_p50_s"), limits.get(metric)
        )


def _drawn(results: Tables, runs: pl.DataFrame, panel: _Panel) -> alt.LayerChart:
    """Args: runs: with their curves (`with_curve`, `with_whole`)."""
    known = f"{panel.tail.removesuffix('_s')}_bound_s"
    none = pl.lit(None, dtype=pl.Float64)
    bound = pl.col(known) if known in runs.columns else none
    rows = runs.drop_nulls(panel.tail).select(
        *("curve", "workload", "run", "level", "valid", "whole"),
        tail=pl.col(panel.tail),
        median=pl.col(panel.median) if panel.median else none,
        bound=bound,
        unbounded=bound.is_null() & pl.lit(known in runs.columns),
    )
    columns = {"tail": panel.tail, **({"median": panel.median} if panel.median else {})}
    named = runs.select("deployment", "workload", "curve").unique(maintain_order=True)
    levels = level_values(runs, list(columns.values())).join(named, on=["deployment", "workload"], maintain_order="left")
    finite = {name: pl.when(pl.col(column).is_finite()).then(pl.col(column)) for name, column in columns.items()}
    lines = alt.Chart(levels.select("curve", "workload", "level", **{"median": none, **finite}).drop_nulls("tail"))
    limit = panel.slo.limit_s if panel.slo else None
    scale, axis, log = _scale(rows, limit)
    title = f"{panel.what} ({panel.unit}{', log' if log else ''})"
    x, colour, dash = level_axis(results), curve_colour(results), curve_dash(results)
    y, middle = (alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis) for field in ("tail", "median"))
    base = alt.Chart(rows)
    valid = base.transform_filter("datum.valid")
    titles = {"tail": panel.what, "median": "P50", "bound": "99 % bound"}
    tooltip = [
        "curve:N",
        "run:N",
        "level:Q",
        *(alt.Tooltip(f"{key}:Q", title=text, format=".3g") for key, text in titles.items()),
    ]
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
    text = f"{panel.what}; thin: P50" if panel.median else panel.what
    heading = alt.TitleParams(text, fontSize=15, fontWeight="normal", anchor="start")
    return alt.LayerChart(layer=layers, width=330, height=220, title=heading)


def _scale(rows: pl.DataFrame, limit: float | None) -> tuple[alt.Scale, alt.Axis, bool]:
    """Logarithmic (the last value) where all that the panel shows spans more than a factor of 20, else from 0."""
    values = [value for column in ("tail", "median", "bound") for value in rows[column].drop_nulls()]
    if limit is not None and limit <= _FARTHEST * max(values):
        values.append(limit)
    low, high = min(values), max(values)
    if low > 0 and high > _LOG * low:
        return log_scale(0.8 * low, 1.25 * high), alt.Axis(format="~g"), True
    return alt.Scale(domain=[0, 1.1 * high or 1.0], nice=False), alt.Axis(tickCount=6), False

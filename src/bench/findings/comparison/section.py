"""The comparison with the study's baseline: a section of the report, and its chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.axes import AXES
from bench.findings.comparison import words
from bench.findings.comparison.compare import Comparison
from bench.findings.comparison.effects import metric_of
from bench.findings.tables import Tables
from bench.report.blocks import Block, Cell, Column, Items, Section, Table, Text
from bench.report.figure import alt, figure
from bench.report.theme import NEUTRAL, marked, nothing_to_show, tips

if TYPE_CHECKING:
    from bench.findings.view import View

_MARKS = {"better": "▲ ", "better at some loads": "▲ ", "worse": "▼ ", "worse at some loads": "▼ "}
_COLUMNS = (
    Column("deployment", "deployment"),
    Column("metric", "metric"),
    Column("over all loads", "difference"),
    Column("interval", "interval"),
    Column("verdict", "verdict"),
    Column("smallest visible difference", "could_see"),
    Column("levels", "levels", "%d"),
    Column("sessions", "sessions", "%d"),
)
_MEANING = (
    "Runs of the same workload, load, session and repeat, in pairs; invalid ones are left out. “Better” and “worse” are "
    "verdicts at 95 % confidence: of 100 comparisons in which nothing differs, 95 show neither. “At some loads”: at a level, "
    "but not over all loads together. Smallest visible difference: over all loads, one of that size is found in 8 of 10 "
    "cases; a smaller one may exist."
)


def section(view: View) -> Section:
    found = view.results.comparisons
    baseline = next(iter(view.runs.filter("baseline")["deployment"]), None)
    rows = [
        {"deployment": name, **cells}
        for name, each in found.items()
        for cells in [_effect(each, row) for row in each.overall.to_dicts()]
        or [{"metric": "no pair of runs whose latencies compare"}]
    ]
    if not rows:
        return Section("comparison", f"Against {baseline}", [])
    meaning = f"{_MEANING} {words.ESTIMATED}" if any(each.estimates for each in found.values()) else _MEANING
    beside = [
        Items(told, name) for name, each in found.items() if (told := [f"{kind}: {text}" for kind, text in words.beside(each)])
    ]
    blocks: list[Block] = [Table(f"Differences from {baseline}", _COLUMNS, rows), Text(meaning), *beside]
    return Section("comparison", f"Against {baseline}", blocks)


def _effect(found: Comparison, row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a metric over all loads."""
    seen = "–" if row["could_see"] is None else words.size_text(row["could_see"])
    return {
        "metric": metric_of(row["metric"]).title,
        "difference": Cell(words.estimated_percent(found, row), row["ratio"]),
        "interval": Cell(words.interval_text(row["low"], row["high"]), row["low"]),
        "verdict": f"{_MARKS.get(row['verdict'], '')}{row['verdict']}",
        "could_see": Cell(seen, row["could_see"]),
        "levels": row["levels"],
        "sessions": row["sessions"],
    }


_OVERALL = "all"
_STEP = 17  # height of a row
# Black is sure, and the triangle says which way; colours are deployments.
_COLOURS = {"better": "#000000", "worse": "#000000", "no evidence": NEUTRAL}
_SHAPES = {"better": "triangle-up", "worse": "triangle-down", "no evidence": "circle"}


@figure(
    "comparison",
    title="Against the baseline",
    question="Which deployment is better or worse than the baseline, in what, and is it more than chance?",
    reading="Difference from the baseline's runs of the same load and session. Large, with its interval as a band: all loads together;"
    " small: each load. Triangles are significant: without any difference, 95 in 100 comparisons have none. "
    "Intervals know what sessions differ by where there are four or more, and assume 10 % otherwise; those that are cut at the frame "
    "go on. Loads at which one side fails more requests are missing.",
    invalid="Left out, with their counterparts",
    by_axis=False,
)
def comparison(results: Tables) -> alt.VConcatChart | alt.LayerChart:
    """Differences in percent with their intervals: a panel a metric, a row a load, one such strip a deployment and kind of load."""
    strips = [
        _strip(results, name, found, axis)
        for name, found in results.comparisons.items()
        for axis in found.configurations["axis"].unique(maintain_order=True)
    ]
    if not strips:
        return nothing_to_show("no deployment has valid runs of a load that the baseline has too")
    return alt.vconcat(*strips, spacing=24)


def _strip(results: Tables, name: str, found: Comparison, axis: str) -> alt.HConcatChart:
    """One deployment's panels: its loads that are counted as `axis` says, and all that it has together."""
    of_workload = [pl.col("workload"), pl.lit(" · ")] if results.several_workloads else []
    level = pl.col("level").cast(pl.String).str.strip_suffix(".0")
    loads = _percent(found.configurations.filter(axis=axis)).with_columns(load=pl.concat_str(*of_workload, level))
    order = [*loads["load"].unique(maintain_order=True), _OVERALL]
    together = _percent(found.overall).with_columns(load=pl.lit(_OVERALL), verdict="pooled")
    baseline = results.runs.filter("baseline")["deployment"][0]
    panels = []
    for i, metric in enumerate(together["metric"]):
        ticks = alt.Axis(labels=i == 0, ticks=i == 0, labelLimit=260, grid=False)
        y = alt.Y("load:N", sort=order, title=None, axis=ticks, scale=alt.Scale(domain=order))
        of_metric = pl.col("metric") == metric
        panels.append(_panel(loads.filter(of_metric), together.filter(of_metric), y))
    by = f"by {'workload and ' if results.several_workloads else ''}{AXES[axis].title}"
    heading = alt.TitleParams(f"{name} against {baseline}, {by}", fontSize=15, anchor="start", offset=8)
    return alt.hconcat(*panels, spacing=10, title=heading)


def _panel(loads: pl.DataFrame, together: pl.DataFrame, y: alt.Y) -> alt.LayerChart:
    metric = metric_of(together["metric"][0])
    across: dict[str, Any] = {"title": "difference (%)", "scale": alt.Scale(domain=_domain(loads, together), nice=False)}
    x, ends = alt.X("percent:Q", **across), {"x": alt.X("low:Q", **across), "x2": "high:Q"}
    legend = alt.Legend(orient="bottom", symbolOpacity=1)
    colour = marked(alt.Color, "verdict:N", _COLOURS, title="verdict", legend=legend)
    shape = marked(alt.Shape, "verdict:N", _SHAPES, title="verdict")
    tooltip = ["load:N", *tips("+.1f", "percent", "low", "high"), "verdict:N", "pairs:Q"]
    each, whole = alt.Chart(loads), alt.Chart(together)
    heading = f"{metric.title} ({'more' if metric.higher_is_better else 'less'} is better)"
    layers = [
        whole.mark_rect(opacity=0.14, clip=True).encode(**ends, color=colour),
        alt.Chart(pl.DataFrame({"percent": [0.0]})).mark_rule(color="#222222", strokeWidth=1).encode(x=x),
        each.mark_rule(clip=True, strokeWidth=1.3).encode(**ends, y=y, color=colour),
        whole.mark_rule(clip=True, strokeWidth=3).encode(**ends, y=y, color=colour),
        each.mark_point(filled=True, opacity=1, size=45).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
        whole.mark_point(filled=True, opacity=1, size=170).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
    ]
    title = alt.TitleParams(heading, fontSize=11, fontWeight="normal", anchor="start")
    return alt.LayerChart(layer=layers, width=150, height=alt.Step(_STEP), title=title)


def _domain(loads: pl.DataFrame, together: pl.DataFrame) -> list[float]:
    """From below every point and every overall interval to above them, with 0 inside (%).

    Intervals of a few are so wide that a frame around them would show nothing else: it ends at four times the furthest point.
    """
    points = [value for frame in (loads, together) for value in frame["percent"]]
    reach = max(2.0, *(abs(value) for value in points))
    edges = (edge for end in ("low", "high") for edge in together[end].drop_nulls())
    ends = [max(-4 * reach, min(4 * reach, edge)) for edge in edges]
    low, high = min(0.0, *points, *ends), max(0.0, *points, *ends)
    return [low - 0.25 * reach, high + 0.25 * reach]


def _percent(effects: pl.DataFrame) -> pl.DataFrame:
    return effects.rename({"ratio": "percent"}).with_columns((pl.col("percent", "low", "high") - 1) * 100)

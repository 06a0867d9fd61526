"""What every chart shares: colours, axes, ticks at measured loads, names at the ends of lines."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import polars as pl

from bench.axes import AXES, CONCURRENCY, RATE
from bench.parse.level_values import level_values
from bench.report.altair import alt
from bench.report.chart_words import load_label, whole_runs_note

__all__ = [
    "HEIGHT",
    "NEUTRAL",
    "PALETTE",
    "WIDTH",
    "curve_colour",
    "curve_column",
    "curve_dash",
    "curve_shape",
    "curve_size",
    "curve_width",
    "curves",
    "deployment_colours",
    "finish",
    "in_order",
    "is_log",
    "layered",
    "level_axis",
    "level_labels",
    "level_lines",
    "log_scale",
    "marked",
    "nothing_to_show",
    "panels_a_row",
    "points",
    "predicted_rules",
    "series_colour",
    "series_shape",
    "shapes",
    "whole_note",
    "why_empty",
    "with_curve",
    "with_labels",
    "with_whole",
]

# Okabe and Ito's colours, which readers with any colour vision tell apart; yellow, too pale for lines on white, is left out.
# In this order, in which the first ones are as unlike as can be in print: 87, 151 and 119 of 255.
PALETTE = ["#0072B2", "#CC79A7", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#000000"]
# The same once more, darker, and for black grey.
_DARKER = ["#003C5E", "#7A2E58", "#6E3000", "#00523C", "#7A5400", "#1B5E86", "#8C8C8C"]
_MANY = [*PALETTE, *_DARKER]
WIDTH, HEIGHT = 460, 300
_PANELS_A_ROW = 4  # of small multiples
# Beside the colour, so that curves can be distinguished in print and by any eye. Diamonds, crosses and the full cache's triangle have
# meanings of their own.
_STAR = "M0,-1.2L0.29,-0.39L1.14,-0.37L0.46,0.15L0.7,0.97L0,0.48L-0.7,0.97L-0.46,0.15L-1.14,-0.37L-0.29,-0.39Z"
# Of workloads. Limits and predictions have a longer dash than any of these.
_DASHES = [[1, 0], [3, 3], [9, 2, 2, 2], [1, 4], [9, 2, 2, 2, 2, 2]]
_SHAPES = ["circle", "square", "triangle-up", "triangle-down", "triangle-right", "triangle-left", _STAR]
NEUTRAL = "#777777"
_Channel = TypeVar("_Channel", "alt.Color", "alt.Shape", "alt.StrokeDash")
_FONT = "Helvetica, Arial, sans-serif"
_EMPTY = "_why_empty"
_APART = 8  # fewest pixels between two labels of an axis: others run into each other
_NOTE = 110  # characters of a line below the title: not much wider than one panel and its legend


def deployment_colours(results: Curves) -> dict[str, str]:
    """Each deployment's colour, the same one in every figure, in every part of it, and under every workload."""
    deployments = results.study["deployment"].unique(maintain_order=True)
    return {name: _MANY[i % len(_MANY)] for i, name in enumerate(deployments)}


def curve_colour(results: Curves, *, title: str = "deployment") -> alt.Color:
    """The colour of each curve's deployment."""
    colours = deployment_colours(results)
    of = {curve: colours[name] for curve, name, _ in _curves(results)}
    return marked(alt.Color, "curve:N", of, title=title, legend=_curve_legend(results, of))


def curve_shape(results: Curves, *, title: str = "deployment") -> alt.Shape:
    """The shape of each curve's workload, or of its deployment where there is one workload; its legend and the colours' become one."""
    key = "workload" if results.several_workloads else "deployment"
    kinds = results.study[key].unique(maintain_order=True).to_list()
    marks = shapes(kinds)
    of = {curve: marks[workload if key == "workload" else name] for curve, name, workload in _curves(results)}
    return marked(alt.Shape, "curve:N", of, title=title, legend=_curve_legend(results, of))


def curve_dash(results: Curves) -> alt.StrokeDash:
    """The dash of each workload, solid that of the first. Without a legend: that of the curves has the workloads' shapes."""
    workloads = results.study["workload"].unique(maintain_order=True).to_list()
    of = {name: _DASHES[i % len(_DASHES)] for i, name in enumerate(workloads)}
    return marked(alt.StrokeDash, "workload:N", of, legend=None)


def _curves(results: Curves) -> list[tuple[str, str, str]]:
    """The name, the deployment and the workload of each curve, in the study's order."""
    found = named(results, results.runs).unique("curve", maintain_order=True)
    names = {row[0]: row for row in found.select("curve", "deployment", "workload").iter_rows()}
    return [names[curve] for curve in curve_column(results)]


def _curve_legend(results: Curves, of: Mapping[str, Any]) -> alt.Legend | None:
    """Opaque for all marks; no legend where there is a single curve, unless those of another axis stand below or above it."""
    beside = (
        results.study.select("deployment", "workload", "axis").n_unique() > len(of) and results.study["axis"].n_unique() > 1
    )
    return alt.Legend(symbolOpacity=1) if len(of) > 1 or beside else None


def marked(channel: type[_Channel], field: str, of: Mapping[Any, Any], **more: Any) -> _Channel:
    """A channel that gives each value of `field` its own colour, shape or dash, those in `of`, in that order."""
    names = list(of)
    return channel(field, sort=names, scale=alt.Scale(domain=names, range=list(of.values())), **more)


def shapes(names: Sequence[str]) -> dict[str, str]:
    """A shape for each series; two series of one hue, the darker one of which comes a palette later, differ in shape."""
    return {name: _SHAPES[(i + i // len(_SHAPES)) % len(_SHAPES)] for i, name in enumerate(names)}


def curve_size() -> alt.Size:
    """Points as large as `with_curve` says."""
    return alt.Size("curve_size:Q", scale=None, legend=None)


def curve_width() -> alt.StrokeWidth:
    """Lines as wide as `with_curve` says."""
    return alt.StrokeWidth("curve_width:Q", scale=None, legend=None)


def is_log(results: Curves) -> bool:
    """Whether the load's axis is logarithmic: where it spans more than a factor of 20."""
    return float(results.runs["level"].max()) / float(results.runs["level"].min()) > 20  # type: ignore[arg-type]


def level_axis(results: Curves, field: str = "level", *, log: bool | None = None) -> alt.X:
    """The load, one of `bench.axes`, with a tick at each measured one: a panel of any part of them has all of its own.

    Args:
        log: whether the axis is logarithmic; None decides by `is_log`. Panels that are compared must agree, so where each shows a part
            of a study the whole decides.
    """
    log = is_log(results) if log is None else log
    scale = alt.Scale(type="log", base=2, nice=False) if log else alt.Scale(zero=False)
    digits = "d" if AXES[results.axis].held else "~g"
    loads = results.runs["level"].unique().sort().to_list()
    axis = alt.Axis(values=loads, labelBound=12, format=digits, labelFlush=False, labelOverlap="greedy")
    return alt.X(f"{field}:Q", title=_load_title(results), scale=scale, axis=axis)


def _load_title(results: Curves) -> str:
    """The load's name with its unit: a rate of requests, of conversations where those have turns, or of both."""
    title = AXES[results.axis].title
    conversations = (results.runs["turns"] > 1).fill_null(False)
    if results.axis != RATE or not conversations.any():
        return title
    return "rate (conversations/s)" if conversations.all() else "rate (requests/s; with turns, conversations/s)"


def log_scale(low: float, high: float) -> alt.Scale:
    """A logarithmic scale from `low` to `high`."""
    return alt.Scale(type="log", domain=[low, high], nice=False)


def with_labels(rows: pl.DataFrame, also: pl.Expr | None = None) -> pl.DataFrame:
    """Add `label`: the load of each curve's lowest and highest level, and of those that `also` says; null of others.

    Args:
        rows: a row a level, with `curve`, `axis` and `level`.
    """
    level = pl.col("level")
    ends = (level == level.min().over("curve")) | (level == level.max().over("curve"))
    labels = pl.Series("label", [load_label(*row) for row in rows.select("level", "axis").iter_rows()], dtype=pl.String)
    return rows.with_columns(label=pl.when(ends if also is None else ends | also).then(labels))


def level_labels(chart: alt.Chart, x: alt.X, y: alt.Y) -> alt.Chart:
    """The labels of `with_labels`, beside their points."""
    text = chart.transform_filter("isValid(datum.label)").mark_text(align="left", baseline="bottom", dx=6, dy=-3, fontSize=14)
    labels: alt.Chart = text.encode(x=x, y=y, text="label:N")
    return labels


def predicted_rules(runs: pl.DataFrame, x: alt.X, colour: alt.Color | alt.ColorDatum) -> alt.Chart:
    """A dashed rule at the predicted saturation of each curve, where it lies among the levels shown; grey where several share it.

    Args:
        runs: rows with `curve`, `axis`, `level` and `predicted_saturation` (requests).
    """
    counted = runs.filter(pl.col("axis") == CONCURRENCY)  # a number of requests has no place on another axis
    highest = max(counted["level"].to_list(), default=0)
    predicted = counted.group_by("curve", maintain_order=True).agg(level=pl.col("predicted_saturation").max())
    # The colour of one would hide that of the other below it.
    predicted = predicted.drop_nulls().with_columns(shared=pl.len().over(pl.col("level").round(1)) > 1)
    shown = alt.Chart(predicted.filter(pl.col("level") <= 1.1 * highest))
    own = alt.condition("datum.shared", alt.value(NEUTRAL), colour)
    rules: alt.Chart = shown.mark_rule(strokeDash=[5, 4], strokeWidth=1.5).encode(x=x, color=own)
    return rules


def level_lines(
    runs: pl.DataFrame, column: str, x: alt.X, y: alt.Y, colour: alt.Color | alt.ColorDatum, dash: alt.StrokeDash
) -> alt.Chart:
    """A line a curve through the values of its levels (`level_values`).

    Args:
        runs: rows of `with_curve` with `level`, `valid` and `column`.
    """
    curves = runs.select("deployment", "workload", "curve", "curve_width").unique(maintain_order=True)
    levels = level_values(runs, [column]).join(curves, on=["deployment", "workload"], maintain_order="left")
    chart = alt.Chart(levels.select("curve", "curve_width", "workload", "level", column))
    lines: alt.Chart = chart.mark_line().encode(x=x, y=y, color=colour, strokeWidth=curve_width(), strokeDash=dash)
    return lines


def points(
    chart: alt.Chart, y: alt.Y, x: alt.X, colour: alt.Color | alt.ColorDatum, *, hollow: str = "whole", **more: Any
) -> alt.LayerChart:
    """Every run as a point: filled where it is valid, a cross where it is not.

    Args:
        hollow: the column that says which of the valid ones are hollow; by `whole`, the whole runs on a curve whose other levels are
            steady windows (`Curves.whole_runs`).
    """
    common = {"x": x, "y": y, "color": colour, "size": alt.SizeValue(45), **more}
    valid = chart.transform_filter(f"datum.valid && !datum.{hollow}").mark_point(filled=True, opacity=1).encode(**common)
    open_ = chart.transform_filter(f"datum.valid && datum.{hollow}").mark_point(fill="white", strokeWidth=1.5, opacity=1)
    del common["size"]
    common.pop("shape", None)
    invalid = (
        chart.transform_filter("!datum.valid")
        .mark_point(shape="cross", filled=False, angle=45, strokeWidth=1.5, opacity=1)
        .encode(**common, size=alt.SizeValue(70))
    )
    rest = {key: value for key, value in more.items() if key != "size"}
    outlined = open_.encode(x=x, y=y, color=colour, size=alt.SizeValue(60), **rest)
    return alt.LayerChart(layer=[valid, outlined, invalid])


def curves(
    results: Curves,
    runs: pl.DataFrame,
    column: str,
    y: alt.Y,
    *,
    format: str,
    title: str | None = None,
    hollow: str = "whole",
) -> tuple[alt.Chart, alt.LayerChart]:
    """What most figures of load have: `level_lines`, and `points` in the colours, shapes and sizes of their curves.

    Args:
        runs: rows of `with_curve` with `level`, `valid` and `column`. format, title: of its values in the tooltip. hollow: as of
            `points`.
    """
    x, colour = level_axis(results), curve_colour(results)
    wanted = ("curve", "curve_size", "level", column, "valid", hollow, "run")
    base = alt.Chart(runs.select(name for name in wanted if name in runs.columns))
    tooltip = ["run:N", "level:Q", alt.Tooltip(f"{column}:Q", title=title or alt.Undefined, format=format)]
    marks = {"shape": curve_shape(results), "size": curve_size(), "tooltip": tooltip}
    return level_lines(runs, column, x, y, colour, curve_dash(results)), points(base, y, x, colour, hollow=hollow, **marks)


def series_colour(results: Curves, rows: pl.DataFrame, **more: Any) -> alt.Color:
    """The colour of each `series`' `deployment`."""
    colours, of = deployment_colours(results), dict(rows.select("series", "deployment").iter_rows())
    return marked(alt.Color, "series:N", {series: colours[name] for series, name in of.items()}, **more)


def series_shape(rows: pl.DataFrame, **more: Any) -> alt.Shape:
    """A shape for each `series`."""
    return marked(alt.Shape, "series:N", shapes(rows["series"].unique(maintain_order=True).to_list()), **more)


def with_whole(results: Curves, runs: pl.DataFrame) -> pl.DataFrame:
    """Add `whole`, by which `points` draws hollow what `Curves.whole_runs` has."""
    whole = results.whole_runs.select("deployment", "run", whole=pl.lit(True))
    return runs.join(whole, on=["deployment", "run"], how="left", maintain_order="left").with_columns(
        pl.col("whole").fill_null(False)
    )


def whole_note(results: Curves) -> str:
    """The note on the hollow points; empty where there are none."""
    return whole_runs_note(results.whole_runs.height, marks="Hollow")


def layered(*layers: alt.Chart | alt.LayerChart) -> alt.LayerChart:
    """Layers of one panel, at the common size."""
    return alt.LayerChart(layer=list(layers)).properties(width=WIDTH, height=HEIGHT)


def panels_a_row(panels: int, most: int = _PANELS_A_ROW) -> int:
    """How many of so many panels stand in a row, so that rows are as full as each other."""
    return math.ceil(panels / math.ceil(panels / most)) if panels else 1


def nothing_to_show(why: str) -> alt.LayerChart:
    """A panel that says why it is empty."""
    text = alt.Chart(pl.DataFrame({"said": [f"Nothing to show: {why}."]})).mark_text(fontSize=14, color="#555555")
    panel = alt.LayerChart(layer=[text.encode(text=alt.Text("said:N"))], width=WIDTH, height=60)
    object.__setattr__(panel, _EMPTY, why)  # what is set otherwise is part of the chart
    return panel


def why_empty(chart: Any) -> str | None:
    """Why a chart of `nothing_to_show` shows nothing; None of others."""
    why: str | None = vars(chart).get(_EMPTY)
    return why


def finish(chart: Any, title: str, notes: Sequence[str]) -> alt.TopLevelMixin:
    """Give a figure its title, the notes below it, and the theme; in place, as `properties` would copy every chart in it, deeply."""
    lines = [line for note in notes for line in textwrap.wrap(note, _NOTE)]
    chart.title = alt.TitleParams(title, subtitle=lines, anchor="start", offset=12)
    chart.config = _config()
    return chart  # type: ignore[no-any-return]


def _config() -> alt.Config:
    return alt.Config(
        font=_FONT,
        background="white",
        view=alt.ViewConfig(stroke="#cccccc"),
        axis=alt.AxisConfig(
            labelFontSize=14,
            labelSeparation=_APART,
            titleFontSize=14,
            titleFontWeight="normal",
            gridColor="#ececec",
            tickColor="#999999",
        ),
        legend=alt.LegendConfig(
            labelFontSize=14, titleFontSize=14, titleFontWeight="normal", symbolStrokeWidth=2, labelLimit=260
        ),
        title=alt.TitleConfig(fontSize=18, subtitleFontSize=14, subtitleColor="#555555", subtitlePadding=5, fontWeight="bold"),
        header=alt.HeaderConfig(labelFontSize=15, titleFontSize=15, labelFontWeight="bold"),
        line=alt.LineConfig(strokeWidth=2),
        locale=alt.Locale(number=alt.NumberLocale(decimal=".", thousands=",", grouping=[3], currency=["$", ""], percent=" %")),
    )


class Curves(Protocol):
    """What is drawn of a study.

    Attributes:
        runs: those that are drawn, rows of the summary; study: all of the study, by which curves are named and coloured.
        axis: what the load of `runs` is counted in (`bench.axes`). several_workloads: whether curves are told apart by workload, too.
        whole_runs: those that stand whole on a curve whose other levels are steady windows.
    """

    @property
    def runs(self) -> pl.DataFrame: ...
    @property
    def study(self) -> pl.DataFrame: ...
    @property
    def axis(self) -> str: ...
    @property
    def several_workloads(self) -> bool: ...
    @property
    def whole_runs(self) -> pl.DataFrame: ...


def with_curve(results: Curves, frame: pl.DataFrame) -> pl.DataFrame:
    """Add `curve`, what a line is called, and `curve_size` and `curve_width`, by which curves in one place still show.

    A curve is a deployment, with its workload where the study has several. Points shrink and lines grow thinner from curve to curve.
    """
    order = curve_column(results)
    steps = {curve: i / max(1, len(order) - 1) for i, curve in enumerate(order)}
    step = pl.col("curve").replace_strict(steps, return_dtype=pl.Float64) if steps else pl.lit(0.0)
    return named(results, frame).with_columns(curve_size=130 - 90 * step, curve_width=4 - 2.5 * step)


def curve_column(results: Curves) -> list[str]:
    """The curves in the order of legends and panels."""
    return in_order(results, named(results, results.runs))["curve"].unique(maintain_order=True).to_list()


def in_order(results: Curves, table: pl.DataFrame) -> pl.DataFrame:
    """Rows of curves by workload, and of each workload by deployment, both in the study's order: as legends have them."""
    order = {key: results.study[key].unique(maintain_order=True).to_list() for key in ("workload", "deployment")}
    places = [pl.col(key).replace_strict(names, range(len(names)), return_dtype=pl.Int64) for key, names in order.items()]
    return table.sort(places, maintain_order=True)


def lacking(results: Curves, column: str) -> dict[str, list[float]]:
    """By curve, the levels of which no run has a value in `column`; empty where no run at all has one, as no panel shows it then."""
    if column not in results.runs.columns or results.runs[column].null_count() == results.runs.height:
        return {}
    levels = named(results, results.runs).group_by("curve", "level").agg(pl.col(column).is_null().all())
    found = levels.filter(column).group_by("curve").agg(pl.col("level").sort())
    levels_of = dict(found.select("curve", "level").iter_rows())
    return {curve: levels_of[curve] for curve in curve_column(results) if curve in levels_of}


def named(results: Curves, frame: pl.DataFrame) -> pl.DataFrame:
    """Add `curve` alone."""
    name = pl.format("{} · {}", "deployment", "workload") if results.several_workloads else pl.col("deployment")
    return frame.with_columns(curve=name)

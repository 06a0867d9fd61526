"""What every chart shares: colours, axes, ticks at measured loads, names at the ends of lines."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import polars as pl

from bench.axes import AXES, RATE
from bench.parse.windows import level_values
from bench.report.figure import alt

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
CROSS: dict[str, Any] = {"shape": "cross", "angle": 45, "strokeWidth": 1.5, "opacity": 1, "size": 70}  # of an invalid run
NEUTRAL = "#777777"
_Channel = TypeVar("_Channel", "alt.Color", "alt.Shape", "alt.StrokeDash")
_FONT = "Helvetica, Arial, sans-serif"
_EMPTY = "_why_empty"
_APART = 8  # fewest pixels between two labels of an axis: others run into each other
MOST_CURVES = 8  # most curves whose names stand in a figure; convention
_LETTER, _LINE = 7.0, 15.0  # pixels of a letter of such a name, and between two of them
_MARK, _BESIDE = 5.0, 9.0  # half of a point's width, and from its middle to the name of its line (pixels)
_NARROWEST = 240  # pixels of a panel on a phone, where names come as near to one another as they ever do
_LOG = 20  # times the lowest value, from which on an axis is logarithmic
_FARTHEST = 3.0  # times the highest value: a limit beyond would leave the panel half empty, and is not drawn
_NOTE = 110  # characters of a line below the title: not much wider than one panel and its legend


def inks(results: Curves) -> dict[str, tuple[str, str]]:
    """Each deployment's colour, the same in every figure and under every workload, and a darker one for its name."""
    names = results.study["deployment"].unique(maintain_order=True)
    return {name: (_MANY[i % len(_MANY)], _DARKER[i % len(_DARKER)]) for i, name in enumerate(names)}


def curve_colour(results: Curves) -> alt.Color:
    """The colour of each curve's deployment."""
    return _of_curves(results, alt.Color, {name: hue for name, (hue, _) in inks(results).items()})


def curve_shape(results: Curves) -> alt.Shape:
    """The shape of each curve's deployment, as its colour: either tells them apart."""
    return _of_curves(results, alt.Shape, shapes(results.study["deployment"].unique(maintain_order=True).to_list()))


def _of_curves(results: Curves, channel: type[_Channel], of: Mapping[str, str]) -> _Channel:
    """Of so many curves that their names at the ends of their lines would cover one another with a legend."""
    legend = alt.Legend(symbolOpacity=1) if len(curve_column(results)) > MOST_CURVES else None
    return marked(channel, "curve:N", {curve: of[name] for curve, name in _curves(results)}, title="curve", legend=legend)


def curve_dash(results: Curves) -> alt.StrokeDash:
    """The dash of each workload, solid that of the first."""
    workloads = results.study["workload"].unique(maintain_order=True).to_list()
    of = {name: _DASHES[i % len(_DASHES)] for i, name in enumerate(workloads)}
    return marked(alt.StrokeDash, "workload:N", of, legend=None)


def _curves(results: Curves) -> list[tuple[str, str]]:
    """The name and the deployment of each curve, in the order of legends and panels."""
    found = in_order(results, with_curve(results, results.runs).unique("curve", maintain_order=True))
    return found.select("curve", "deployment").rows()


def marked(channel: type[_Channel], field: str, of: Mapping[Any, Any], **more: Any) -> _Channel:
    """A channel that gives each value of `field` its own colour, shape or dash, those in `of`, in that order."""
    names = list(of)
    return channel(field, sort=names, scale=alt.Scale(domain=names, range=list(of.values())), **more)


def shapes(names: Sequence[str]) -> dict[str, str]:
    """A shape for each series; two series of one hue, the darker one of which comes a palette later, differ in shape."""
    return {name: _SHAPES[(i + i // len(_SHAPES)) % len(_SHAPES)] for i, name in enumerate(names)}


def is_log(results: Curves) -> bool:
    """Whether the load's axis is logarithmic: where it spans more than a factor of 20."""
    return float(results.runs["level"].max()) / float(results.runs["level"].min()) > 20  # type: ignore[arg-type]


def level_axis(results: Curves, field: str = "level") -> alt.X:
    """The load, one of `bench.axes`, with a tick at each measured one: a panel of any part of them has all of its own."""
    title, conversations = AXES[results.axis].title, (results.runs["turns"] > 1).fill_null(False)
    if results.axis == RATE and conversations.any():
        both = "rate (requests/s; with turns, conversations/s)"
        title = "rate (conversations/s)" if conversations.all() else both
    digits = "d" if AXES[results.axis].held else "~g"
    loads = results.runs["level"].unique().sort().to_list()
    axis = alt.Axis(values=loads, labelBound=12, format=digits, labelFlush=False, labelOverlap="greedy")
    return alt.X(f"{field}:Q", title=title, scale=level_span(results).scale, axis=axis)


def level_span(results: Curves) -> Span:
    """From the lowest to the highest load."""
    low, high = float(results.runs["level"].min()), float(results.runs["level"].max())  # type: ignore[arg-type]
    apart = 0.1 * low * (low == high)
    return Span(low - apart, high + apart, log=is_log(results))


@dataclass(frozen=True)
class Span:
    """From where to where an axis goes."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def of(cls, values: Iterable[float | None], *, within: Sequence[float] = (), log: bool | None = None) -> Span:
        """From 0 to a little above the highest value; logarithmic where they span more than a factor of 20.

        Args:
            within: values that it holds too, such as limits, unless they are so far off that the panel would be half empty.
        """
        known = [value for value in values if value is not None and math.isfinite(value)] or [1.0]
        known += [value for value in within if value <= _FARTHEST * max(known)]
        low, high = min(known), max(known)
        if log or (log is None and low > 0 and high > _LOG * low):
            return cls(0.8 * low, 1.25 * high, log=True)
        return cls(0.0, 1.1 * high or 1.0)

    @property
    def scale(self) -> alt.Scale:
        if self.log:
            return alt.Scale(type="log", base=2, domain=[self.low, self.high], nice=False)
        return alt.Scale(domain=[self.low, self.high], nice=False, zero=False)

    @property
    def ticks(self) -> alt.Axis:
        return alt.Axis(format="~r") if self.log else alt.Axis(tickCount=6)

    def share(self, value: float) -> float:
        """Where a value lies on the axis (0–1)."""
        form = math.log if self.log else float
        return (form(value) - form(self.low)) / (form(self.high) - form(self.low))

    def value(self, share: float) -> float:
        """The value that lies there."""
        return self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)


def line_ends(
    results: Curves, lines: pl.DataFrame, x: Span, y: Span, axes: tuple[alt.X, alt.Y], points: pl.DataFrame | None = None
) -> list[alt.Chart]:
    """The name of each curve at the end of its line, beside it where it would cover another or a point; none of a single curve, or of
    very many.

    Args:
        lines: rows with `curve`, `x` and `y`; a line ends with its last row. points: `x` and `y` of each; None: those of the lines.
    """
    of, study = inks(results), results.study.select("deployment", "workload").n_unique()
    ink = {curve: of[name][1] for curve, name in _curves(results)}
    ends = lines.drop_nulls(["x", "y"]).unique("curve", keep="last", maintain_order=True).sort("y", descending=True)
    if study == 1 or not 0 < len(ends) <= MOST_CURVES:
        return []
    points = (lines if points is None else points).select("x", "y").drop_nulls()
    beside = apart(ends.select("x", "y", "curve").rows(), x, y, points=points.rows())
    inked = pl.col("curve").replace_strict(ink, return_dtype=pl.String)
    rows = ends.select("curve", ink=inked, end="x", beside=pl.Series(beside, dtype=pl.Float64))
    across, along = alt.X("end:Q", scale=axes[0]["scale"], title=axes[0]["title"]), alt.Y("beside:Q", scale=axes[1]["scale"])
    base = alt.Chart(rows).encode(x=across, y=along.title(axes[1]["title"]), text="curve:N")
    look: dict[str, Any] = {"align": "left", "baseline": "middle", "dx": _BESIDE, "fontSize": 13, "clip": False}
    ground = base.mark_text(stroke="white", strokeWidth=3, **look)  # over lines that it covers
    return [ground, base.mark_text(**look).encode(color=alt.Color("ink:N", scale=None))]


def apart(
    texts: Sequence[tuple[float, float, str]],
    x: Span,
    y: Span,
    *,
    before: bool = False,
    points: Iterable[tuple[float, float]] = (),
) -> list[float]:
    """At which values of y texts beside points stand so that none covers one before it: a little lower or higher where it would.

    Args:
        texts: each point's x and y, and its text, from the highest point on. before: whether texts end at their points.
        points: x and y of what texts do not cover either.
    """
    marks = [(_NARROWEST * x.share(across), HEIGHT * (1 - y.share(at))) for across, at in points]
    placed = [(across - _MARK, across + _MARK, down) for across, down in marks]
    for across, at, text in texts:
        edge, wide = _NARROWEST * x.share(across), _LETTER * len(text)
        left, right = (edge - wide, edge) if before else (edge + _BESIDE, edge + _BESIDE + wide)
        near = [other for begin, end, other in placed if begin < right and left < end]
        down = HEIGHT * (1 - y.share(at))
        places = [down, *(other + by for by in (_LINE, -_LINE) for other in near)]
        free = [each for each in places if 0 <= each <= HEIGHT and all(abs(other - each) > _LINE - 1e-6 for other in near)]
        placed.append((left, right, min(free, key=lambda each: abs(each - down), default=down)))
    return [y.value(1 - down / HEIGHT) for _, _, down in placed[len(marks) :]]


def limit_line(limit: float | None, y: Span, axis: alt.Y, label: str) -> list[alt.Chart]:
    """A dashed line at a limit, with what it is above it; none where it lies beyond the panel."""
    if limit is None or not y.low <= limit <= y.high:
        return []
    base = alt.Chart(pl.DataFrame({"limit": [limit], "said": [label]}))
    at = alt.Y("limit:Q", title=axis["title"], scale=axis["scale"])
    text = base.mark_text(align="left", baseline="bottom", dx=4, dy=-3, fontSize=13, color="#333333")
    rule = base.mark_rule(strokeDash=[7, 4], color="black", strokeWidth=1.2)
    return [rule.encode(y=at), text.encode(x=alt.value(0), y=at, text="said:N")]


def points(chart: alt.Chart, y: alt.Y, x: alt.X, colour: alt.Color | alt.ColorDatum, **more: Any) -> alt.LayerChart:
    """Every run as a point: filled where it is valid, a cross where it is not."""
    common = {"x": x, "y": y, "color": colour, **more}
    valid = chart.transform_filter("datum.valid").mark_point(filled=True, opacity=1, size=55)
    rest = {key: value for key, value in common.items() if key != "shape"}
    invalid = chart.transform_filter("!datum.valid")
    crosses = invalid.mark_point(filled=False, **CROSS)
    return alt.LayerChart(layer=[valid.encode(**common), crosses.encode(**rest)])


def disturbed(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs that are invalid as other processes took too much of the cores' time, with that share in `beside`."""
    found = runs.filter(~pl.col("valid"), pl.col("reasons").list.eval(pl.element().str.contains("other_processes")).list.any())
    return found.with_columns(beside=pl.format("{} %", (100 * pl.col("host_other_share")).round().cast(pl.Int64)))


def beside_crosses(runs: pl.DataFrame, x: alt.X, y: alt.Y, *columns: str) -> list[alt.Chart]:
    """The share of others' work beside the crosses of runs that it disturbed. Args: columns: that `x` and `y` draw."""
    found = disturbed(runs).filter(pl.col(column).is_finite() for column in columns)
    text = alt.Chart(found.select(*columns, "beside")) if found.height else None
    look: dict[str, Any] = {"align": "right", "dx": -8, "fontSize": 11, "color": NEUTRAL}
    return [text.mark_text(**look).encode(x=x, y=y, text="beside:N")] if text else []


def load_panel(
    results: Curves,
    runs: pl.DataFrame,
    column: str,
    title: str,
    *,
    form: Callable[[pl.Expr], pl.Expr] | None = None,
    drawn: str | None = None,
    heading: str = "",
    format: str = ".3g",
    span: Span | None = None,
    limit: tuple[float, str] | None = None,
    over: Sequence[alt.Chart | alt.LayerChart] = (),
) -> alt.LayerChart:
    """What most figures of load are made of: a line a curve through its levels, a point a run, and the curves' names.

    Args:
        runs: rows of `with_curve` with `level`, `valid` and `column`. form: of the column's values as they are drawn, such as in
            milliseconds. drawn: the column's name then, since its own names its unit. title: of the axis. span: of it; None: of the
            values. limit: where a dashed line lies, and what it is. over: layers above these.
    """
    curves, value = runs.select("deployment", "workload", "curve").unique(maintain_order=True), form or (lambda each: each)
    levels = level_values(runs, [column]).with_columns(value(pl.col(column))).filter(pl.col(column).is_finite())
    levels = curves.join(levels, on=["deployment", "workload"], maintain_order="left").sort("level", maintain_order=True)
    runs = runs.with_columns(value(pl.col(column)))
    if drawn:
        levels, runs, column = levels.rename({column: drawn}), runs.rename({column: drawn}), drawn
    within = [limit[0]] if limit else []
    span = span or Span.of([*runs[column].to_list(), *levels[column].to_list()], within=within)
    ticks = alt.Axis(format="%") if format.endswith("%") else span.ticks
    x, colour, dash = level_axis(results), curve_colour(results), curve_dash(results)
    y = alt.Y(f"{column}:Q", title=f"{title}{', log' if span.log else ''}", scale=span.scale, axis=ticks)
    known = runs.drop_nulls(column).filter(pl.col(column).is_finite())
    shown = known.select("curve", "workload", "level", column, "valid", "run")
    tooltip = ["curve:N", "run:N", "level:Q", alt.Tooltip(f"{column}:Q", title=title, format=format)]
    lines = alt.Chart(levels.select("curve", "workload", "level", column))
    layers: list[alt.Chart | alt.LayerChart] = [
        *(limit_line(limit[0], span, y, limit[1]) if limit else ()),
        lines.mark_line(clip=True).encode(x=x, y=y, color=colour, strokeDash=dash),
        points(alt.Chart(shown), y, x, colour, shape=curve_shape(results), tooltip=tooltip),
        *beside_crosses(runs, x, y, "level", column),
        *over,
        *line_ends(results, levels.select("curve", x="level", y=column), level_span(results), span, (x, y)),
    ]
    return panel(layers, heading)


def unit_column(column: str, unit: str) -> str:
    """The name of a column of seconds in this unit, `ms` or `s`."""
    return f"{column.removesuffix('_s')}_{unit}"


def series_colour(results: Curves, rows: pl.DataFrame, **more: Any) -> alt.Color:
    """The colour of each `series`' `deployment`."""
    colours, of = inks(results), dict(rows.select("series", "deployment").iter_rows())
    return marked(alt.Color, "series:N", {series: colours[name][0] for series, name in of.items()}, **more)


def series_shape(rows: pl.DataFrame, **more: Any) -> alt.Shape:
    """A shape for each `series`."""
    return marked(alt.Shape, "series:N", shapes(rows["series"].unique(maintain_order=True).to_list()), **more)


def panel(layers: Sequence[alt.Chart | alt.LayerChart], heading: str = "", width: int = WIDTH) -> alt.LayerChart:
    """Layers of one panel, below a heading."""
    top = alt.TitleParams(heading, fontSize=15, fontWeight="normal", anchor="start") if heading else alt.Undefined
    return alt.LayerChart(layer=list(layers), width=width, height=HEIGHT, title=top)


def tips(form: str, *fields: str) -> list[alt.Tooltip]:
    """Numbers of this form on hover."""
    return [alt.Tooltip(f"{field}:Q", format=form) for field in fields]


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
    chart.title = alt.TitleParams(title, subtitle=lines or alt.Undefined, anchor="start", offset=12)
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
    """

    @property
    def runs(self) -> pl.DataFrame: ...
    @property
    def study(self) -> pl.DataFrame: ...
    @property
    def axis(self) -> str: ...
    @property
    def several_workloads(self) -> bool: ...


def with_curve(results: Curves, frame: pl.DataFrame) -> pl.DataFrame:
    """Add `curve`, what a line is called: a deployment, with its workload where the study has several."""
    name = pl.format("{} · {}", "deployment", "workload") if results.several_workloads else pl.col("deployment")
    return frame.with_columns(curve=name)


def curve_column(results: Curves) -> list[str]:
    """The curves in the order of legends and panels."""
    return [curve for curve, _ in _curves(results)]


def in_order(results: Curves, table: pl.DataFrame) -> pl.DataFrame:
    """Rows of curves by workload, and of each workload by deployment, both in the study's order: as legends have them."""
    order = {key: results.study[key].unique(maintain_order=True).to_list() for key in ("workload", "deployment")}
    places = [pl.col(key).replace_strict(names, range(len(names)), return_dtype=pl.Int64) for key, names in order.items()]
    return table.sort(places, maintain_order=True)

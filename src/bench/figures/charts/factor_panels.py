"""Each metric over each factor."""

import altair as alt
import polars as pl

from bench.analysis.factors import METRICS, factors_of, marginal_means, varying
from bench.figures.families import by_family
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import PALETTE, marked, nothing_to_show, shapes

_WIDTH, _HEIGHT = 190, 140
_LARGE = 1e6  # values from which ticks are written with a prefix of units
_UNITS = {"batch size": "batch size (requests)", "input length": "input (tokens)", "output length": "output (tokens)"}


@figure(
    "factor-panels",
    title="Each metric over each factor",
    question="In which direction does each factor move each metric, and by how much?",
    reading="Geometric means over the other factors, of the configurations that have every value of the factor shown. Shaded: the "
    "same means of each configuration's least and of its most repeat. Both axes are logarithmic: a straight line of slope 1 is "
    "proportion.",
    invalid="Left out",
    by_axis=False,
)
def factor_panels(results: Results) -> alt.TopLevelMixin:
    """Marginal means with the repeats' spread: a row a metric, a column a factor, a colour a model.

    Args:
        results: `runs` as `bench.analysis.factors.with_metrics` takes them.
    """
    return by_family(results, _drawn)


def _drawn(runs: pl.DataFrame) -> alt.TopLevelMixin:
    names = factors_of(runs)
    factors = [name for name in varying(runs) if name != "model_order"]
    tables = {name: marginal_means(runs, name) for name in factors}
    shown = {name: table for name, table in tables.items() if table["value"].n_unique() > 1}
    if not shown:
        return nothing_to_show("no factor has two values in configurations that are alike in the others")
    models = runs["model"].unique(maintain_order=True).to_list()
    legend = alt.Legend(symbolOpacity=1)
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(models)}
    colour = marked(alt.Color, "model:N", colours, title="model", legend=legend)
    shape = marked(alt.Shape, "model:N", shapes(models), title="model", legend=legend)
    panels = []
    for metric in METRICS.values():
        parts = {name: table.filter(pl.col("metric") == metric) for name, table in shown.items()}
        ends = [value for part in parts.values() for value in (*part["low"], *part["high"])]
        if not ends:
            continue
        scale = alt.Scale(type="log", domain=[0.9 * min(ends), 1.1 * max(ends)], nice=False)
        for column, (name, part) in enumerate(parts.items()):
            title = None if column else metric  # named once a row
            panels.append(_panel(part, names[name], title, scale, colour, shape) if len(part) else _empty())
    return alt.ConcatChart(concat=panels, columns=len(shown))


def _empty() -> alt.LayerChart:
    return nothing_to_show("incomplete").properties(width=_WIDTH, height=_HEIGHT)


def _panel(
    rows: pl.DataFrame, factor: str, title: str | None, scale: alt.Scale, colour: alt.Color, shape: alt.Shape
) -> alt.LayerChart:
    x = _x(rows, _UNITS.get(factor, factor))
    mean, low = (
        alt.Y(f"{end}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=4, format="~g")) for end in ("mean", "low")
    )
    texts = rows["label"].is_not_null().any()
    tooltip = ["model:N", alt.Tooltip("label:N" if texts else "value:Q", title="value"),
               *(alt.Tooltip(f"{key}:Q", format=".4g") for key in ("mean", "low", "high")),
               alt.Tooltip("n:Q", title="configurations")]  # fmt: skip
    base = alt.Chart(rows)
    return alt.LayerChart(
        layer=[
            base.mark_area(opacity=0.25).encode(x=x, y=low, y2=alt.Y2("high:Q"), color=colour),
            base.mark_line().encode(x=x, y=mean, color=colour),
            base.mark_point(filled=True, size=35, opacity=1).encode(x=x, y=mean, color=colour, shape=shape, tooltip=tooltip),
        ]
    ).properties(width=_WIDTH, height=_HEIGHT)


def _x(rows: pl.DataFrame, title: str) -> alt.X:
    """The values, logarithmic; texts, and numbers that have no logarithm, one beside another."""
    values = rows.select("value", "label").unique().sort("value")
    if values["label"].is_null().all() and (values["value"] > 0).all():
        axis = alt.Axis(
            values=values["value"].to_list(), format="~g" if max(values["value"]) < _LARGE else "~s", labelOverlap="greedy"
        )
        return alt.X("value:Q", title=title, scale=alt.Scale(type="log", base=2), axis=axis)
    shown = "value:O" if values["label"].is_null().all() else "label:O"
    return alt.X(shown, title=title, sort=values[shown[:-2]].to_list(), axis=alt.Axis(labelAngle=0))

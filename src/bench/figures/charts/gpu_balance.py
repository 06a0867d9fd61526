"""How evenly the GPUs of a server are busy."""

import altair as alt
import polars as pl

from bench.analysis.level_values import level_value
from bench.axes import AXES
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    curve_colour,
    curve_column,
    level_axis,
    marked,
    nothing_to_show,
    panels_a_row,
    points,
    shapes,
    with_curve,
)
from bench.words.charts import widest_spread
from bench.words.loads import load_text

_SERIES = "gpu_utilisation/"


@figure(
    "gpu-balance",
    title="GPU utilisation against load",
    question="How busy are the GPUs, and are all of them as busy?",
    reading="The mean of each GPU over a run, a line a GPU through the means of its levels; the grey bar spans them from the "
    "idlest to the busiest. Utilisation is the share of time in which a kernel ran, not how full the GPU was: 100 % is reached long "
    "before it can do no more.",
)
def gpu_balance(results: Results) -> alt.ConcatChart | alt.LayerChart:
    """Utilisation of each GPU over load, a panel a curve, with the spread between GPUs.

    Args:
        results: `timeseries` with a series `gpu_utilisation/…` (0–1) a GPU; `runs` with `duration_s` (s), `gpu_utilisation_mean` (null
            where too little was read) and `valid`.
    """
    rows = _means(results)
    if rows.is_empty():
        return nothing_to_show("no run has the utilisation of its GPUs")
    order = sorted(rows["gpu"].unique(), key=lambda name: (len(name), name))
    shape = marked(alt.Shape, "gpu:N", shapes(order), title="GPU")
    # Lines that lie on one another still show.
    widths = {name: 4 - 2.5 * i / max(1, len(order) - 1) for i, name in enumerate(order)}
    rows = rows.with_columns(width=pl.col("gpu").replace_strict(widths, return_dtype=pl.Float64))
    curves = [curve for curve in curve_column(results) if curve in rows["curve"]]
    panels = [_panel(results, curve, rows.filter(pl.col("curve") == curve), shape) for curve in curves]
    return alt.concat(*panels, columns=panels_a_row(len(panels)))


def _means(results: Results) -> pl.DataFrame:
    """Each GPU's mean over each run: `curve`, `run`, `level`, `valid`, `gpu`, `share`."""
    runs = with_curve(results, results.runs.filter(pl.col("gpu_utilisation_mean").is_not_null()))
    return (
        results.timeseries.filter(pl.col("series").str.starts_with(_SERIES))
        .join(runs.select("deployment", "run", "curve", "valid", "duration_s"), on=["deployment", "run"])
        .filter(pl.col("elapsed_s") <= pl.col("duration_s"))  # what came after is the way to rest
        .with_columns(gpu=pl.col("series").str.strip_prefix(_SERIES))
        .group_by("curve", "deployment", "run", "level", "valid", "gpu", maintain_order=True)
        .agg(share=pl.col("value").mean())
    )


def _panel(results: Results, curve: str, rows: pl.DataFrame, shape: alt.Shape) -> alt.LayerChart:
    levels = rows.filter("valid").group_by("curve", "gpu", "width", "level", maintain_order=True).agg(level_value("share"))
    several = levels.filter(pl.len().over("level") > 1)
    spread = several.group_by("level").agg(low=pl.col("share").min(), high=pl.col("share").max()).sort("level")
    widest = spread.sort(pl.col("high") - pl.col("low"), descending=True).head(1).rows(named=True)
    unit = AXES[results.axis].unit
    notes = [widest_spread(at["low"], at["high"], load_text(at["level"], unit)) for at in widest]
    x, colour = level_axis(results), curve_colour(results).legend(None)
    y = alt.Y("share:Q", title="GPU utilisation", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1.02], nice=False))
    ends = {"y": alt.Y("low:Q", title="GPU utilisation", scale=alt.Scale(domain=[0, 1.02], nice=False)), "y2": "high:Q"}
    width = alt.StrokeWidth("width:Q", scale=None, legend=None)
    tooltip = ["run:N", "gpu:N", "level:Q", alt.Tooltip("share:Q", format=".1%")]
    return alt.LayerChart(
        layer=[
            alt.Chart(spread).mark_rule(strokeWidth=12, color="#cccccc").encode(x=x, **ends),
            alt.Chart(levels).mark_line().encode(x=x, y=y, color=colour, strokeWidth=width, detail="gpu:N"),
            points(alt.Chart(rows), y, x, colour, shape=shape, tooltip=tooltip),
        ]
    ).properties(
        width=280,
        height=240,
        title=alt.TitleParams(curve, subtitle=notes, fontSize=15, anchor="start", subtitleFontSize=13),
    )

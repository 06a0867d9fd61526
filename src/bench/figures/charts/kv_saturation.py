"""KV-cache usage against load."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    curve_colour,
    curve_dash,
    curve_shape,
    curve_size,
    layered,
    level_axis,
    median_lines,
    points,
    predicted_rules,
    with_curve,
)
from bench.study.questions import levels
from bench.words.charts import saturation_title


@figure(
    "kv-saturation",
    applies=levels(2),
    order=30,
    title="KV-cache usage against load",
    question="At what load does the KV cache run out, and was that to be expected?",
    reading="Peak usage of each run; where each request holds a slot, the share of slots at work. Dashed: the saturation that "
    "geometry predicts, KV tokens ÷ tokens a request, in the curve's colour, or grey where several share it. Where a curve "
    "reaches the top at its dashed line, geometry set the limit. An engine may keep a block for itself; then the level at the "
    "line is the first that does not fit whole.",
    judged="counts_valid",
    finding=lambda results: saturation_title(results.saturation),
)
def kv_saturation(results: Results) -> alt.LayerChart:
    """Peak KV-cache usage of each run, one line a curve through its levels' medians, with the prediction as a rule.

    Args:
        results: `runs` with `level`, `kv_usage_peak` (0–1), `predicted_saturation` (requests) and `valid`.
    """
    runs = with_curve(results, results.runs.filter(pl.col("kv_usage_peak").is_not_null()))
    runs = runs.with_columns(valid=pl.col("counts_valid"))
    x, colour = level_axis(results), curve_colour(results)
    y = alt.Y("kv_usage_peak:Q", title="peak KV-cache usage", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1.02]))
    base = alt.Chart(runs.select("curve", "curve_size", "level", "kv_usage_peak", "valid", "run"))
    return layered(
        predicted_rules(runs, x, colour),
        median_lines(runs, "kv_usage_peak", x, y, colour, curve_dash(results)),
        points(
            base,
            y,
            x,
            colour,
            shape=curve_shape(results),
            size=curve_size(),
            tooltip=[alt.Tooltip("run:N"), alt.Tooltip("level:Q"), alt.Tooltip("kv_usage_peak:Q", format=".1%")],
        ),
    )

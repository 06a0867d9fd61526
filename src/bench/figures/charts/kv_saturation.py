"""KV-cache usage against load."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import (
    curve_colour,
    curves,
    in_order,
    layered,
    level_axis,
    nothing_to_show,
    predicted_rules,
    with_curve,
)
from bench.words.saturates import title


@figure(
    "kv-saturation",
    title="KV-cache usage against load",
    question="At what load does the KV cache run out, and was that to be expected?",
    reading="Peak usage of each run; where each request holds a slot, the share of slots at work. Filled: the run filled the cache. "
    "That is so where 99 % or more was in use, a request was preempted, or one waited that did not fit into what was free: a "
    "prompt is admitted whole or not at all, so this happens below 99 % too. Hollow: there was room. Dashed: the saturation "
    "that geometry predicts, KV tokens ÷ tokens a request, in the deployment's colour, or grey where several share it. Where "
    "points turn from hollow to filled at their line, geometry set the limit.",
    judged="counts_valid",
    finding=lambda results: title(in_order(results, results.saturation).to_dicts()),
    columns=lambda _: {"kv_usage_peak": "KV-cache usage"},
)
def kv_saturation(results: Tables) -> alt.LayerChart:
    """Peak KV-cache usage of each run, one line a curve through the highest of each level, with the prediction as a rule.

    Args:
        results: `runs` with `level`, `kv_usage_peak` (0–1), `predicted_saturation` (requests) and `valid`.
    """
    runs = with_curve(results, results.runs.filter(pl.col("kv_usage_peak").is_not_null()))
    if runs.is_empty():
        return nothing_to_show("the server's metrics do not show its KV cache")
    runs = runs.with_columns(valid=pl.col("counts_valid"), room=~pl.col("saturated").fill_null(False))
    y = alt.Y("kv_usage_peak:Q", title="peak KV-cache usage", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1.02]))
    rules = predicted_rules(runs, level_axis(results), curve_colour(results))
    return layered(rules, *curves(results, runs, "kv_usage_peak", y, format=".1%", hollow="room"))

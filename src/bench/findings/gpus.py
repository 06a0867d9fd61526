"""How busy the GPUs of a server are, how evenly, and what they hold and draw."""

import polars as pl

from bench.findings.tables import Tables
from bench.report.figure import alt, figure
from bench.report.theme import (
    Span,
    curve_colour,
    level_axis,
    load_panel,
    nothing_to_show,
    panels_a_row,
    with_curve,
)

_PANELS = {
    "gpu_utilisation_mean": ("utilisation, from the idlest GPU to the busiest", "GPU utilisation", ".0%"),
    "gpu_memory_gib": ("memory of the fullest GPU", "peak memory (GiB)", ".1f"),
    "gpu_power_mean_w": ("power of all GPUs together", "mean power (W)", ".0f"),
    "tokens_per_joule": ("what the energy buys", "output tokens a joule", ".2f"),
}


@figure(
    "gpus",
    title="GPU utilisation, memory, power and tokens a joule against load",
    question="How busy are the GPUs, are all of them as busy, and at what load does a joule buy the most tokens?",
    reading="Each run, and lines through the means of the levels. Utilisation is the share of time in which a kernel ran, not how "
    "full the GPU was: 100 % is reached long before it can do no more; upright, from the idlest to the busiest of an "
    "instance's GPUs. An engine takes its memory when it starts, so that line is level. Power is the mean over the load; "
    "tokens a joule are a run's output tokens over the energy that the GPUs drew from its first request to its last token, by "
    "their own counters. What the rest of the machine draws is in neither.",
)
def gpus(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Utilisation of the GPUs, peak memory of the fullest, mean power of all, and output tokens a joule, one line a curve."""
    runs = with_curve(results, results.runs).with_columns(gpu_memory_gib=pl.col("gpu_memory_peak_bytes") / 2**30)
    known = [column for column in _PANELS if runs[column].is_not_null().any()]
    if not known:
        return nothing_to_show("no run has the utilisation, the memory, the power or the energy of its GPUs")
    return alt.concat(*(_panel(results, runs, column) for column in known), columns=panels_a_row(len(known), most=2))


def _panel(results: Tables, runs: pl.DataFrame, column: str) -> alt.LayerChart:
    title, what, digits = _PANELS[column]
    share = digits.endswith("%")
    span = Span(0.0, 1.02) if share else Span.of(runs[column], log=False)
    over = []
    if share:
        known = runs.filter("valid").drop_nulls([column, "gpu_utilisation_min", "gpu_utilisation_max"])
        ends = alt.Chart(known.select("curve", "level", low="gpu_utilisation_min", high="gpu_utilisation_max"))
        low = alt.Y("low:Q", title=what, scale=span.scale)
        over = [ends.mark_rule(strokeWidth=1.5).encode(x=level_axis(results), y=low, y2="high:Q", color=curve_colour(results))]
    return load_panel(results, runs, column, what, heading=title, format=digits, span=span, over=over)

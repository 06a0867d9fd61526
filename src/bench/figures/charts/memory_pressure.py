"""Admission, queueing and memory pressure at the highest level."""

import altair as alt
import polars as pl

from bench.axes import AXES
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    curve_column,
    kv_usage_over_time,
    marked,
    nothing_to_show,
    panels_a_row,
    time_axis,
    time_tooltip,
    with_curve,
)
from bench.study.questions import shows_kv_cache
from bench.words.loads import load_text

_COUNTS = {"running": "#000000", "waiting": "#999999"}  # in greys: colours are deployments


@figure(
    "memory-pressure",
    applies=shows_kv_cache,
    order=80,
    title="Admission, queueing and memory pressure at the highest level",
    question="When the server is overloaded, do requests wait because the KV cache is full?",
    reading="The highest level of each curve. Above: requests running and waiting. Below: KV-cache usage. At first a burst "
    "queues for its prefill, of which a step takes only so many tokens. A queue that stays or comes back while usage is pinned near "
    "100 % is one for memory.",
    invalid="Where drawn, named in their panels' titles",
    judged="counts_valid",
)
def memory_pressure(results: Results) -> alt.ConcatChart | alt.LayerChart:
    """Requests running and waiting over KV-cache usage, at each curve's highest level (its first repeat).

    Args:
        results: `timeseries` with `running`, `waiting` (requests) and `kv_usage` (0–1); `runs` with `counts_valid`.
    """
    if results.timeseries.filter(pl.col("series").is_in([*_COUNTS, "kv_usage"])).is_empty():
        return nothing_to_show("the server's metrics show neither its queue nor its KV cache")
    runs = with_curve(results, results.runs)
    columns = []
    for curve in curve_column(results):
        run = runs.filter(pl.col("curve") == curve).sort("level", -pl.col("repeat")).row(-1, named=True)
        rows = results.timeseries.filter((pl.col("deployment") == run["deployment"]) & (pl.col("run") == run["run"]))
        x = time_axis(float(run["duration_s"] or 1.0))
        rows = rows.with_columns(curve=pl.lit(curve))
        counts = rows.filter(pl.col("series").is_in(list(_COUNTS))).select("curve", "series", "elapsed_s", "value")
        usage = rows.filter(pl.col("series") == "kv_usage").select("curve", "elapsed_s", "value")
        colour = marked(alt.Color, "series:N", _COUNTS, title="requests", legend=alt.Legend(orient="bottom"))
        title = f"{curve} at {load_text(run['level'], AXES[run['axis']].short)}" + (
            "" if run["counts_valid"] else " (invalid run)"
        )
        above = (
            alt.Chart(counts, title=alt.TitleParams(title, fontSize=15, anchor="start"))
            .mark_line(clip=True, interpolate="step-after")
            .encode(
                x=x.title(None),
                y=alt.Y("value:Q", title="requests"),
                color=colour,
                tooltip=["series:N", alt.Tooltip("value:Q", title="requests"), time_tooltip()],
            )
            .properties(width=280, height=180)
        )
        below = kv_usage_over_time(usage, x).properties(width=280, height=100)
        columns.append(alt.vconcat(above, below))
    return alt.concat(*columns, columns=panels_a_row(len(columns)))

"""Throughput and KV-cache usage over time, below, at and above the load that fills the cache."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    curve_colour,
    curve_column,
    kv_usage_over_time,
    nothing_to_show,
    saturation_finding,
    time_axis,
    time_tooltip,
    with_curve,
)
from bench.study.questions import tokens_over_time
from bench.words.charts import load_label

_SERIES = ("throughput", "kv_usage")
_WIDTH, _ABOVE, _BELOW = 250, 110, 50


@figure(
    "throughput-over-time",
    applies=tokens_over_time,
    order=100,
    title="Throughput over time",
    question="Does a run keep its speed once the KV cache is full?",
    reading="A row a curve, with the highest level that leaves room in the KV cache, the lowest that fills it, and the highest of all; "
    "of a curve that never fills it, the highest level. Curves that fill it come alone where there are any. Above: output "
    "tokens a second at the client, in bins of half a second, on one scale. Below: KV-cache usage. Beyond a full cache a run "
    "has a plateau that more load does not raise, and a tail in which the requests that had to wait run alone.",
    invalid="Where drawn, named in their panels' titles",
    finding=saturation_finding,
)
def throughput_over_time(results: Results) -> alt.VConcatChart | alt.LayerChart:
    """Output tokens a second over KV-cache usage, of a few telling runs of each curve.

    Args:
        results: `timeseries` with the series `throughput` (tokens/s) and `kv_usage` (0–1) over `elapsed_s` (s); `saturation`.
    """
    telling = _telling(results)
    rows = results.timeseries.filter(pl.col("series").is_in(_SERIES)).join(
        telling.select("deployment", "run", "curve"), on=["deployment", "run"]
    )
    if rows.is_empty():
        return nothing_to_show("no run has a course over time")
    highest = max(rows.filter(series="throughput")["value"], default=1.0)
    strips = []
    for part in telling.partition_by("curve", maintain_order=True):
        end = max((each or 1.0 for each in part["duration_s"]), default=1.0)
        strips.append(alt.hconcat(*(_panel(results, run, rows, end, highest) for run in part.iter_rows(named=True))))
    return alt.vconcat(*strips)


def _telling(results: Results) -> pl.DataFrame:
    """The runs that are drawn, in the order of curves and levels: rows of the summary with `curve`; valid ones first, then repeats."""
    runs = with_curve(results, results.runs).sort(~pl.col("valid"), "repeat", maintain_order=True)
    each = runs.unique(["curve", "level"], keep="first", maintain_order=True)
    full = with_curve(results, results.saturation).drop_nulls("measured")
    marks = {row["curve"]: (row["below"], row["measured"]) for row in full.iter_rows(named=True)}
    parts = []
    for curve in [name for name in curve_column(results) if name in marks or not marks]:
        of_curve = each.filter(pl.col("curve") == curve).sort("level")
        wanted = {*marks.get(curve, ()), of_curve["level"].max()}
        parts.append(of_curve.filter(pl.col("level").is_in([level for level in wanted if level is not None])))
    return pl.concat(parts)


def _panel(results: Results, run: dict[str, Any], rows: pl.DataFrame, end: float, highest: float) -> alt.VConcatChart:
    """Args: rows: of all runs. end: of the time axis (s). highest: of the throughput axis (tokens/s)."""
    here = rows.filter((pl.col("deployment") == run["deployment"]) & (pl.col("run") == run["run"])).sort("elapsed_s")
    x = time_axis(end)
    tokens = alt.Y(
        "value:Q", title="tokens/s", scale=alt.Scale(domain=[0, 1.05 * highest], nice=False), axis=alt.Axis(tickCount=4)
    )
    title = f"{run['curve']} at {load_label(run['level'], run['axis'])}" + ("" if run["valid"] else " (invalid run)")
    speed, cache = (alt.Chart(here.filter(series=series).select("curve", "elapsed_s", "value")) for series in _SERIES)
    above = (
        speed.mark_line(clip=True)
        .encode(
            x=x.title(None).axis(tickCount=5, labels=False),
            y=tokens,
            color=curve_colour(results).legend(None),
            tooltip=[alt.Tooltip("value:Q", title="tokens/s", format=".0f"), time_tooltip()],
        )
        .properties(width=_WIDTH, height=_ABOVE, title=alt.TitleParams(title, fontSize=15, anchor="start"))
    )
    below = kv_usage_over_time(cache.data, x).properties(width=_WIDTH, height=_BELOW)
    return alt.vconcat(*((above, below) if cache.data.height else (above.encode(x=x),)), spacing=6)

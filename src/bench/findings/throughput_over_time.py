"""Throughput, requests and KV-cache usage over time, below, at and above the load that fills the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from bench.findings.regions import saturation_finding
from bench.findings.tables import Tables
from bench.report.altair import alt
from bench.report.chart_words import load_label
from bench.report.figure import figure
from bench.report.theme import NEUTRAL, curve_colour, curve_column, nothing_to_show, with_curve

_COUNTS = {"running": "#000000", "waiting": "#999999"}  # in greys: colours are deployments
_WIDTH = 250


@figure(
    "throughput-over-time",
    title="Throughput over time",
    question="Does a run keep its speed once the KV cache is full?",
    reading="Of each curve the highest load with room in the KV cache, the lowest that fills it, and the highest. Below: "
    "requests running (black) and waiting (grey), and the cache.",
    invalid="Named in their titles",
    finding=saturation_finding,
)
def throughput_over_time(results: Tables) -> alt.VConcatChart | alt.LayerChart:
    """Output tokens a second over requests running and waiting and KV-cache usage, of a few telling runs of each curve.

    Args:
        results: `timeseries` with the series `throughput` (tokens/s), `running`, `waiting` (requests) and `kv_usage` (0–1) over
            `elapsed_s` (s); `saturation`.
    """
    telling = _telling(results)
    rows = results.timeseries.filter(pl.col("series").is_in(["throughput", "kv_usage", *_COUNTS])).join(
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


def _telling(results: Tables) -> pl.DataFrame:
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


def _panel(results: Tables, run: dict[str, Any], rows: pl.DataFrame, end: float, highest: float) -> alt.VConcatChart:
    """Args: rows: of all runs. end: of the time axis (s). highest: of the throughput axis (tokens/s)."""
    here = rows.filter((pl.col("deployment") == run["deployment"]) & (pl.col("run") == run["run"])).sort("elapsed_s")
    known = set(here["series"])
    step: dict[str, Any] = {"clip": True, "interpolate": "step-after"}
    tokens = alt.Y(
        "value:Q", title="tokens/s", scale=alt.Scale(domain=[0, 1.05 * highest], nice=False), axis=alt.Axis(tickCount=4)
    )
    panels = [
        _lines(here, {"throughput": alt.MarkDef("line", clip=True)}, tokens, 110).encode(
            color=curve_colour(results).legend(None)
        )
    ]
    if known & {*_COUNTS}:
        lines = {name: alt.MarkDef("line", color=colour, **step) for name, colour in _COUNTS.items()}
        panels.append(_lines(here, lines, alt.Y("value:Q", title="requests", axis=alt.Axis(tickCount=3)), 70))
    if "kv_usage" in known:
        axis, scale = alt.Axis(format="%", values=[0, 0.5, 1]), alt.Scale(domain=[0, 1.02])
        area = alt.MarkDef("area", color=NEUTRAL, opacity=0.6, **step)
        panels.append(_lines(here, {"kv_usage": area}, alt.Y("value:Q", title="KV cache", axis=axis, scale=scale), 50))
    time = alt.X(
        "elapsed_s:Q", title=None, scale=alt.Scale(domain=[0, end], nice=False), axis=alt.Axis(tickCount=5, labels=False)
    )
    last = time.title("time since the run's start (s)").axis(tickCount=5)
    panels = [panel.encode(x=last if panel is panels[-1] else time) for panel in panels]
    title = f"{run['curve']} at {load_label(run['level'], run['axis'])}" + ("" if run["valid"] else " (invalid run)")
    chart: alt.VConcatChart = alt.vconcat(*panels, spacing=6, title=alt.TitleParams(title, fontSize=15, anchor="start"))
    return chart


def _lines(rows: pl.DataFrame, marks: Mapping[str, alt.MarkDef], y: alt.Y, height: int) -> alt.LayerChart:
    """Series of a run. Args: marks: by series."""
    tooltip = [
        alt.Tooltip("series:N"),
        alt.Tooltip("value:Q", format=".3g"),
        alt.Tooltip("elapsed_s:Q", title="time (s)", format=".2f"),
    ]
    layers = [
        alt.Chart(rows.filter(series=name).select("curve", "series", "elapsed_s", "value"), mark=mark).encode(
            y=y, tooltip=tooltip
        )
        for name, mark in marks.items()
    ]
    return alt.LayerChart(layer=layers, width=_WIDTH, height=height)

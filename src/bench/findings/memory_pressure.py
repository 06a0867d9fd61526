"""Memory pressure: throughput, requests and KV-cache usage over the time of one load a curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from bench.axes import AXES
from bench.findings.course import course
from bench.findings.tables import Tables
from bench.report.figure import alt, figure
from bench.report.theme import NEUTRAL, curve_colour, in_order, nothing_to_show, tips, with_curve
from bench.runs.sentences import load_text

_COUNTS: dict[str, dict[str, Any]] = {"running": {"color": "black"}, "waiting": {"color": NEUTRAL, "strokeDash": [5, 2]}}
_WIDTH = 280


def _telling(results: Tables) -> pl.DataFrame:
    """The run of each curve that is drawn, of its highest load: rows of the summary with `curve`; valid ones first, then repeats."""
    runs = with_curve(results, results.runs).sort(pl.col("level"), ~pl.col("valid"), "repeat", descending=[True, False, False])
    return in_order(results, runs.unique("curve", keep="first", maintain_order=True))


def _finding(results: Tables) -> str | None:
    """When the cache is full in the first run drawn that fills it, and what waits then."""
    for run in _telling(results).iter_rows(named=True):
        seen = course(results.timeseries.filter(deployment=run["deployment"], run=run["run"]))
        if seen.full_after_s is not None:
            waits = f", and up to {run['waiting_peak']:.0f} requests wait" if run["waiting_peak"] else ""
            load = load_text(run["level"], AXES[run["axis"]].unit)
            full = f"the KV cache is full after {seen.full_after_s:.2g} s, for {seen.full_for_s:.2g} s"
            return f"{run['curve']} at {load}: {full}{waits}"
    return "No run drawn fills the KV cache" if (results.timeseries["series"] == "kv_usage").any() else None


@figure(
    "memory-pressure",
    title="Memory pressure over time",
    question="What happens in a run as its KV cache fills?",
    reading="Each curve at its highest load: output tokens a second, requests running (solid) and waiting (dashed), and the KV cache.",
    invalid="Named in their titles",
    finding=_finding,
    shown=_telling,
)
def memory_pressure(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Output tokens a second over requests running and waiting and KV-cache usage, of one run of each curve."""
    telling = _telling(results)
    rows = results.timeseries.filter(pl.col("series").is_in(["throughput", "kv_usage", *_COUNTS])).join(
        telling.select("deployment", "run", "curve"), on=["deployment", "run"]
    )
    if rows.is_empty():
        return nothing_to_show("no run has a course over time")
    highest = max(rows.filter(series="throughput")["value"], default=1.0)
    return alt.concat(*(_panel(results, run, rows, highest) for run in telling.iter_rows(named=True)), columns=3)


def _panel(results: Tables, run: dict[str, Any], rows: pl.DataFrame, highest: float) -> alt.VConcatChart:
    """Args: rows: of all runs. highest: of the throughput axis (tokens/s)."""
    here = rows.filter(deployment=run["deployment"], run=run["run"]).sort("elapsed_s")
    known = set(here["series"])
    step: dict[str, Any] = {"clip": True, "interpolate": "step-after"}
    scale = alt.Scale(domain=[0, 1.05 * highest], nice=False)
    tokens = alt.Y("value:Q", title=results.tokens_per_s, scale=scale, axis=alt.Axis(tickCount=4))
    colour = curve_colour(results).legend(None)
    panels = [_lines(here, {"throughput": alt.MarkDef("line", clip=True)}, tokens, 120).encode(color=colour)]
    if known & {*_COUNTS}:
        lines = {name: alt.MarkDef("line", **look, **step) for name, look in _COUNTS.items()}
        said = ["requests", "(dashed: waiting)"]
        panels.append(_lines(here, lines, alt.Y("value:Q", title=said, axis=alt.Axis(tickCount=3)), 80))
    if "kv_usage" in known:
        axis, scale = alt.Axis(format="%", values=[0, 0.5, 1]), alt.Scale(domain=[0, 1.02])
        area = alt.MarkDef("area", color=NEUTRAL, opacity=0.6, **step)
        panels.append(_lines(here, {"kv_usage": area}, alt.Y("value:Q", title="KV cache", axis=axis, scale=scale), 60))
    scale = alt.Scale(domain=[0, run["duration_s"] or 1.0], nice=False)
    time = alt.X("elapsed_s:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, labels=False))
    last = time.title("time since the run's start (s)").axis(tickCount=5)
    panels = [panel.encode(x=last if panel is panels[-1] else time) for panel in panels]
    title = f"{run['curve']} at {run['level']:g}{AXES[run['axis']].beside}" + ("" if run["valid"] else " (invalid run)")
    chart: alt.VConcatChart = alt.vconcat(*panels, spacing=6, title=alt.TitleParams(title, fontSize=15, anchor="start"))
    return chart


def _lines(rows: pl.DataFrame, marks: Mapping[str, alt.MarkDef], y: alt.Y, height: int) -> alt.LayerChart:
    """Series of a run. Args: marks: by series."""
    time = alt.Tooltip("elapsed_s:Q", title="time (s)", format=".2f")
    shown = rows.select("curve", "series", "elapsed_s", "value")
    charts = [alt.Chart(shown.filter(series=name), mark=mark) for name, mark in marks.items()]
    layers = [chart.encode(y=y, tooltip=[alt.Tooltip("series:N"), *tips(".3g", "value"), time]) for chart in charts]
    return alt.LayerChart(layer=layers, width=_WIDTH, height=height)

"""Latency against the length of prompts and answers."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.analysis.lengths import SWEPT, Kind, length_costs, swept
from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import HEIGHT, nothing_to_show, points, series_colour, series_shape
from bench.words.lengths import cost

_PANELS: tuple[tuple[Kind, str, str], ...] = (
    ("prompt", "milliseconds", "TTFT, median (ms)"),
    ("output", "milliseconds", "E2E latency, median (ms)"),
    ("output", "speed", "decode speed of a request (tokens/s)"),
)


def _finding(results: Tables) -> str | None:
    costs = length_costs(results.runs)
    return cost(costs[0]).removesuffix(".") if len(costs) == 1 and costs[0].slope is not None else None


@figure(
    "latency-by-length",
    title="Latency against prompt and output length",
    question="What does a token of a prompt or an answer cost, and does an answer come more slowly as it grows?",
    reading="A point a run, and the least-squares line: its slope is what a token costs in the mean, and points that leave it show "
    "that latency bends, as attention grows with the square of the length. Decode speed is 1 / TPOT: where it falls with length, each "
    "step reads a KV cache that grows.",
    by_axis=False,
    finding=_finding,
    shown=lambda results: pl.concat([swept(results.runs, kind) for kind in SWEPT]),
)
def latency_by_length(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Median TTFT over prompt length, median E2E latency and decode speed over output length: a point a run, a line a series.

    Args:
        results: `runs` with `prompt_fixed`, `output_fixed` (tokens), `ttft_p50_s`, `e2e_p50_s`, `tpot_p50_s` (s), `family` and `valid`.
    """
    panels = []
    for kind, column, title in _PANELS:
        x, _, latency = SWEPT[kind]
        runs = swept(results.runs, kind).with_columns(
            series=pl.format("{} · {}, at {}", "deployment", "family", "level"),
            milliseconds=1000 * pl.col(latency),
            speed=1 / pl.col("tpot_p50_s"),
        )
        if (rows := runs.drop_nulls(column)).height:
            panels.append(_panel(results, rows, x, column, title))
    if not panels:
        return nothing_to_show("no run with such lengths")
    chart: alt.ConcatChart = alt.concat(*panels).resolve_scale(color="independent", shape="independent")
    return chart


def _panel(results: Tables, rows: pl.DataFrame, x: str, column: str, title: str) -> alt.LayerChart:
    below = alt.Legend(orient="bottom", columns=1, labelLimit=800) if rows["series"].n_unique() > 1 else None
    colour, shape = series_colour(results, rows, legend=below), series_shape(rows, legend=below)
    across = alt.X(f"{x}:Q", title=f"{x.partition('_')[0]} length (tokens)")
    up = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=True))
    base = alt.Chart(rows.select("deployment", "series", "valid", "run", x, column))
    fit = base.transform_filter("datum.valid").transform_regression(x, column, groupby=["series"])
    lines = fit.mark_line(strokeDash=[5, 4]).encode(x=across, y=up, color=colour)
    dots = points(base, up, across, colour, shape=shape, tooltip=["run:N", alt.Tooltip(column, format=".4g")])
    return alt.LayerChart(layer=[lines, dots], width=360, height=HEIGHT)

"""Each curve's throughput over load, and its regions: spare capacity, shared capacity, overload."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from bench.analysis import repeats
from bench.analysis.level_values import level_value
from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import (
    curve_colour,
    curve_column,
    curve_dash,
    is_log,
    level_axis,
    level_lines,
    panels_a_row,
    points,
    predicted_rules,
    saturation_finding,
    whole_note,
    with_curve,
    with_whole,
)
from bench.words.regions import Name, turning_point

_COLUMN = "throughput_tokens_per_s"
_HEIGHT = 230
_TINTS = {"A": "#dcebf7", "B": "#fdf0cd", "C": "#f6d8ca", "flat": "#e6e6e6"}  # pale, for lines on them
_POINTS: dict[str, Name] = {"A|B": "equilibrium", "B|C": "saturation"}
_MARKS = (
    "Ground: A spare capacity, B shared, C overload. Diamonds: where A ends and where C begins. Dashed: predicted KV saturation. "
    "Triangle: the KV cache is full from there on; circle: requests wait from there on."
)


@figure(
    "performance-profile",
    title="Performance profile: spare, shared, overloaded",
    question="How much load does each deployment take before it stops scaling, and before it saturates?",
    reading="Output tokens/s (of the steady window, or of a whole burst), a panel a curve. A, spare capacity: each request keeps "
    "80 % or more of the throughput that one has at the lowest level. B, shared: more load still buys more tokens. C, overload: "
    "it costs some (or flat: it buys none). Diamonds: the equilibrium point A|B and the saturation point B|C, with their 95 % "
    "interval; blank ground is where nothing is significant, and the words say why. Upright bars: the 95 % interval of the mean "
    "of a level's repeats.",
    finding=saturation_finding,
    note=lambda results: f"{_MARKS} {whole_note(results)}".strip(),
    columns=lambda _: {_COLUMN: "throughput"},
)
def performance_profile(results: Tables) -> alt.ConcatChart:
    """Throughput over load for each curve, over its regions, with both points, the predicted saturation, and KV cache and queue.

    Args:
        results: `runs` with `level`, `throughput_tokens_per_s`, `predicted_saturation` and `valid`; `saturation`.
    """
    runs = with_whole(results, with_curve(results, results.runs))
    known = {row["curve"]: row for row in with_curve(results, results.saturation).iter_rows(named=True)}
    curves = curve_column(results)
    words = [_words(known.get(curve)) for curve in curves]
    most = max(map(len, words))  # panels begin at one height
    panels = [
        _panel(results, runs.filter(pl.col("curve") == curve), known.get(curve), [*lines, *[""] * (most - len(lines))])
        for curve, lines in zip(curves, words, strict=True)
    ]
    chart: alt.ConcatChart = alt.concat(*panels, columns=panels_a_row(len(panels), most=3)).resolve_scale(x="shared")
    return chart


def _words(row: Mapping[str, Any] | None) -> list[str]:
    texts = (f"{point}: {turning_point(row, name) if row else 'no valid run'}" for point, name in _POINTS.items())
    return [line for text in texts for line in textwrap.wrap(text, 58, subsequent_indent="      ")]


def _panel(results: Tables, runs: pl.DataFrame, row: Mapping[str, Any] | None, words: list[str]) -> alt.LayerChart:
    """Args: runs: of one curve. row: its row of `saturation`; None where no run is valid."""
    valid = runs.filter("valid")
    line = valid.group_by("level").agg(level_value(_COLUMN)).drop_nulls().sort("level")
    loads, log = line["level"].to_list(), is_log(results)
    bands = region_bands(row, loads[0], loads[-1]) if row and loads else []
    turns = [_turn(row, name, loads, line[_COLUMN].to_list(), log=log) for name in _POINTS.values()] if row and loads else []
    x, colour = level_axis(results), curve_colour(results).legend(None)
    y = alt.Y(f"{_COLUMN}:Q", title=results.tokens_per_s, scale=alt.Scale(domainMin=0))
    ground = alt.Chart(pl.DataFrame(bands, schema={"region": pl.String, "begin": pl.Float64, "end": pl.Float64}, orient="row"))
    ground = ground.transform_calculate(middle="sqrt(datum.begin * datum.end)" if log else "(datum.begin + datum.end) / 2")
    schema = {"curve": pl.String, "point": pl.String, "level": pl.Float64, "low": pl.Float64, "high": pl.Float64,
              "text": pl.String, _COLUMN: pl.Float64}  # fmt: skip
    points_of = [
        {"curve": runs["curve"][0], "point": point, **turn} for point, turn in zip(_POINTS, turns, strict=False) if turn
    ]
    diamonds = alt.Chart(pl.DataFrame(points_of, schema=schema))
    tint = alt.Color("region:N", legend=None, scale=alt.Scale(domain=list(_TINTS), range=list(_TINTS.values())))
    spread = repeats(valid, _COLUMN).filter(pl.col("n") > 1)
    shown = runs.select("curve", "level", _COLUMN, "valid", "whole", "run")
    signs = (("measured", "triangle-up", 7, "KV cache full from"), ("queue", "circle", 20, "requests wait from"))
    layers: alt.LayerChart = alt.layer(
        ground.mark_rect().encode(x=level_axis(results, "begin"), x2=alt.X2("end:Q"), color=tint),
        ground.mark_text(baseline="top", dy=5, fontSize=14, fontWeight="bold", color="#555555").encode(
            x=level_axis(results, "middle"), y=alt.value(0), text=alt.Text("region:N")
        ),
        predicted_rules(runs, x, colour),
        level_lines(runs, _COLUMN, x, y, colour, curve_dash(results)),
        alt.Chart(spread).mark_rule(clip=True).encode(x=x, y=alt.Y("low:Q", title=results.tokens_per_s), y2=alt.Y2("high:Q")),
        points(alt.Chart(shown), y, x, colour, tooltip=["run:N", "level:Q", alt.Tooltip(f"{_COLUMN}:Q", format=".0f")]),
        diamonds.mark_rule(strokeWidth=6, opacity=0.35, strokeCap="round").encode(
            x=level_axis(results, "low"), x2=alt.X2("high:Q"), y=y
        ),
        diamonds.mark_point(shape="diamond", fill="white", color="black", size=130, strokeWidth=2, opacity=1).encode(
            x=x, y=y, tooltip=["curve:N", "point:N", alt.Tooltip("text:N", title="load")]
        ),
        *(
            alt.Chart(pl.DataFrame({name: [row[name]] if row and row[name] is not None else []}, schema={name: pl.Float64}))
            .mark_point(shape=shape, filled=True, color="black", size=80, opacity=1)
            .encode(x=level_axis(results, name), y=alt.value(_HEIGHT - up), tooltip=[alt.Tooltip(name, title=title)])
            for name, shape, up, title in signs
        ),
    ).resolve_scale(color="independent")
    title = alt.TitleParams(runs["curve"][0], subtitle=words, fontSize=15, subtitleFontSize=13, anchor="start", offset=6)
    return layers.properties(width=300, height=_HEIGHT, title=title)


def region_bands(row: Mapping[str, Any], lowest: float, highest: float) -> list[tuple[str, float, float]]:
    """The regions of a curve from its lowest to its highest level: name, begin and end (load).

    A reaches to the equilibrium point or, without one, as far as growth is significantly proportional; B from there to the saturation
    point or, without one, as far as more load buys significantly more; C on from there, or `flat` where nothing falls. A stretch
    without significance belongs to none.

    Args:
        row: of `bench.analysis.saturation`.
    """
    first, top = row["equilibrium_at"], row["saturation_at"]
    end_a = first or row["equilibrium_low"] or lowest
    bands = [("A", lowest, min(end_a, top or end_a))]
    if first or row["equilibrium_kind"] == "below":
        bands.append(("B", first or lowest, top or row["saturation_low"] or lowest))
    if top or row["saturation_kind"] == "below":
        bands.append(("flat" if row["saturation_kind"] == "flat" else "C", top or row["saturation_high"], highest))
    return [band for band in bands if band[2] > band[1]]


def _turn(row: Mapping[str, Any], name: Name, loads: list[float], heights: list[float], *, log: bool) -> dict[str, Any] | None:
    """A point on the curve's line, as it is drawn; None without one. An interval's open side ends where the levels do."""
    at, low, high = (row[f"{name}_{key}"] for key in ("at", "low", "high"))
    if at is None:
        return None
    height = np.interp(math.log(at), np.log(loads), heights) if log else np.interp(at, loads, heights)
    return {
        "level": at,
        "low": low or loads[0],
        "high": high or loads[-1],
        "text": turning_point(row, name),
        _COLUMN: float(height),
    }

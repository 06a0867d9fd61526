"""The regions A, B and C of throughput curves and their turning points, as figures draw them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from bench.analysis.level_values import level_value
from bench.figures.results import Results
from bench.figures.theme import is_log, level_axis, with_curve
from bench.words.regions import Name, turning_point

# Pale, for lines on them; the letters say the same where the tints look alike.
_TINTS = {"A": "#dcebf7", "B": "#fdf0cd", "C": "#f6d8ca", "flat": "#e6e6e6"}
_BANDS = {"curve": pl.String, "begin": pl.Float64, "end": pl.Float64, "middle": pl.Float64, "region": pl.String}
_POINT_OF: dict[str, Name] = {"A|B": "equilibrium", "B|C": "saturation"}


def region_colour() -> alt.Color:
    """A tint for each region; no legend, since each band has its letter."""
    return alt.Color("region:N", legend=None, scale=alt.Scale(domain=list(_TINTS), range=list(_TINTS.values())))


def region_bands(results: Results, found: pl.DataFrame, *, log: bool | None = None) -> pl.DataFrame:
    """The regions of each curve from its lowest to its highest level: `curve`, `begin`, `end`, `middle` (load), `region`.

    A reaches to the equilibrium point or, without one, as far as growth is significantly proportional; B from there to the saturation
    point or, without one, as far as more load buys significantly more; C on from there, or `flat` where nothing falls. A stretch
    without significance belongs to none.

    Args:
        found: rows of `bench.analysis.regions`. log: as `level_axis` takes it.
    """
    log = is_log(results) if log is None else log
    rows = [
        (row["curve"], begin, end, math.sqrt(begin * end) if log else (begin + end) / 2, region)
        for row in _with_ends(results, found).iter_rows(named=True)
        for region, begin, end in _bands(row)
        if end > begin
    ]
    return pl.DataFrame(rows, schema=_BANDS, orient="row")


def _bands(row: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    lowest, highest = row["lowest"], row["highest"]
    first, top = row["equilibrium_at"], row["saturation_at"]
    end_a = first or row["equilibrium_low"] or lowest
    bands = [("A", lowest, min(end_a, top or end_a))]
    if first or row["equilibrium_kind"] == "below":
        bands.append(("B", first or lowest, top or row["saturation_low"] or lowest))
    if top or row["saturation_kind"] == "below":
        bands.append(("flat" if row["saturation_kind"] == "flat" else "C", top or row["saturation_high"], highest))
    return bands


def turning_points(results: Results, found: pl.DataFrame, column: str, *, log: bool | None = None) -> pl.DataFrame:
    """The points of each curve that has them: `curve`, `point`, `level`, `low`, `high`, `text`, and `column` where its line is there.

    An interval's open side ends where the levels do.

    Args:
        found: rows of `bench.analysis.regions` for the throughput `column`. log: as `level_axis` takes it.
    """
    log = is_log(results) if log is None else log
    rows = []
    for row in _with_ends(results, found).iter_rows(named=True):
        runs = results.runs.filter(
            (pl.col("deployment") == row["deployment"]) & (pl.col("workload") == row["workload"]) & pl.col("valid")
        )
        line = runs.group_by("level").agg(level_value(column)).drop_nulls().sort("level")
        for point, name in _POINT_OF.items():
            at, low, high = (row[f"{name}_{key}"] for key in ("at", "low", "high"))
            if at is not None:
                ends = (row["lowest"] if low is None else low, row["highest"] if high is None else high)
                height = _height(line["level"].to_list(), line[column].to_list(), at, log=log)
                rows.append((row["curve"], point, at, *ends, turning_point(row, name), height))
    schema = {"curve": pl.String, "point": pl.String, "level": pl.Float64, "low": pl.Float64,
              "high": pl.Float64, "text": pl.String, column: pl.Float64}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def _with_ends(results: Results, found: pl.DataFrame) -> pl.DataFrame:
    """With each curve's name and its `lowest` and `highest` level that has a valid run; without curves that have none."""
    valid = results.runs.filter("valid").group_by("deployment", "workload")
    ends = valid.agg(lowest=pl.col("level").min(), highest=pl.col("level").max())
    return with_curve(results, found).join(ends, on=["deployment", "workload"], maintain_order="left")


def _height(levels: list[float], heights: list[float], at: float, *, log: bool) -> float:
    """Where the line through the levels, as it is drawn, stands at a load."""
    if log:
        levels, at = [math.log(level) for level in levels], math.log(at)
    return float(np.interp(at, levels, heights))


def point_layers(
    results: Results, points: pl.DataFrame, y: alt.Y, colour: alt.Color | alt.ColorValue, *, log: bool | None = None
) -> list[alt.Chart]:
    """Each point as a diamond on its curve, with a bar along the load for its interval.

    Args:
        points: rows of `turning_points`. y: of their throughput. log: as `level_axis` takes it.
    """
    base = alt.Chart(points)
    tooltip = ["curve:N", "point:N", alt.Tooltip("text:N", title="load")]
    return [
        base.mark_rule(strokeWidth=6, opacity=0.35, strokeCap="round").encode(
            x=level_axis(results, "low", log=log), x2=alt.X2("high:Q"), y=y, color=colour
        ),
        base.mark_point(shape="diamond", fill="white", size=130, strokeWidth=2, opacity=1).encode(
            x=level_axis(results, log=log), y=y, color=colour, tooltip=tooltip
        ),
    ]

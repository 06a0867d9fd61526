"""Latency against throughput."""

from __future__ import annotations

import math
from dataclasses import replace

import altair as alt
import polars as pl

from bench.analysis.level_values import level_values
from bench.analysis.windows import in_windows
from bench.figures.labels import NARROW, free_places, label_layer, with_places
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import curve_colour, curve_dash, curve_shape, nothing_to_show, whole_note, with_curve, with_whole
from bench.figures.ticks import log_ticks, ticked
from bench.runs.latencies import LATENCIES, PERCENTILES
from bench.study.slo import Slo
from bench.words.charts import WINDOWS, load_label, numbers_note, sustained_title

_X = "throughput_tokens_per_s"
_SHOWN = ("p50", "p95", "p99")  # of TTFT, or E2E where answers come whole
_WIDTH, _HEIGHT = 430, 260
_POINT, _RING = 5.0, 10.0  # half of their width (pixels)
_FARTHEST = 10.0  # times the highest latency: a limit beyond would leave the frame half empty, and is not drawn


def _note(results: Results) -> str:
    ring = "Black ring: C_max, the highest level within the SLOs." if results.points["c_max"].is_not_null().any() else ""
    axes = results.runs["axis"].unique()
    numbers = numbers_note(axes[0]) if len(axes) == 1 else ""
    windows = WINDOWS if in_windows(results.runs) else ""
    return " ".join(filter(None, (windows, numbers, ring, whole_note(results))))


@figure(
    "latency-throughput",
    title="Latency against throughput",
    question="How much throughput does each deployment give, and how long do users wait for it?",
    reading="Each point is a level of load, labelled where there is room; lines join a curve's levels in the order of load. "
    "Each percentile is that of all requests of a level's valid runs together, tokens/s their mean. Where a curve turns upwards "
    "more load buys waiting, and where it turns back it costs throughput. Dashed: an SLO's limit. Latencies are "
    "on logarithmic scales, one for all of TTFT's panels.",
    by_axis=False,
    finding=lambda results: sustained_title(results.points),
    note=_note,
)
def latency_throughput(results: Results) -> alt.ConcatChart | alt.LayerChart:
    """TTFT's percentiles and TPOT over output tokens/s, E2E's where answers come whole: a point a level, a line a curve.

    Args:
        results: `runs` with `level`, `throughput_tokens_per_s`, the latencies' percentiles (s) and `valid`; `points`.
    """
    of_loads = replace(results, runs=results.runs if results.plain.is_empty() else results.plain, whole=results.study)
    runs = with_whole(of_loads, with_curve(of_loads, of_loads.runs)).drop_nulls(_X)
    limits = {slo.column: slo for slo in results.decision.slos if slo.request_class is None}
    tpot = next((name for name in limits if name.startswith("tpot")), "tpot_p95_s")
    ttft = sorted({*(f"ttft_{each}_s" for each in _SHOWN), *(name for name in limits if name.startswith("ttft"))})
    shown = [column for column in (*ttft, tpot) if runs[column].is_not_null().any()]
    streams = runs.group_by("curve").agg(pl.any_horizontal(pl.col(shown).is_not_null().any())) if shown else None
    if streams is None or not streams[:, 1].all():  # answers of some curve come whole
        few = ("p95",) if shown else _SHOWN
        whole = {*(f"e2e_{each}_s" for each in few), *(name for name in limits if name.startswith("e2e"))}
        shown += [column for column in sorted(whole) if runs[column].is_not_null().any()]
    if not shown:
        return nothing_to_show("no run has both a throughput and a latency")
    valid, invalid = _levels(of_loads, runs.filter("valid")), _invalid(runs.filter(~pl.col("valid")))
    rows = pl.concat([valid, invalid], how="diagonal_relaxed")
    panels = []
    for column in shown:
        alike = [each for each in shown if each.startswith(column.split("_")[0])]
        values = [value for each in alike for value in runs[each].drop_nulls()]
        values += [limits[each].limit_s for each in alike if each in limits and limits[each].limit_s < _FARTHEST * max(values)]
        ends = 0.8 * min(values), 1.3 * max(values)
        panels.append(_panel(of_loads, rows, column, ends, limits.get(column)))
    return alt.concat(*panels, columns=3 if len(panels) % 2 else 2)  # no panel alone in a row


def _levels(results: Results, runs: pl.DataFrame) -> pl.DataFrame:
    """A row a level of each curve: `curve`, `workload`, `level`, `mark`, `label`, `rank`, and the values of its valid `runs`."""
    curve = ["deployment", "workload"]
    latencies = [f"{name}_{each}_s" for name in LATENCIES for each in PERCENTILES]
    whole = runs.group_by("curve", *curve, "axis", "level", maintain_order=True).agg(pl.col("whole").any())
    levels = (
        whole.join(level_values(runs, [_X, *latencies]), on=[*curve, "axis", "level"], how="left", maintain_order="left")
        .with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in latencies)
        .join(results.points.select(*curve, "c_max"), on=curve, how="left", maintain_order="left")
    )
    at = pl.col("level")
    mark = pl.when(at == pl.col("c_max")).then(pl.lit("C_max"))
    ends = (at == at.min().over("curve")) | (at == at.max().over("curve"))
    label = [load_label(level, axis) for level, axis in levels.select("level", "axis").iter_rows()]
    return levels.with_columns(mark=mark, label=pl.Series(label, dtype=pl.String)).with_columns(
        rank=pl.when(pl.col("mark").is_not_null()).then(0).when(ends).then(1).otherwise(2),
    )


def _invalid(runs: pl.DataFrame) -> pl.DataFrame:
    """A row each invalid run, with the columns of `_levels` and `run`; labels of levels come before its own."""
    label = [load_label(level, axis) for level, axis in runs.select("level", "axis").iter_rows()]
    return runs.select(
        *("curve", "deployment", "workload", "axis", "level", "run", "whole", _X),
        *(f"{name}_{each}_s" for name in LATENCIES for each in PERCENTILES),
        label=pl.Series(label, dtype=pl.String),
        rank=pl.lit(3, dtype=pl.Int32),
    )


def _panel(results: Results, rows: pl.DataFrame, column: str, ends: tuple[float, float], slo: Slo | None) -> alt.LayerChart:
    """Args: rows: of `_levels` and `_invalid`. ends: of the percentile's axis (s)."""
    low, high = ends
    metric, percentile = column.split("_")[:2]
    title = f"{LATENCIES[metric].title} {percentile.upper()}"
    most = 1.06 * max(rows[_X])
    here = _labelled(rows.drop_nulls(column).sort("rank", "curve", "level"), column, ends, most)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    along, up = alt.Scale(domain=[0, most], nice=False), f"{title} (s, log)"
    x = alt.X(f"{_X}:Q", title=results.tokens_per_s, scale=along)
    y = alt.Y(f"{column}:Q", title=up, scale=scale, axis=ticked(log_ticks(low, high), low, high, format="~g"))
    colour = curve_colour(results)
    tooltip = ["curve:N", alt.Tooltip("label:N", title="load"), alt.Tooltip(f"{_X}:Q", format=".0f"),
               alt.Tooltip(f"{column}:Q", title=title, format=".3g")]  # fmt: skip
    columns = ("curve", "workload", "level", "run", "mark", "label", "whole", _X, column, "dx", "dy", "align")
    both = alt.Chart(here.select(*columns))
    base, invalid = both.transform_filter("!isValid(datum.run)"), both.transform_filter("isValid(datum.run)")
    layers = [
        base.mark_line().encode(x=x, y=y, color=colour, strokeDash=curve_dash(results), order="level:Q"),
        base.transform_filter("isValid(datum.mark)")
        .mark_point(shape="circle", size=240, strokeWidth=2.5, opacity=1, color="black")
        .encode(x=x, y=y),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, color=colour, shape=curve_shape(results), tooltip=tooltip
        ),
        base.transform_filter("datum.whole").mark_point(filled=True, size=14, color="white", opacity=1).encode(x=x, y=y),
        label_layer(both, x, y, bold="isValid(datum.mark)"),
        invalid.mark_point(shape="cross", angle=45, size=70, strokeWidth=1.5, opacity=1).encode(
            x=x, y=y, color=colour, tooltip=["run:N", *tooltip[2:]]
        ),
    ]
    heading = f"{slo}, far above" if slo else title
    if slo is not None and slo.limit_s < high:
        heading = f"{slo}, dashed"
        limit = alt.Chart(pl.DataFrame({"limit": [slo.limit_s]}))
        layers.insert(0, limit.mark_rule(strokeDash=[5, 4], color="black").encode(y=alt.Y("limit:Q", title=up, scale=scale)))
    return alt.LayerChart(
        layer=layers, width=_WIDTH, height=_HEIGHT, title=alt.TitleParams(heading, fontSize=16, anchor="start")
    )


def _labelled(rows: pl.DataFrame, column: str, ends: tuple[float, float], most: float) -> pl.DataFrame:
    """The rows with the places of their labels. Args: rows: in the order in which they get one. ends, most: of the axes."""
    low, high = map(math.log, ends)
    points = [
        (NARROW * x / most, _HEIGHT * (high - math.log(y)) / (high - low)) for x, y in rows.select(_X, column).iter_rows()
    ]
    half = [_RING if mark else _POINT for mark in rows["mark"]]
    return with_places(rows, free_places(points, rows["label"].to_list(), half, (NARROW, _HEIGHT)))

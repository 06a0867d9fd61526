"""What another value of a setting brings; of the number of devices among them."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.analysis.compare import log_ratios
from bench.analysis.effects import sweep
from bench.analysis.level_values import level_value
from bench.analysis.setting_curve import setting_curves
from bench.analysis.setting_gain import Pair, devices_of, setting_pairs
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.setting_forms import form_panels
from bench.figures.theme import (
    HEIGHT,
    NEUTRAL,
    level_axis,
    nothing_to_show,
    points,
    series_colour,
    series_shape,
    whole_note,
    with_whole,
)
from bench.study.questions import several_settings
from bench.study.settings import setting_name, value_text
from bench.words.charts import pairs_note

_SHORT = {"tensor_parallel": "TP", "pipeline_parallel": "PP", "data_parallel": "DP"}
_COLUMNS = ["deployment", "run", "series", "level", "throughput_tokens_per_s", "kv_usage_peak", "valid", "whole"]


def _note(results: Results) -> str:
    left_out = sum(pairs for _, _, pairs in _settings(results))
    return " ".join(filter(None, [pairs_note(left_out), whole_note(results)]))


@figure(
    "settings",
    applies=several_settings,
    order=110,
    title="What a setting changes",
    question="What does another value of a setting bring in throughput and KV cache, and does the gain hold as load rises?",
    reading="A row a setting. Left: output tokens/s. Middle: throughput over that with the first value, by pairs of valid runs; of n "
    "devices it is the efficiency, the throughput over n times that of the fewest: at 100 % (dashed) another device would buy all "
    "of itself, and above it the first device is short of memory, not of speed. Right: each run's throughput against the fullest "
    "that its KV cache was, joined in the order of load. A level at which fewer than two values have a valid run is left out. "
    "Below, of a number with three values or more: throughput over it at some loads, bars 95 % intervals, without what a session "
    "has in common for all values. Lines are forms that the runs do not reject: a power law, and a part of the time per token that "
    "is fixed beside one that the setting divides. Two: not decided.",
    invalid="Crosses, or left out with their counterparts",
    note=_note,
)
def settings(results: Results) -> alt.TopLevelMixin:
    """Throughput and its ratio to the first value's over load, and throughput over KV-cache usage: a row a setting, a colour a value.

    Args:
        results: `runs` with settings, `model`, `level`, `throughput_tokens_per_s`, `kv_usage_peak` (0–1) and `valid`.
    """
    rows: list[alt.HConcatChart] = [
        _row(results, setting, runs) for setting, runs, _ in _settings(results) if not runs.is_empty()
    ]
    rows += [
        panels for curve in setting_curves(results.runs) if (panels := form_panels(curve, results.tokens_per_s)) is not None
    ]
    if not rows:
        return nothing_to_show("no model has valid runs of one load with different values of a setting")
    if len(rows) == 1:
        return rows[0]
    whole: alt.VConcatChart = alt.vconcat(*rows).resolve_scale(color="independent", shape="independent")
    return whole


def _row(results: Results, setting: str, runs: pl.DataFrame) -> alt.HConcatChart:
    runs = with_whole(results, runs)
    more = runs["times"].max() != 1
    title = "devices" if more else "deployment" if runs["mode"].any() else setting_name(setting)
    colour, shape = series_colour(results, runs, title=title), series_shape(runs, title=title)
    x = level_axis(results)
    highest = max(runs["throughput_tokens_per_s"].drop_nulls(), default=1.0)
    y = alt.Y("throughput_tokens_per_s:Q", title=results.tokens_per_s, scale=alt.Scale(domain=[0, 1.05 * highest]))
    every = alt.Chart(runs.select(_COLUMNS))
    tooltip = [
        "run:N",
        "level:Q",
        alt.Tooltip("throughput_tokens_per_s:Q", format=".0f"),
        alt.Tooltip("kv_usage_peak:Q", format=".1%"),
    ]
    left = alt.layer(
        alt.Chart(_levels(runs, "throughput_tokens_per_s")).mark_line().encode(x=x, y=y, color=colour),
        points(every, y, x, colour, shape=shape, tooltip=tooltip),
    )
    gain = alt.Chart(_ratios(runs))
    firsts = runs.filter("first")["series"].unique().to_list()
    named = "efficiency" if more else f"throughput ÷ that of {firsts[0] if len(firsts) == 1 else 'the first'}"
    share = alt.Y("ratio:Q", title=named, axis=alt.Axis(format="%"), scale=alt.Scale(domainMin=0))
    middle = alt.layer(
        alt.Chart(pl.DataFrame({"whole": [1.0]})).mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(y=alt.Y("whole:Q")),
        gain.mark_line().encode(x=x, y=share, color=colour),
        gain.mark_point(filled=True, size=45, opacity=1).encode(
            x=x,
            y=share,
            color=colour,
            shape=shape,
            tooltip=["series:N", "level:Q", alt.Tooltip("ratio:Q", format=".0%")],
        ),
    )
    usage = alt.X(
        "kv_usage_peak:Q",
        title="peak KV-cache usage",
        axis=alt.Axis(format="%", tickCount=5),
        scale=alt.Scale(domain=[0, 1.02]),
    )
    course = alt.Chart(_levels(runs.drop_nulls("kv_usage_peak"), "throughput_tokens_per_s", "kv_usage_peak"))
    right = alt.layer(
        course.mark_line(strokeWidth=1).encode(x=usage, y=y, color=colour, order="level:Q"),
        points(every.transform_filter("datum.kv_usage_peak !== null"), y, usage, colour, shape=shape, tooltip=tooltip),
    )
    return alt.hconcat(*(panel.properties(width=300, height=HEIGHT) for panel in (left, middle, right)))


def _levels(runs: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The values of levels."""
    return (
        runs.filter("valid")
        .group_by("series", "curve", "level", maintain_order=True)
        .agg(pl.col("deployment", "first", "times").first(), *map(level_value, columns))
    )


def _settings(results: Results) -> list[tuple[str, pl.DataFrame, int]]:
    """Each setting with the runs that show what it changes, a series a value, and how many pairs are left out at some level.

    Of a level that was measured with several values, those stay that have a valid run, if there are two: beside an invalid run the
    other would seem to be compared.

    Returns:
        The runs with `curve` (the first deployment, with which the others are compared, and its workload), `series`, `first` (whether
        its value is the first one) and `times` (how many times as many devices as the first). Numbers of devices come first.
    """
    pairs = setting_pairs(results.runs)
    several = len({_curve(pair.first) for pair in pairs}) > 1
    found: dict[str, dict[tuple[str, str], pl.DataFrame]] = {}
    for pair in sorted(pairs, key=lambda each: devices_of(each.first) == devices_of(each.other)):
        sides = found.setdefault(pair.setting, {})
        for side in (pair.first, pair.other):
            sides.setdefault((_curve(pair.first), side["deployment"][0]), _side(pair, side, several))
    return [(setting, *_compared(pl.concat(sides.values()))) for setting, sides in found.items()]


def _curve(first: pl.DataFrame) -> str:
    return f"{first['deployment'][0]} · {first['workload'][0]}"


def _side(pair: Pair, side: pl.DataFrame, several: bool) -> pl.DataFrame:
    value, curve = side[pair.setting][0], _curve(pair.first)
    short = _SHORT.get(pair.setting)
    mode = bool(pair.beside) and not short  # several settings at once: the deployments are named
    name = f"{short}={value or 1}" if short else side["deployment"][0] if mode else value_text(pair.setting, value)
    return side.with_columns(
        curve=pl.lit(curve),
        series=pl.lit(f"{curve} · {name}" if several else name),
        first=pl.lit(side is pair.first),
        mode=pl.lit(mode),
        times=pl.lit(devices_of(side) / devices_of(pair.first)),
    )


def _compared(runs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    level = ("curve", "axis", "level")
    marked = runs.with_columns(
        measured=pl.col("series").n_unique().over(level),
        sides=pl.col("series").filter("valid").n_unique().over(level),
        known=pl.col("valid").any().over(*level, "series"),
    )
    left_out = marked.unique(level).select((pl.col("measured") - pl.col("sides").clip(1)).sum()).item()
    kept = marked.filter((pl.col("measured") == 1) | (pl.col("known") & (pl.col("sides") > 1)))
    return kept.drop("measured", "sides", "known"), int(left_out)


def _ratios(runs: pl.DataFrame) -> pl.DataFrame:
    """Throughput ÷ that with the first value, of n times as many devices ÷ n, at each level: `series`, `level`, `ratio`."""
    found = []
    for _, curve in runs.group_by("curve", maintain_order=True):
        for (series, times), other in curve.filter(~pl.col("first")).group_by("series", "times", maintain_order=True):
            compared = sweep(log_ratios(curve.filter("first"), other, ["throughput_tokens_per_s"]))
            found += [(series, load, compared.ratio([load], None).value / times) for load in compared.loads] if compared else []
    return pl.DataFrame(found, schema={"series": pl.String, "level": pl.Float64, "ratio": pl.Float64}, orient="row")

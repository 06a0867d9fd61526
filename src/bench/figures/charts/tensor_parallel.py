"""One device beside several."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    HEIGHT,
    NEUTRAL,
    deployment_colours,
    level_axis,
    nothing_to_show,
    points,
    shapes,
    whole_note,
    with_whole,
)
from bench.study.questions import several_device_counts
from bench.words.charts import efficiency_title, pairs_note


def _note(results: Results) -> str:
    notes = [pairs_note(_paired(results.runs)[1]), whole_note(results)]
    return " ".join(filter(None, notes))


def _finding(results: Results) -> str | None:
    """The range of efficiencies, where one model ran on two numbers of devices."""
    runs, _ = _paired(results.runs)
    found = _efficiency(_named(runs))
    if found["series"].n_unique() != 1 or runs["tensor_parallel"].min() != 1:
        return None
    return efficiency_title(found["series"][0], found["efficiency"].to_list())


@figure(
    "tensor-parallel",
    applies=several_device_counts,
    order=110,
    title="One device beside several",
    question="What does another device buy in throughput and in KV cache, and does the gain hold as load rises?",
    reading="Left: output tokens/s. Middle: efficiency, the throughput of n devices over n times that of the fewest, "
    "medians of a level's valid runs; at 100 % (dashed) another device would buy all of itself. Above it, the first device "
    "is short of memory, not of speed. Right: each run's throughput against the fullest that its KV cache was, joined in "
    "the order of load. A level at which fewer than two numbers of devices have a valid run is left out.",
    invalid="Crosses, or left out with their counterparts",
    finding=_finding,
    note=_note,
)
def tensor_parallel(results: Results) -> alt.HConcatChart | alt.LayerChart:
    """Throughput and its efficiency over load, and throughput over KV-cache usage, a colour a number of devices.

    Args:
        results: `runs` with `tensor_parallel`, `model`, `level`, `throughput_tokens_per_s`, `kv_usage_peak` (0–1) and `valid`.
    """
    runs, _ = _paired(results.runs)
    if runs.is_empty():
        return nothing_to_show("no model has valid runs of one load on different numbers of devices")
    runs = with_whole(results, _named(runs))
    order = runs.sort("model", "workload", "tensor_parallel")["series"].unique(maintain_order=True).to_list()
    of = dict(runs.select("series", "deployment").iter_rows())
    colours = [deployment_colours(results)[of[series]] for series in order]
    colour = alt.Color("series:N", title="devices", sort=order, scale=alt.Scale(domain=order, range=colours))
    shape = alt.Shape("series:N", title="devices", sort=order, scale=alt.Scale(domain=order, range=shapes(len(order))))
    x = level_axis(results)
    highest = max(runs["throughput_tokens_per_s"].drop_nulls(), default=1.0)
    y = alt.Y("throughput_tokens_per_s:Q", title=results.tokens_per_s, scale=alt.Scale(domain=[0, 1.05 * highest]))
    columns = ["deployment", "run", "series", "level", "throughput_tokens_per_s", "kv_usage_peak", "valid", "whole"]
    every = alt.Chart(runs.select(columns))
    tooltip = [
        alt.Tooltip("run:N"),
        alt.Tooltip("level:Q"),
        alt.Tooltip("throughput_tokens_per_s:Q", format=".0f"),
        alt.Tooltip("kv_usage_peak:Q", format=".1%"),
    ]
    medians = alt.Chart(
        runs.filter("valid")
        .group_by("series", "level", maintain_order=True)
        .agg(pl.col("deployment").first(), pl.col("throughput_tokens_per_s").median())
    )
    left = alt.layer(
        medians.mark_line().encode(x=x, y=y, color=colour), points(every, y, x, colour, shape=shape, tooltip=tooltip)
    )
    gain = alt.Chart(_efficiency(runs))
    share = alt.Y("efficiency:Q", title="efficiency", axis=alt.Axis(format="%"), scale=alt.Scale(domainMin=0))
    middle = alt.layer(
        alt.Chart(pl.DataFrame({"whole": [1.0]})).mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(y=alt.Y("whole:Q")),
        gain.mark_line().encode(x=x, y=share, color=colour),
        gain.mark_point(filled=True, size=45, opacity=1).encode(
            x=x,
            y=share,
            color=colour,
            shape=shape,
            tooltip=[alt.Tooltip("series:N"), alt.Tooltip("level:Q"), alt.Tooltip("efficiency:Q", format=".0%")],
        ),
    )
    usage = alt.X(
        "kv_usage_peak:Q",
        title="peak KV-cache usage",
        axis=alt.Axis(format="%", tickCount=5),
        scale=alt.Scale(domain=[0, 1.02]),
    )
    course = alt.Chart(
        runs.filter("valid")
        .drop_nulls("kv_usage_peak")
        .group_by("series", "level", maintain_order=True)
        .agg(pl.col("deployment").first(), pl.col("throughput_tokens_per_s", "kv_usage_peak").median())
    )
    right = alt.layer(
        course.mark_line(strokeWidth=1).encode(x=usage, y=y, color=colour, order="level:Q"),
        points(every.transform_filter("datum.kv_usage_peak !== null"), y, usage, colour, shape=shape, tooltip=tooltip),
    )
    return alt.hconcat(*(panel.properties(width=300, height=HEIGHT) for panel in (left, middle, right)))


def _named(runs: pl.DataFrame) -> pl.DataFrame:
    """Add `series`: the number of devices, with model and workload where there are several."""
    several = runs.select("model", "workload").unique().height > 1
    parts = [pl.format("TP={}", "tensor_parallel")]
    if several:
        parts = [pl.format("{} · {} ·", "model", "workload"), *parts]
    return runs.with_columns(series=pl.concat_str(parts, separator=" "))


def _paired(runs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The runs of models on different numbers of devices, and how many pairs of these are left out at some level.

    Of a level that was measured on several numbers of devices, those stay that have a valid run, if there are two: beside an invalid
    run the other would seem to be compared.
    """
    for other in ("pipeline_parallel", "data_parallel"):  # more devices that share no layer are another question
        runs = runs.filter(pl.col(other).fill_null(1) == 1)
    alike, devices = ("model", "engine", "workload"), pl.col("tensor_parallel")
    level = (*alike, "axis", "level")
    runs = runs.filter(devices.n_unique().over(alike) > 1).with_columns(
        measured=devices.n_unique().over(level),
        sides=devices.filter("valid").n_unique().over(level),
        known=pl.col("valid").any().over(*level, devices),
    )
    pairs = runs.unique(level).select((pl.col("measured") - pl.col("sides").clip(1)).sum()).item()
    kept = runs.filter((pl.col("measured") == 1) | (pl.col("known") & (pl.col("sides") > 1)))
    return kept.drop("measured", "sides", "known"), int(pairs)


def _efficiency(runs: pl.DataFrame) -> pl.DataFrame:
    """Throughput of n devices over n ÷ m times that of the fewest, m, at each level: `deployment`, `series`, `level`, `efficiency`."""
    alike = ["model", "engine", "workload", "level"]
    levels = (
        runs.filter("valid")
        .group_by(*alike, "tensor_parallel", "series", maintain_order=True)
        .agg(pl.col("deployment").first(), pl.col("throughput_tokens_per_s").median())
        .drop_nulls()
    )
    fewest = levels.filter(pl.col("tensor_parallel") == pl.col("tensor_parallel").min().over("model", "engine", "workload"))
    return (
        levels.join(fewest.select(*alike, m="tensor_parallel", alone="throughput_tokens_per_s"), on=alike)
        .filter(pl.col("tensor_parallel") > pl.col("m"))
        .select(
            "deployment",
            "series",
            "level",
            efficiency=pl.col("throughput_tokens_per_s") / pl.col("alone") * pl.col("m") / pl.col("tensor_parallel"),
        )
    )

"""One device beside several."""

import altair as alt
import polars as pl

from bench.figures.conditions import several_device_counts
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import HEIGHT, PALETTE, level_axis, nothing_to_show, points


@figure(
    "tensor-parallel",
    applies=several_device_counts,
    order=110,
    title="One device beside several",
    question="What does another device buy in throughput and in KV cache, and does the gain hold as load rises?",
    reading="Left: output tokens/s. Middle: efficiency, the throughput of n devices over n times that of the fewest, "
    "medians of a level's valid runs; at 100 % (dashed) another device would buy all of itself. Above it, the first device "
    "is short of memory, not of speed. Right: each run's throughput against the fullest that its KV cache was, joined in "
    "the order of load.",
)
def tensor_parallel(results: Results) -> alt.HConcatChart | alt.LayerChart:
    """Throughput and its efficiency over load, and throughput over KV-cache usage, a colour a number of devices.

    Args:
        results: `runs` with `tensor_parallel`, `model`, `level`, `throughput_tokens_per_s`, `kv_usage_peak` (0–1) and `valid`.
    """
    runs = results.runs
    for other in ("pipeline_parallel", "data_parallel"):  # more devices that share no layer are another question
        runs = runs.filter(pl.col(other).fill_null(1) == 1)
    runs = runs.filter(pl.col("tensor_parallel").n_unique().over("model", "engine", "workload") > 1)
    if runs.is_empty():
        return nothing_to_show("no model ran on different numbers of devices")
    several = runs.select("model", "workload").unique().height > 1
    parts = [pl.format("TP={}", "tensor_parallel")]
    if several:
        parts = [pl.format("{} · {} ·", "model", "workload"), *parts]
    runs = runs.with_columns(series=pl.concat_str(parts, separator=" "))
    order = runs.sort("model", "workload", "tensor_parallel")["series"].unique(maintain_order=True).to_list()
    colours = [PALETTE[i % len(PALETTE)] for i in range(len(order))]
    colour = alt.Color("series:N", title="devices", sort=order, scale=alt.Scale(domain=order, range=colours))
    x = level_axis(results)
    highest = max(runs["throughput_tokens_per_s"].drop_nulls(), default=1.0)
    y = alt.Y("throughput_tokens_per_s:Q", title="output tokens/s", scale=alt.Scale(domain=[0, 1.05 * highest]))
    columns = ["deployment", "run", "series", "level", "throughput_tokens_per_s", "kv_usage_peak", "valid"]
    every = alt.Chart(runs.select(columns))
    told = [
        "run:N",
        "level:Q",
        alt.Tooltip("throughput_tokens_per_s:Q", format=".0f"),
        alt.Tooltip("kv_usage_peak:Q", format=".1%"),
    ]
    medians = alt.Chart(
        runs.filter("valid")
        .group_by("series", "level", maintain_order=True)
        .agg(pl.col("deployment").first(), pl.col("throughput_tokens_per_s").median())
    )
    left = alt.layer(medians.mark_line().encode(x=x, y=y, color=colour), points(every, y, x, colour, tooltip=told))
    gain = alt.Chart(_efficiency(runs))
    share = alt.Y("efficiency:Q", title="efficiency", axis=alt.Axis(format="%"), scale=alt.Scale(domainMin=0))
    middle = alt.layer(
        alt.Chart(pl.DataFrame({"whole": [1.0]})).mark_rule(strokeDash=[5, 4], color="#777777").encode(y="whole:Q"),
        gain.mark_line(point=True).encode(
            x=x, y=share, color=colour, tooltip=["series:N", "level:Q", alt.Tooltip("efficiency:Q", format=".0%")]
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
        points(every.transform_filter("datum.kv_usage_peak !== null"), y, usage, colour, tooltip=told),
    )
    return alt.hconcat(*(panel.properties(width=300, height=HEIGHT) for panel in (left, middle, right)))


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

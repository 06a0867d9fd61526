"""Throughput against load."""

import altair as alt
import polars as pl

from bench.analysis import repeats
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    HEIGHT,
    curve_colour,
    curve_size,
    level_axis,
    median_lines,
    points,
    predicted_rules,
    with_curve,
)

_PANELS = {
    "throughput_peak_tokens_per_s": "peak: best second of the run (its mean, where shorter)",
    "throughput_tokens_per_s": "mean: all tokens over the whole run",
}


@figure(
    "peak-throughput",
    title="Throughput against load",
    question="Where does more load stop buying more tokens, and where does it cost some?",
    reading="Left, the study's measure: the most output tokens in any second of a run. Right, the run's mean, which also pays for "
    "queueing, preemption and the last requests that run alone. Dashed: predicted KV saturation. Bars, where a level has two valid "
    "repeats or more: the 95 % interval of their mean (Student's t: wide for two); one that leaves the frame is cut there.",
)
def peak_throughput(results: Results) -> alt.HConcatChart:
    """Peak and mean output tokens a second of each run, one line a curve through its levels' medians.

    Args:
        results: `runs` with `level`, `throughput_peak_tokens_per_s`, `throughput_tokens_per_s`, `predicted_saturation`, `valid`.
    """
    runs = with_curve(results, results.runs)
    x, colour = level_axis(results), curve_colour(results)
    highest = max(runs[column].drop_nulls().max() or 0 for column in _PANELS)
    panels = []
    for column, title in _PANELS.items():
        y = alt.Y(f"{column}:Q", title="output tokens/s", scale=alt.Scale(domain=[0, 1.05 * float(highest)]))  # type: ignore[arg-type]
        intervals = alt.Chart(with_curve(results, repeats(results.runs, column).filter(pl.col("n") > 1)))
        base = alt.Chart(runs.select("curve", "curve_size", "level", column, "valid", "run"))
        panels.append(
            alt.layer(
                predicted_rules(runs, x, colour),
                median_lines(runs, column, x, y, colour),
                intervals.mark_errorbar(ticks=True, clip=True, thickness=1.2).encode(
                    x=x, y=alt.Y("low:Q", title="output tokens/s"), y2="high:Q", color=colour
                ),
                points(
                    base,
                    y,
                    x,
                    colour,
                    size=curve_size(),
                    tooltip=["run:N", "level:Q", alt.Tooltip(f"{column}:Q", format=".0f")],
                ),
            ).properties(
                width=360, height=HEIGHT, title=alt.TitleParams(title, fontSize=13, fontWeight="normal", anchor="start")
            )
        )
    return alt.hconcat(*panels)

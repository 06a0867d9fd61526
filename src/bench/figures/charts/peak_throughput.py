"""Throughput against load."""

import altair as alt
import polars as pl

from bench.analysis import repeats
from bench.analysis.windows import OF_WINDOWS
from bench.figures.regions import point_layers, region_bands, region_colour, turning_points
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import (
    HEIGHT,
    curve_colour,
    curve_column,
    curves,
    level_axis,
    predicted_rules,
    saturation_finding,
    whole_note,
    with_curve,
    with_whole,
)
from bench.study.questions import levels

_PANELS = {
    "throughput_peak_tokens_per_s": "peak: best second of the run (its mean, where shorter)",
    "throughput_tokens_per_s": "mean: of the steady window, or of a whole burst",
}
_STRIP = 15  # height of a curve's regions


@figure(
    "peak-throughput",
    applies=levels(2),
    order=40,
    title="Throughput against load",
    question="Where does more load stop buying more tokens, and where does it cost some?",
    reading="Left, the study's measure: the most output tokens in any second of a run. Right, the run's mean, which also pays "
    "for queueing, preemption and the last requests that run alone. Strips, a curve each: regions A (proportional), B (more "
    "load still buys more), C (it falls); blank where nothing is significant. Diamonds: where they meet, with their 95 % interval "
    "along the load. Dashed: predicted KV saturation, grey where curves share it. Bars, where a level has two valid repeats or "
    "more: the 95 % interval of their mean (Student's t: wide for two); one that leaves the frame is cut there.",
    finding=saturation_finding,
    note=whole_note,
    columns=lambda _: {column: f"{title.partition(':')[0]} throughput" for column, title in _PANELS.items()},
)
def peak_throughput(results: Results) -> alt.HConcatChart:
    """Peak and mean output tokens a second of each run, one line a curve through its levels' means, below the curves' regions.

    Args:
        results: `runs` with `level`, `throughput_peak_tokens_per_s`, `throughput_tokens_per_s`, `predicted_saturation`, `valid`.
    """
    runs = with_curve(results, results.runs)
    x, colour = level_axis(results), curve_colour(results)
    highest = max(runs[column].drop_nulls().max() or 0 for column in _PANELS)
    panels = []
    # Of answers that come whole, no best second is known.
    known = {column: title for column, title in _PANELS.items() if runs[column].is_not_null().any()}
    for column, title in (known or _PANELS).items():
        found = results.of_curves(results.analysis.regions.filter(metric=column))
        marked = with_whole(results, runs) if column in OF_WINDOWS else runs.with_columns(whole=pl.lit(False))
        y = alt.Y(f"{column}:Q", title=results.tokens_per_s, scale=alt.Scale(domain=[0, 1.05 * float(highest)]))  # type: ignore[arg-type]
        intervals = alt.Chart(with_curve(results, repeats(results.runs, column).filter(pl.col("n") > 1)))
        lines, dots = curves(results, marked, column, y, format=".0f")
        panel = alt.layer(
            predicted_rules(runs, x, colour),
            lines,
            intervals.mark_errorbar(ticks=True, clip=True, thickness=1.2).encode(
                x=x, y=alt.Y("low:Q", title=results.tokens_per_s), y2=alt.Y2("high:Q"), color=colour
            ),
            dots,
            *point_layers(results, turning_points(results, found, column), y, colour),
        ).properties(width=360, height=HEIGHT)
        strips = _strips(results, found).properties(
            width=360,
            height=_STRIP * len(curve_column(results)),
            title=alt.TitleParams(title, fontSize=15, fontWeight="normal", anchor="start"),
        )
        panels.append(alt.vconcat(strips, panel, spacing=4).resolve_scale(x="shared"))
    return alt.hconcat(*panels)


def _strips(results: Results, found: pl.DataFrame) -> alt.LayerChart:
    base = alt.Chart(region_bands(results, found)).encode(
        y=alt.Y("curve:N", title=None, axis=None, sort=curve_column(results), scale=alt.Scale(domain=curve_column(results)))
    )
    bands = base.mark_rect().encode(x=level_axis(results, "begin").axis(None), x2=alt.X2("end:Q"), color=region_colour())
    letters = base.mark_text(fontSize=11, fontWeight="bold").encode(
        x=level_axis(results, "middle").axis(None), text=alt.Text("region:N"), color=curve_colour(results).legend(None)
    )
    strips: alt.LayerChart = alt.layer(bands, letters).resolve_scale(color="independent")
    return strips

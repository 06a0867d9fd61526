"""The speed that each user sees against the throughput of each GPU."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import polars as pl

from bench.analysis.pareto import speeds
from bench.figures.labels import NARROW, free_places, label_layer, with_places
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import NEUTRAL, curve_colour, curve_dash, curve_shape, layered, nothing_to_show, with_curve
from bench.study.questions import deployments_alike
from bench.words.charts import NO_GPUS, load_label

_WIDTH, _HEIGHT, _POINT = 620, 380, 5.0


def _note(results: Results) -> str:
    """What the throughput is of, where it is not that of a GPU."""
    found = speeds(results.runs)
    return NO_GPUS if found.height and found["a_gpu"].null_count() else ""


@figure(
    "user-speed",
    applies=deployments_alike,
    order=6,
    title="Speed of each user against throughput",
    question="Which deployment gives users a speed on the least hardware?",
    reading="Each point is a level of load, labelled where there is room. To the right: tokens/s that a user "
    "sees once the answer has begun (1 ÷ TPOT P50). Upwards: output tokens/s of each GPU. Grey, wide: the loads that no other "
    "one of their workload beats in both (the Pareto frontier). What lies below it gives less for the same speed. Hollow: noise could "
    "have put the level on the frontier, or below it; so it is where nothing was measured twice.",
    invalid="Left out",
    by_axis=False,
    note=_note,
)
def user_speed(results: Results) -> alt.LayerChart:
    """Output tokens/s of a GPU over tokens/s of a user: a point a level, a line a curve.

    Args:
        results: `runs` with `level`, `tpot_p50_s` (s), `throughput_tokens_per_s`, `gpus` and `valid`.
    """
    of_loads = replace(results, runs=results.runs if results.plain.is_empty() else results.plain, whole=results.study)
    found = speeds(of_loads.runs)
    if found.is_empty():
        return nothing_to_show("no valid run has both a throughput and a TPOT")
    each = "an_instance" if found["a_gpu"].null_count() else "a_gpu"
    rows = _labelled(with_curve(of_loads, found), each)
    across, up = _scale(rows, "a_user"), _scale(rows, each)
    user, hardware = (
        "tokens/s that a user sees (1 ÷ TPOT P50)",
        f"output tokens/s of each {'instance' if each == 'an_instance' else 'GPU'}",
    )
    x, y = alt.X("a_user:Q", title=user, scale=across), alt.Y(f"{each}:Q", title=hardware, scale=up)
    colour, shape = curve_colour(of_loads), curve_shape(of_loads)
    base = alt.Chart(
        rows.select("curve", "workload", "level", "label", "unbeaten", "established", "a_user", each, "dx", "dy", "align")
    )
    tooltip = [alt.Tooltip("curve:N"), alt.Tooltip("label:N", title="load"),
               *(alt.Tooltip(f"{column}:Q", format=".3g") for column in ("a_user", each))]  # fmt: skip
    return layered(
        base.transform_filter("datum.unbeaten")
        .mark_line(strokeWidth=9, opacity=0.35, color=NEUTRAL, strokeCap="round")
        .encode(x=x, y=y, detail="workload:N", order="a_user:Q"),
        base.mark_line().encode(x=x, y=y, color=colour, strokeDash=curve_dash(of_loads), order="level:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
        base.transform_filter("!datum.established")
        .mark_point(filled=True, size=22, opacity=1, color="white")
        .encode(x=x, y=y, shape=shape),
        label_layer(base, x, y),
    ).properties(width=_WIDTH, height=_HEIGHT)


def _scale(rows: pl.DataFrame, column: str) -> alt.Scale:
    return alt.Scale(domain=[0, 1.06 * float(rows[column].max())], nice=False)  # type: ignore[arg-type]


def _labelled(rows: pl.DataFrame, each: str) -> pl.DataFrame:
    """With `label` and its place, those of the frontier first."""
    across, up = (1.06 * float(rows[column].max()) for column in ("a_user", each))  # type: ignore[arg-type]
    first = rows.sort(~pl.col("unbeaten"), maintain_order=True)
    labels = [load_label(level, axis) for level, axis in first.select("level", "axis").iter_rows()]
    points = [(NARROW * x / across, _HEIGHT * (1 - y / up)) for x, y in first.select("a_user", each).iter_rows()]
    places = free_places(points, labels, [_POINT] * len(points), (NARROW, _HEIGHT))
    return with_places(first.with_columns(label=pl.Series(labels, dtype=pl.String)), places)

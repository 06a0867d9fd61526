"""The load at which the KV cache is full, against KV bytes a token."""

import altair as alt
import polars as pl

from bench.axes import AXES
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import HEIGHT, curve_colour, curve_shape, curve_size, curve_width, nothing_to_show, with_curve
from bench.study.questions import levels
from bench.words.regions import turning_point
from bench.words.saturates import prediction_title


@figure(
    "saturation-by-kv-bytes",
    applies=levels(2),
    order=70,
    title="What decides where a server saturates",
    question="Is it the model's size, or the bytes that a token holds in the KV cache?",
    reading="The load at which the cache is full, against KV bytes a token (left) and against parameters (right). Filled: the "
    "lowest level measured that filled the cache, with a bar down to the highest that did not. Hollow, larger: predicted from "
    "geometry. Ticks, beside them: where throughput turned out to saturate, with its 95 % interval, of curves in which it was found.",
    invalid="Left out",
    judged="counts_valid",
    finding=lambda results: prediction_title(results.saturation["levels_apart"]),
)
def saturation_by_kv_bytes(results: Results) -> alt.HConcatChart | alt.LayerChart:
    """Measured and predicted saturation of each curve over KV bytes a token, and over parameters.

    Args:
        results: `saturation` with `measured`, `below`, `predicted`, `saturation_at` with its interval (requests),
            `kv_bytes_per_token` (bytes), `parameters`.
    """
    texts = [turning_point(row, "saturation") for row in results.saturation.iter_rows(named=True)]
    found = results.saturation.drop("signals").with_columns(
        kib=pl.col("kv_bytes_per_token") / 1024,
        millions=pl.col("parameters") / 1e6,
        text=pl.Series(texts, dtype=pl.String),
    )
    rows = with_curve(results, found)
    if all(rows[column].is_null().all() for column in ("measured", "predicted", "saturation_at")):
        return nothing_to_show("no curve's saturation was measured or can be predicted")
    colour, shape = curve_colour(results), curve_shape(results)
    shown = ("measured", "predicted", "saturation_at", "saturation_high")
    highest = max([v for c in shown for v in rows[c].drop_nulls()], default=1)
    load = f"saturation: {AXES[results.axis].title}"
    y = alt.Y("measured:Q", title=load, scale=alt.Scale(domain=[0, 1.15 * highest]))
    panels = []
    for column, title in (("kib", "KV bytes a token (KiB)"), ("millions", "parameters (millions)")):
        top = max(rows[column].drop_nulls(), default=1.0)
        data = rows.filter(pl.col(column).is_not_null())
        # Each a little further, for curves in one place; an open side of an interval ends at the point.
        known = data.filter(pl.col("saturation_at").is_not_null()).with_columns(
            pl.col("saturation_low", "saturation_high").fill_null(pl.col("saturation_at")),
            beside=pl.col(column) + top * (0.025 + 0.02 * pl.int_range(pl.len()).over(column)),
        )
        x = alt.X(f"{column}:Q", title=title, scale=alt.Scale(domain=[0, 1.15 * top]))
        beside = alt.X("beside:Q", title=title, scale=alt.Scale(domain=[0, 1.15 * top]))
        base, curve = alt.Chart(data), alt.Chart(known)
        panels.append(
            alt.layer(
                base.mark_rule().encode(x=x, y=y, y2=alt.Y2("below:Q"), color=colour, strokeWidth=curve_width()),
                base.mark_point(filled=True, opacity=1).encode(
                    x=x,
                    y=y,
                    color=colour,
                    shape=shape,
                    size=curve_size(),
                    tooltip=["curve:N", "measured:Q", alt.Tooltip("predicted:Q", format=".1f"), "below:Q"],
                ),
                base.mark_point(size=260, strokeWidth=1.5).encode(
                    x=x,
                    y=alt.Y("predicted:Q"),
                    color=colour,
                    shape=shape,
                    tooltip=["curve:N", alt.Tooltip("predicted:Q", format=".1f")],
                ),
                curve.mark_rule(strokeWidth=1.2).encode(
                    x=beside, y=alt.Y("saturation_low:Q", title=load), y2=alt.Y2("saturation_high:Q"), color=colour
                ),
                curve.mark_tick(size=10, thickness=3, orient="horizontal", opacity=1).encode(
                    x=beside,
                    y=alt.Y("saturation_at:Q", title=load),
                    color=colour,
                    tooltip=["curve:N", alt.Tooltip("text:N", title="B|C")],
                ),
            ).properties(width=340, height=HEIGHT)
        )
    return alt.hconcat(*panels)

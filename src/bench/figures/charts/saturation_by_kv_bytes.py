"""The load at which the KV cache is full, against KV bytes a token."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import AXIS_TITLES, HEIGHT, curve_colour, curve_size, curve_width, with_curve


@figure(
    "saturation-by-kv-bytes",
    title="What decides where a server saturates",
    question="Is it the model's size, or the bytes that a token holds in the KV cache?",
    reading="The load at which the cache is full, against KV bytes a token (left) and against parameters (right). Filled: the "
    "lowest level measured that filled the cache, with a bar down to the highest that did not. Diamonds: predicted from geometry.",
    invalid="Left out",
    judged="content_valid",
)
def saturation_by_kv_bytes(results: Results) -> alt.HConcatChart:
    """Measured and predicted saturation of each curve over KV bytes a token, and over parameters.

    Args:
        results: `saturation` with `measured`, `below`, `predicted` (requests), `kv_bytes_per_token` (bytes), `parameters`.
    """
    rows = with_curve(results, results.saturation).with_columns(
        kib=pl.col("kv_bytes_per_token") / 1024, millions=pl.col("parameters") / 1e6
    )
    colour = curve_colour(results)
    highest = max([v for c in ("measured", "predicted") for v in rows[c].drop_nulls()], default=1)
    y = alt.Y("measured:Q", title=f"saturation: {AXIS_TITLES[results.axis]}", scale=alt.Scale(domain=[0, 1.15 * highest]))
    panels = []
    for column, title in (("kib", "KV bytes a token (KiB)"), ("millions", "parameters (millions)")):
        data = rows.filter(pl.col(column).is_not_null())
        top = max(data[column].to_list(), default=1.0)
        x = alt.X(f"{column}:Q", title=title, scale=alt.Scale(domain=[0, 1.15 * top]))
        base = alt.Chart(data)
        panels.append(
            alt.layer(
                base.mark_rule().encode(x=x, y=y, y2="below:Q", color=colour, strokeWidth=curve_width()),
                base.mark_point(filled=True, opacity=1).encode(
                    x=x,
                    y=y,
                    color=colour,
                    size=curve_size(),
                    tooltip=["curve:N", "measured:Q", "predicted:Q", "below:Q"],
                ),
                base.mark_point(shape="diamond", size=190, strokeWidth=1.5).encode(x=x, y="predicted:Q", color=colour),
            ).properties(width=340, height=HEIGHT)
        )
    return alt.hconcat(*panels)

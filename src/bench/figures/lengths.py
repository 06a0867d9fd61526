"""What the figures over a length share: which runs they show, their lines, and one panel."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.analysis.lengths import line
from bench.analysis.token_costs import SWEPT, Kind
from bench.figures.results import Results
from bench.figures.theme import HEIGHT, nothing_to_show, points, series_colour, series_shape
from bench.words.lengths import cost_title, fit_text

_WIDTH = 460


def swept(results: Results, kind: Kind) -> pl.DataFrame:
    """The runs of the families in which one length varies while the other does not.

    Returns:
        Their rows, with `series`: the deployment, with its family where several are shown, and its load where that varies; and
        `milliseconds`, the latency that the length sets.
    """
    x, other, y = SWEPT[kind]
    runs = results.runs.filter(
        (pl.col(x).drop_nulls().n_unique().over("deployment", "family") > 1)
        & (pl.col(other).drop_nulls().n_unique().over("family") == 1)
    )
    parts = [pl.col("deployment")]
    if runs["family"].n_unique() > 1:
        parts.append(pl.format("· {}", "family"))
    if runs["level"].n_unique() > 1:
        parts.append(pl.format("at {}", pl.col("level").cast(pl.Int64, strict=False)))
    return runs.with_columns(series=pl.concat_str(parts, separator=" "), milliseconds=pl.col(y) * 1000)


def fitted(runs: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """The runs of `swept` that have the latency, with `series` that ends in its fit's equation, and `fit`, the curve there."""
    x = SWEPT[kind][0]
    parts = [runs.head(0).with_columns(fit=pl.lit(None, dtype=pl.Float64))]
    for (_,), group in runs.drop_nulls("milliseconds").group_by("series", maintain_order=True):
        found = line(group, x, "milliseconds")
        if found:
            named = pl.format("{}: {}", "series", pl.lit(fit_text(found)))
            group = group.with_columns(series=named, fit=found.at(pl.col(x)))  # noqa: PLW2901
        else:
            group = group.with_columns(fit=pl.lit(None, dtype=pl.Float64))  # noqa: PLW2901
        parts.append(group)
    return pl.concat(parts)


def length_title(runs: pl.DataFrame, kind: Kind) -> str | None:
    """What a token costs, where one series is shown and its fit is sure of it. Args: runs: of `swept`."""
    found = line(runs, SWEPT[kind][0], "milliseconds") if runs["series"].n_unique() == 1 else None
    return cost_title(found, kind) if found else None


def length_chart(
    results: Results, rows: pl.DataFrame, *, x: tuple[str, str], y: tuple[str, str], legend: str | None
) -> alt.LayerChart:
    """A point a run, and each series' fit, or a line through its valid runs where nothing is fitted; invalid runs as crosses.

    Args:
        rows: of `fitted`, or with `fit` null. x, y: column and title. legend: its title, below the panel; None draws none.
    """
    if rows.is_empty():
        return nothing_to_show("no run with such lengths")
    below = alt.Legend(orient="bottom", columns=1, labelLimit=2 * _WIDTH) if legend else None
    colour = series_colour(results, rows, title=legend, legend=below)
    shape = series_shape(rows, title=legend, legend=below)
    across = alt.X(f"{x[0]}:Q", title=x[1])
    values = [*rows[y[0]].drop_nulls(), *rows["fit"].drop_nulls()]
    scale = alt.Scale(domain=[min(0.0, *values), 1.05 * max(values, default=1.0)], nice=False)
    up, fit = (alt.Y(f"{field}:Q", title=y[1], scale=scale) for field in (y[0], "fit"))
    base = alt.Chart(rows.select("deployment", "series", "valid", "fit", "run", x[0], y[0]))
    if rows["fit"].is_not_null().any():
        lines = base.mark_line(strokeDash=[5, 4], interpolate="monotone").encode(x=across, y=fit, color=colour)
    else:
        lines = base.transform_filter("datum.valid").mark_line().encode(x=across, y=up, color=colour)
    dots = points(base, up, across, colour, shape=shape, tooltip=["run:N", alt.Tooltip(y[0], format=".4g")])
    return alt.LayerChart(layer=[lines, dots]).properties(width=_WIDTH, height=HEIGHT)

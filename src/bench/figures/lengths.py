"""What the figures over a length share: which runs they show, their lines, and one panel."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.analysis.lengths import line
from bench.figures.results import Results
from bench.figures.theme import HEIGHT, deployment_colours, nothing_to_show, points, shapes
from bench.words.lengths import cost_title, fit_text

__all__ = ["fitted", "length_chart", "length_title", "swept"]

_WIDTH = 460


def swept(results: Results, key: str) -> pl.DataFrame:
    """The runs of the families whose `key` (`prompt_fixed` or `output_fixed`) varies while the other length does not.

    Returns:
        Their rows, with `series`: the deployment, with its family where several are shown, and its load where that varies.
    """
    other = "output_fixed" if key == "prompt_fixed" else "prompt_fixed"
    runs = results.runs.filter(
        (pl.col(key).drop_nulls().n_unique().over("deployment", "family") > 1)
        & (pl.col(other).drop_nulls().n_unique().over("family") == 1)
    )
    parts = [pl.col("deployment")]
    if runs["family"].n_unique() > 1:
        parts.append(pl.format("· {}", "family"))
    if runs["level"].n_unique() > 1:
        parts.append(pl.format("at {}", pl.col("level").cast(pl.Int64, strict=False)))
    return runs.with_columns(series=pl.concat_str(parts, separator=" "))


def fitted(runs: pl.DataFrame, x: str, y: str) -> pl.DataFrame:
    """The runs that have a `y`, with `series` that ends in its fit's equation, and `fit`, the line or parabola at `x`.

    Args:
        x: a length (tokens). y: a time (ms).
    """
    parts = [runs.head(0).with_columns(fit=pl.lit(None, dtype=pl.Float64))]
    for (_,), group in runs.drop_nulls(y).group_by("series", maintain_order=True):
        found = line(group, x, y)
        if found:
            named = pl.format("{}: {}", "series", pl.lit(fit_text(found)))
            group = group.with_columns(series=named, fit=found.at(pl.col(x)))  # noqa: PLW2901
        else:
            group = group.with_columns(fit=pl.lit(None, dtype=pl.Float64))  # noqa: PLW2901
        parts.append(group)
    return pl.concat(parts)


def length_title(runs: pl.DataFrame, x: str, y: str, kind: str) -> str | None:
    """What a token costs, where one series is shown and its fit is sure of it. Args: as those of `fitted` and `cost_title`."""
    if runs["series"].n_unique() != 1:
        return None
    found = line(runs, x, y)
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
    order = rows["series"].unique(maintain_order=True).to_list()
    of, colours = dict(rows.select("series", "deployment").iter_rows()), deployment_colours(results)
    below = alt.Legend(orient="bottom", columns=1, labelLimit=2 * _WIDTH) if legend else None
    colour = alt.Color(
        "series:N",
        title=legend,
        sort=order,
        legend=below,
        scale=alt.Scale(domain=order, range=[colours[of[series]] for series in order]),
    )
    shape = alt.Shape(
        "series:N", title=legend, sort=order, legend=below, scale=alt.Scale(domain=order, range=shapes(len(order)))
    )
    across = alt.X(f"{x[0]}:Q", title=x[1])
    values = [*rows[y[0]].drop_nulls(), *rows["fit"].drop_nulls()]
    scale = alt.Scale(domain=[min(0.0, *values), 1.05 * max(values, default=1.0)], nice=False)
    up, fit = (alt.Y(f"{field}:Q", title=y[1], scale=scale) for field in (y[0], "fit"))
    base = alt.Chart(rows.select("deployment", "series", "valid", "fit", "run", x[0], y[0]))
    if rows["fit"].is_not_null().any():
        lines = base.mark_line(strokeDash=[5, 4], interpolate="monotone").encode(x=across, y=fit, color=colour)
    else:
        lines = base.transform_filter("datum.valid").mark_line().encode(x=across, y=up, color=colour)
    dots = points(base, up, across, colour, shape=shape, tooltip=[alt.Tooltip("run:N"), alt.Tooltip(y[0], format=".4g")])
    return alt.LayerChart(layer=[lines, dots]).properties(width=_WIDTH, height=HEIGHT)

"""Whether answers stay the same, and right, against throughput."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.analysis import graded
from bench.analysis.level_values import level_values
from bench.figures.curves import with_curve
from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import curve_colour, curve_shape, level_labels, nothing_to_show, with_labels

_LEVEL = ("deployment", "workload", "axis", "level")
_SAME, _RIGHT = "identical to the baseline's", "tasks solved (pass@1)"


@figure(
    "answers",
    title="Answers against throughput",
    question="What do a setting's tokens/s cost in answers?",
    reading="Each point is a deployment at a level of load: output tokens/s to the right, and upwards the"
    " share of its answers that are the baseline's at the same load, in a second panel the share of tasks of a graded set that "
    "it solves. Bars: 95 % intervals. A second deployment with the baseline's keys shows how many answers batches alone change."
    " The baseline is in the second panel only.",
    invalid="Left out of throughput",
    by_axis=False,
)
def answers(results: Tables) -> alt.TopLevelMixin:
    """Shares of answers over output tokens/s: a point a level.

    Args:
        results: `runs` with `level`, `throughput_tokens_per_s`, `valid` and kept answers; comparisons with the baseline; `grades`.
    """
    speeds = level_values(results.runs, ["throughput_tokens_per_s"]).drop_nulls()
    panels = [
        _panel(results, shares.join(speeds, on=_LEVEL, how="inner", maintain_order="left"), title)
        for title, shares in ((_SAME, _identical(results)), (_RIGHT, _solved(results)))
        if shares.join(speeds, on=_LEVEL, how="semi").height
    ]
    if not panels:
        return nothing_to_show("no valid run has answers that compare with the baseline's, or that were graded")
    return panels[0] if len(panels) == 1 else alt.hconcat(*panels)


_SHARES = {"deployment": pl.String, "workload": pl.String, "axis": pl.String, "level": pl.Float64,
           "share": pl.Float64, "low": pl.Float64, "high": pl.Float64}  # fmt: skip


def _identical(results: Tables) -> pl.DataFrame:
    """The share of each level's answers that are the baseline's, where it is known."""
    rows = [
        {**{key: row[key] for key in _SHARES}, "deployment": name}
        for name, found in results.comparisons.items()
        for row in found.answers
        if row["share"] is not None
    ]
    return pl.DataFrame(rows, schema=_SHARES)


def _solved(results: Tables) -> pl.DataFrame:
    """The share of tasks that are solved at each level; empty without grades."""
    rows = () if results.grades is None else graded(results.runs, results.grades)
    shares = [
        {
            **{key: getattr(each, key) for key in _LEVEL},
            **{key: getattr(each.accuracy, key) for key in ("share", "low", "high")},
        }
        for each in rows
    ]
    return pl.DataFrame(shares, schema=_SHARES)


def _panel(results: Tables, shares: pl.DataFrame, title: str) -> alt.LayerChart:
    rows = with_labels(with_curve(results, shares))
    scale = alt.Scale(domain=[0, 1.06 * float(rows["throughput_tokens_per_s"].max())], nice=False)  # type: ignore[arg-type]
    x = alt.X("throughput_tokens_per_s:Q", title="output tokens/s", scale=scale)
    y = alt.Y("share:Q", title=f"share of answers {title}" if title == _SAME else title, axis=alt.Axis(format="%"),
              scale=alt.Scale(domain=[0, 1]))  # fmt: skip
    colour = curve_colour(results)
    base = alt.Chart(rows.select("curve", "label", "level", "throughput_tokens_per_s", "share", "low", "high"))
    tooltip = [
        "curve:N",
        alt.Tooltip("level:Q", title="load"),
        alt.Tooltip("throughput_tokens_per_s:Q", format=".4g"),
        *(alt.Tooltip(f"{column}:Q", format=".0%") for column in ("share", "low", "high")),
    ]
    layers = [
        base.mark_rule().encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, color=colour, shape=curve_shape(results), tooltip=tooltip
        ),
        level_labels(base, x, y),
    ]
    return alt.LayerChart(layer=layers, width=430, height=300)

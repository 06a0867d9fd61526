"""How evenly a router loads the engines behind it."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import (
    NEUTRAL,
    curve_colour,
    curve_column,
    level_axis,
    marked,
    nothing_to_show,
    panels_a_row,
    points,
    shapes,
    with_curve,
)
from bench.words.workers import COUNTED

_WIDTH, _ABOVE, _BELOW = 280, 200, 90


@figure(
    "worker-balance",
    title="Share of the load by worker",
    question="Does the router load its workers evenly?",
    reading="Above: each worker's share of what the fleet counted in a run, of requests, or of output tokens where the engine does not "
    "count requests; a line a worker through the means of its levels, and dashed the even share. Where some workers only prefill, "
    "shares are of the workers with the same role. Below: the KV cache's usage of each worker, in the mean over the load. Lines that "
    "part show a worker that is slower, or preferred by the router.",
    judged="counts_valid",
)
def worker_balance(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Each worker's share of the load, over its KV usage, a panel for each curve with several workers.

    Args:
        results: `runs` with `workers` (rows of `bench.runs.columns.WORKER_FIELDS`) and `counts_valid`.
    """
    several = results.runs.filter(pl.col("workers").list.len() > 1)
    runs = with_curve(results, several)
    table = runs.select("curve", "run", "level", "counts_valid", "workers").explode("workers").unnest("workers")
    parts = [(curve, *_shares(table.filter(pl.col("curve") == curve))) for curve in curve_column(results)]
    known = [(curve, rows, what) for curve, rows, what in parts if what]
    if not known:
        return nothing_to_show("no run keeps several workers that all count their requests or tokens")
    order = table["worker"].unique(maintain_order=True).to_list()
    shape = marked(alt.Shape, "worker:N", shapes(order), title="worker")
    panels = [_panel(results, curve, rows, what, shape) for curve, rows, what in known]
    return alt.concat(*panels, columns=panels_a_row(len(panels)))


def _shares(table: pl.DataFrame) -> tuple[pl.DataFrame, str | None]:
    """Each worker's share of a run, and what it is a share of; None where some worker does not count it."""
    for counted, what in COUNTED.items():
        alike = ("run", "role")
        whole = table.filter(pl.col(counted).null_count().over(alike) == 0, pl.col(counted).sum().over(alike) > 0)
        if whole.height:
            return whole.with_columns(
                share=pl.col(counted) / pl.col(counted).sum().over(alike), valid=pl.col("counts_valid")
            ), what
    return table.clear(), None


def _panel(results: Tables, curve: str, rows: pl.DataFrame, what: str, shape: alt.Shape) -> alt.VConcatChart:
    x, colour = level_axis(results), curve_colour(results).legend(None)
    even = rows.group_by("role").agg(even=1 / pl.col("worker").n_unique()).select("even").unique()
    strips = [
        ("share", f"share of {what}", _ABOVE, [alt.Chart(even).mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(y="even:Q")])
    ]
    if rows["kv_usage_mean"].null_count() < rows.height:
        strips.append(("kv_usage_mean", "KV cache", _BELOW, []))
    charts = []
    for column, title, height, beneath in strips:
        y = alt.Y(f"{column}:Q", title=title, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1.02], nice=False))
        shown = rows.select("curve", "worker", "run", "level", "valid", column).drop_nulls(column)
        means = shown.filter("valid").group_by("curve", "worker", "level", maintain_order=True).agg(pl.col(column).mean())
        tooltip = ["run:N", "worker:N", "level:Q", alt.Tooltip(f"{column}:Q", format=".1%")]
        lines = alt.Chart(means).mark_line().encode(x=x, y=y, color=colour, detail="worker:N")
        marks = points(alt.Chart(shown), y, x, colour, hollow="none", shape=shape, tooltip=tooltip)
        charts.append(alt.LayerChart(layer=[*beneath, lines, marks]).properties(width=_WIDTH, height=height))
    return alt.vconcat(*charts).properties(title=alt.TitleParams(curve, fontSize=15, anchor="start"))

"""Fixed, variable and total cost, revenue and profit against demand."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.analysis import best_points
from bench.analysis.economics import lasting
from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import NEUTRAL, level_axis, nothing_to_show, panels_a_row, with_curve

_LINES = {
    "fixed_per_h": "fixed cost",
    "variable_per_h": "variable cost",
    "cost_per_h": "total cost",
    "revenue_per_h": "revenue",
    "profit_per_h": "profit",
}
_DASHES = [[1, 4], [4, 3], [9, 2, 2, 2], [12, 4], [1, 0]]


@figure(
    "economics",
    title="Costs, revenue and profit against demand",
    question="From which load on does an instance earn what it costs, and at which load does it earn the most?",
    reading="USD an hour of one instance under each load, a panel a curve: the fixed cost of its GPUs (or machine), the "
    "variable one of energy and requests, their total, revenue from output tokens/s, and profit (thick), what is left; means "
    "of a level's valid runs, in their steady windows. Diamond: the load that leaves the most, whether it meets the SLOs or "
    "not; upright: the operating point, within them. Prices are those of the study's decision.",
    invalid="Left out",
)
def economics_chart(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """What an instance costs and earns over load, a panel a curve.

    Args:
        results: `runs` with `level`, `priced_tokens_per_s` and `valid`; `decision` with its prices.
    """
    priced = lasting(results.priced.filter("valid").drop_nulls("profit_per_h"))
    if priced.is_empty():
        valid = results.priced["valid"].any()
        return nothing_to_show("no price of an hour and of tokens is given" if valid else "no run is valid")
    best = {(row["deployment"], row["workload"]): row for row in best_points(priced).to_dicts()}
    points = {(row["deployment"], row["workload"]): row["operate_at"] for row in results.points.to_dicts()}
    parts = with_curve(results, priced).partition_by("deployment", "workload", as_dict=True)
    panels = [_panel(results, part, best[curve], points.get(curve)) for curve, part in parts.items() if curve in best]
    return alt.concat(*panels, columns=panels_a_row(len(panels), most=3))


def _panel(results: Tables, part: pl.DataFrame, best: dict[str, float], operated: float | None) -> alt.LayerChart:
    costs = part.with_columns(variable_per_h=pl.col("cost_per_h") - pl.col("fixed_per_h"))
    levels = costs.group_by("curve", "level", maintain_order=True).agg(pl.col(*_LINES).mean()).sort("level")
    rows = levels.unpivot(on=list(_LINES), index=["curve", "level"], variable_name="line", value_name="usd")
    x, y = level_axis(results), alt.Y("usd:Q", title="USD an hour")
    kinds = list(_LINES.values())
    base = alt.Chart(rows.with_columns(pl.col("line").replace(_LINES)))
    dash = alt.StrokeDash("line:N", sort=kinds, title=None, scale=alt.Scale(domain=kinds, range=_DASHES))
    width = alt.condition("datum.line == 'profit'", alt.value(3), alt.value(1.5))
    at = {"level": [best["best_at"]], "usd": [best["profit_per_h"]]}
    operating = pl.DataFrame({"level": [] if operated is None else [operated]}, schema={"level": pl.Float64})
    layers = [
        alt.Chart(operating).mark_rule(color=NEUTRAL).encode(x=x),
        base.mark_line(color="black").encode(x=x, y=y, strokeDash=dash, strokeWidth=width, detail="line:N"),
        base.mark_point(size=60, opacity=0).encode(
            x=x, y=y, tooltip=["curve:N", "line:N", "level:Q", alt.Tooltip("usd:Q", title="USD an hour", format=".4f")]
        ),
        alt.Chart(pl.DataFrame(at))
        .mark_point(shape="diamond", fill="white", color="black", size=130, opacity=1)
        .encode(x=x, y=y),
    ]
    return alt.LayerChart(
        layer=layers, width=280, height=240, title=alt.TitleParams(part["curve"][0], fontSize=15, anchor="start")
    )

"""How sure the limit of each curve is, and how near each load comes to each SLO's limit: a section of the report, and its chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from bench.findings.capacity.words import margin_title
from bench.findings.predicted import time_spent
from bench.findings.tables import Tables
from bench.parse.windows import level_values
from bench.report.blocks import Answer, Section
from bench.report.figure import alt, figure
from bench.report.theme import Span, curve_colour, level_axis, load_panel, nothing_to_show, panels_a_row, with_curve
from bench.study.slo import Slo

if TYPE_CHECKING:
    from bench.findings.view import View


def section(view: View) -> Section:
    spent, blocks = time_spent(view), []
    for curve in view.judged:
        sure = f"{curve.evidence} {'' if curve.plan else curve.narrowed}".strip()
        lines = [sure, spent.get((curve.deployment, curve.workload), "") if curve.limit else "", curve.contradiction]
        blocks.append(Answer("", curve.name, lines, deployment=curve.deployment, family=view.families[curve.workload]))
    return Section("verdicts", "How sure that is, curve by curve", blocks)


_CLOSEST, _FARTHEST = 0.05, 20.0  # of the limit; what lies beyond is drawn at the edge
_BAR = 1.1  # of the axis, the factor that a curve's bar takes at the bottom


@figure(
    "slo-margin",
    title="How near each load comes to each limit",
    question="Which SLO is missed first, and how sharply?",
    reading="Latency ÷ its limit: points of runs, lines of all requests of a level's valid runs. Bars at the bottom: where the limit "
    "lies, at 95 % confidence. Points beyond 5 % or 2,000 % stand at the edge.",
    finding=lambda results: margin_title(results.points.to_dicts(), results.decision.slos),
)
def slo_margin(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Percentile ÷ limit of each SLO against load, a panel an SLO."""
    if not results.decision.slos:
        return nothing_to_show("the study's `decision` names no SLO")
    known = {name for name in results.runs.columns if results.runs[name].is_not_null().any()}
    slos = [slo for slo in results.decision.slos if slo.column in known]
    if not slos:
        return nothing_to_show("no run has a latency that an SLO limits")
    runs = with_curve(results, results.runs)
    levels = level_values(runs, [slo.column for slo in slos])  # infinite where so many requests failed
    reached = [value / slo.limit_s for slo in slos for part in (runs, levels) for value in part[slo.column].drop_nulls()]
    bars = with_curve(results, results.points).drop_nulls(["low", "high"]).select("curve", "low", "high")
    low = max(_CLOSEST, min(0.8, 0.9 * min(reached, default=1.0)))
    bars = bars.with_columns(bar=low / _BAR ** (pl.int_range(pl.len()) + 1))
    span = Span(
        low / _BAR ** (len(bars) + 1) if len(bars) else low,
        min(_FARTHEST, max(1.25, 1.15 * max(reached, default=1.0))),
        log=True,
    )
    panels = [_panel(results, runs, slo, bars, span) for slo in slos]
    return alt.concat(*panels, columns=panels_a_row(len(panels), most=2 if len(panels) == 2 else 3))


def _panel(results: Tables, runs: pl.DataFrame, slo: Slo, bars: pl.DataFrame, span: Span) -> alt.LayerChart:
    title = "percentile ÷ its limit"
    y = alt.Y("bar:Q", title=f"{title}, log", scale=span.scale)
    base = alt.Chart(bars).mark_rule(strokeWidth=5, opacity=0.6, strokeCap="round", clip=True)
    band = base.encode(x=level_axis(results, "low"), x2="high:Q", y=y, color=curve_colour(results))
    return load_panel(
        *(results, runs, slo.column, title),
        form=lambda value: (value / slo.limit_s).clip(_CLOSEST, _FARTHEST),
        drawn=f"{slo.column.removesuffix('_s')}_of_limit",
        heading=str(slo),
        format=".0%",
        span=span,
        limit=(1.0, "limit"),
        over=[band] if bars.height else [],
    )

"""Time to first token against load, of all requests and of each class."""

from __future__ import annotations

from functools import partial

import polars as pl

from bench.axes import AXES
from bench.errors import listed
from bench.findings.tables import Tables
from bench.parse.windows import level_values
from bench.report.figure import alt, figure
from bench.report.theme import (
    Span,
    curve_column,
    load_panel,
    nothing_to_show,
    panels_a_row,
    unit_column,
    with_curve,
)
from bench.study.slo import Slo, time_text

_USUAL = "p95"  # where no SLO limits another percentile
_NAMED = 3  # most curves that a title names


def _percentiles(results: Tables) -> list[Slo]:
    """What is drawn: P50, and what an SLO of all requests limits, else P95. Answers that come whole have E2E."""
    metric = "e2e" if results.runs["ttft_p50_s"].is_null().all() else "ttft"
    limited = [slo for slo in results.decision.slos if (slo.metric, slo.request_class) == (metric, None)]
    shown = [Slo(metric, "p50", 0.0), *(limited or [Slo(metric, _USUAL, 0.0)])]
    return [slo for slo in shown if slo.column in results.runs.columns and results.runs[slo.column].is_not_null().any()]


def _unit(results: Tables, shown: list[Slo]) -> str:
    """Of a limit; without one, milliseconds where all medians are below a second."""
    highest = max(results.runs[shown[0].column].drop_nulls(), default=1.0)
    return next((slo.unit for slo in shown if slo.limit_s), "ms" if highest < 1 else "s")


def _finding(results: Tables) -> str | None:
    """From which load on the limit is passed; without one, how long the wait is at the highest load."""
    if not (shown := _percentiles(results)):
        return None
    slo, unit = next((each for each in shown if each.limit_s), shown[0]), AXES[results.axis].short
    levels = with_curve(results, level_values(results.runs, [slo.column])).drop_nulls(slo.column).sort("level")
    parts = {curve: levels.filter(curve=curve) for curve in curve_column(results)}
    parts = {curve: part for curve, part in parts.items() if part.height}
    if not 0 < len(parts) <= _NAMED:
        return None
    on = {curve: f" on {curve}" if len(parts) > 1 else "" for curve in parts}
    if not slo.limit_s:
        waits = [f"{time_text(part[slo.column][-1], _unit(results, shown))}{on[curve]}" for curve, part in parts.items()]
        return f"{slo.name} is {listed(waits)} at the highest load"
    beyond = {curve: part.filter(pl.col(slo.column) > slo.limit_s)["level"].min() for curve, part in parts.items()}
    limit = str(slo).removeprefix(f"{slo.name} ≤ ")
    passes = [f"{level:g} {unit}{on[curve]}" for curve, level in beyond.items() if isinstance(level, float)]
    return f"{slo.name} passes {limit} at {listed(passes)}" if passes else f"{slo.name} stays within {limit}"


@figure(
    "ttft",
    title="Time to first token against load",
    question="How long does a user wait for the first word as load rises?",
    reading="Points are runs, lines all requests of a level's valid runs. Dashed: the SLO's limit. Where answers come whole, E2E "
    "stands in its place.",
    finding=_finding,
)
def ttft(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """P50 and the SLO's percentile of TTFT over load: a panel each, a line a curve."""
    shown = _percentiles(results)
    if not shown:
        return nothing_to_show("no run has a latency")
    runs, panels = with_curve(results, results.runs), []
    unit = _unit(results, shown)
    times = 1.0 if unit == "s" else 1000.0
    values = [value and value * times for slo in shown for value in runs[slo.column]]
    span = Span.of(values, within=[slo.limit_s * times for slo in shown if slo.limit_s])
    for slo in shown:
        limit = (slo.limit_s * times, f"SLO: {slo.limit_s * times:g} {unit}") if slo.limit_s else None
        panels.append(
            load_panel(
                *(results, runs, slo.column, f"{slo.name} ({unit})"),
                form=partial(pl.Expr.mul, other=times),
                drawn=unit_column(slo.column, unit),
                heading=slo.name,
                span=span,
                limit=limit,
            )
        )
    return alt.concat(*panels, columns=panels_a_row(len(panels), most=2))

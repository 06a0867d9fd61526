"""Time to first token against load, of all requests and of each class."""

from __future__ import annotations

from functools import partial

import polars as pl

from bench.findings.tables import Tables
from bench.report.figure import alt, figure
from bench.report.theme import (
    Span,
    load_panel,
    nothing_to_show,
    panels_a_row,
    unit_column,
    with_curve,
)
from bench.study.slo import Slo

_USUAL = "p95"  # where no SLO limits another percentile


def _percentiles(results: Tables) -> list[Slo]:
    """What is drawn: P50, and what an SLO of all requests limits, else P95. Answers that come whole have E2E."""
    metric = "e2e" if results.runs["ttft_p50_s"].is_null().all() else "ttft"
    limited = [slo for slo in results.decision.slos if (slo.metric, slo.request_class) == (metric, None)]
    shown = [Slo(metric, "p50", 0.0), *(limited or [Slo(metric, _USUAL, 0.0)])]
    return [slo for slo in shown if slo.column in results.runs.columns and results.runs[slo.column].is_not_null().any()]


@figure(
    "ttft",
    title="Time to first token against load",
    question="How long does a user wait for the first word as load rises?",
    reading="Points are runs, lines all requests of a level's valid runs. Dashed: the SLO's limit. Where answers come whole, E2E "
    "stands in its place.",
)
def ttft(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """P50 and the SLO's percentile of TTFT over load: a panel each, a line a curve.

    Args:
        results: `runs` with `level`, the latencies' percentiles (s) and `valid`; `decision` with its SLOs.
    """
    shown = _percentiles(results)
    if not shown:
        return nothing_to_show("no run has a latency")
    runs, panels = with_curve(results, results.runs), []
    highest = max(runs[shown[0].column].drop_nulls(), default=1.0)
    unit = next((slo.unit for slo in shown if slo.limit_s), "ms" if highest < 1 else "s")
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

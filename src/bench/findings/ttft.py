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
from bench.runs.latencies import class_column, class_names
from bench.study.slo import Slo

_USUAL = "p95"  # where no SLO limits another percentile


def _percentiles(results: Tables) -> list[Slo]:
    """What is drawn: P50 of all requests; of these and of each class what an SLO limits, else P95. Answers that come whole have E2E."""
    names = dict.fromkeys(name for text in results.runs["classes"].unique(maintain_order=True) for name in class_names(text))
    metric = "e2e" if results.runs["ttft_p50_s"].is_null().all() else "ttft"
    shown = [Slo(metric, "p50", 0.0)]
    for name in (None, *names):
        limited = [slo for slo in results.decision.slos if (slo.metric, slo.request_class) == (metric, name)]
        shown += limited or [Slo(metric, _USUAL, 0.0, name)]
    known = {name for name in results.runs.columns if results.runs[name].is_not_null().any()}
    return [slo for slo in shown if slo.column in known]


def _unit(results: Tables, slo: Slo) -> str:
    """Of the limits on that latency; without one, milliseconds where all are below a second."""
    limits = [
        each.unit for each in results.decision.slos if (each.metric, each.request_class) == (slo.metric, slo.request_class)
    ]
    column = class_column(slo.request_class, f"{slo.metric}_p50_s")
    highest = results.runs[column].max() if column in results.runs.columns else None
    return next(iter(limits), "ms" if isinstance(highest, float) and highest < 1 else "s")


@figure(
    "ttft",
    title="Time to first token against load",
    question="How long does a user wait for the first word as load rises?",
    reading="Points are runs, lines all requests of a level's valid runs. Dashed: the SLO's limit. Where answers come whole, E2E "
    "stands in its place.",
)
def ttft(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """P50 and the SLO's percentile of TTFT over load, then of each class of requests: a panel each, a line a curve.

    Args:
        results: `runs` with `level`, the latencies' percentiles (s), `classes` and `valid`; `decision` with its SLOs.
    """
    shown = _percentiles(results)
    if not shown:
        return nothing_to_show("no run has a latency")
    runs, panels = with_curve(results, results.runs), []
    for slo in shown:
        unit = _unit(results, slo)
        times = 1.0 if unit == "s" else 1000.0
        alike = [each for each in shown if each.request_class == slo.request_class]  # panels that are compared
        values = [value and value * times for each in alike for value in runs[each.column]]
        span = Span.of(values, within=[each.limit_s * times for each in alike if each.limit_s])
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

"""The latencies of each class of requests against load."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.figures.latency_panel import LatencyPanel, latency_panel
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import nothing_to_show, with_curve, with_whole
from bench.runs.classes import class_column, class_names
from bench.runs.latencies import LATENCIES
from bench.study.slo import Slo
from bench.words.charts import margin_title

_USUAL = (("ttft", "p95"), ("e2e", "p95"))  # of a class without limits
_PANELS_A_ROW = 3


@figure(
    "classes",
    title="Latencies of each class against load",
    question="Which class of requests waits for how long, and which leaves its limits first?",
    reading="A panel a latency of a class: those that an SLO limits, else TTFT and E2E at P95. Points are runs, lines all "
    "requests of a level's valid runs together: the percentile that is limited. Thin: P50. Grey, dashed: the class's limit. "
    "Hollow: too few requests of the class for a bound. The load is that of all classes together.",
    finding=lambda results: margin_title(results.points, results.decision.slos),
)
def classes(results: Results) -> alt.ConcatChart | alt.LayerChart:
    """The limited percentiles of each class over load: a panel each, a line a curve.

    Args:
        results: `runs` with `level`, `classes`, the classes' percentiles and bounds (s) and `valid`.
    """
    of_runs = results.runs.filter(pl.col("classes").is_not_null())
    runs = with_whole(results, with_curve(results, of_runs))
    names = dict.fromkeys(name for text in of_runs["classes"].unique(maintain_order=True) for name in class_names(text))
    wanted = [panel for name in names for panel in _panels(name, results.decision.slos)]
    panels = [latency_panel(results, runs, each) for each in wanted if runs[each.tail].is_not_null().any()]
    if not panels:
        return nothing_to_show("no run has a latency of a class")
    return alt.concat(*panels, columns=min(_PANELS_A_ROW, len(panels)))


def _panels(name: str, slos: list[Slo]) -> list[LatencyPanel]:
    limited: list[tuple[str, str, Slo | None]] = [
        (slo.metric, slo.percentile, slo) for slo in slos if slo.request_class == name
    ]
    shown = limited or [(metric, percentile, None) for metric, percentile in _USUAL]
    return [
        LatencyPanel(
            f"{LATENCIES[metric].title} of {name}",
            f"{name}: {LATENCIES[metric].title} {percentile.upper()}",
            "s",
            class_column(name, f"{metric}_{percentile}_s"),
            class_column(name, f"{metric}_p50_s"),
            slo,
        )
        for metric, percentile, slo in shown
    ]

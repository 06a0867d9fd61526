"""Every latency against load."""

from __future__ import annotations

import altair as alt

from bench.figures.latency_panel import LatencyPanel, latency_panel
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import nothing_to_show, panels_a_row, with_curve, with_whole
from bench.words.charts import whole_runs_note

_TITLES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E latency"}
_TAIL = "p99"  # where no SLO limits another percentile


@figure(
    "latencies",
    title="Latencies against load",
    question="How long does a user wait as load rises, for the first token, for each further one, and for all?",
    reading="Points are runs, lines all requests of a level's valid runs together: the percentile that an SLO limits, else "
    "P99. Thin: P50. Grey, dashed: the SLO's limit. Hollow: too few requests for the percentile, so it is an estimate without a "
    "bound (of a P99 662; below 100 it is the slowest). A filled point has a whisker up to the value that the true one does not "
    "exceed, at 99 % confidence. ITL has no bounds. Queue time is the server's own mean; requests that wait are those once the "
    "load stands. Under a burst each request waits behind the others' prefill, so TTFT rises about in line with the load.",
    columns=lambda results: {each.tail: each.what for each in _panels(results)},
    note=lambda results: whole_runs_note(results.whole_runs.height, marks="In grey squares"),
)
def latencies(results: Results) -> alt.ConcatChart | alt.LayerChart:
    """TTFT, TPOT, ITL, E2E, queue time and waiting requests over load: a panel each, a line a curve.

    Args:
        results: `runs` with `level`, the latencies' percentiles and bounds (s), `server_queue_time_mean_s`, `waiting_standing` and
            `valid`.
    """
    runs = with_whole(results, with_curve(results, results.runs))
    panels = [latency_panel(results, runs, each) for each in _panels(results) if runs[each.tail].is_not_null().any()]
    if not panels:
        return nothing_to_show("no run has a latency")
    return alt.concat(*panels, columns=panels_a_row(len(panels), most=3))


def _panels(results: Results) -> list[LatencyPanel]:
    limits = {slo.metric: slo for slo in results.decision.slos if slo.request_class is None}
    found = []
    for name, title in _TITLES.items():
        slo = limits.get(name)
        percentile = slo.percentile if slo else _TAIL
        found.append(LatencyPanel(title, f"{title} {percentile.upper()}", "s", f"{name}_{percentile}_s", f"{name}_p50_s", slo))
    found.append(LatencyPanel("queue time", "queue time at the server, mean", "s", "server_queue_time_mean_s"))
    return [*found, LatencyPanel("waiting", "requests that wait", "requests", "waiting_standing")]

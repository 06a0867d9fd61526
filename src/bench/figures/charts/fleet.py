"""How the fleet's size moves with the SLO and with the peak."""

from __future__ import annotations

import math

import altair as alt
import polars as pl

from bench.analysis.sensitivity import sensitivity, steps_of
from bench.analysis.sizing import OperatingPoint, fleet
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import HEIGHT, curve_colour, nothing_to_show, with_curve
from bench.study import Slo

_WIDTH = 380
_FLEET = {"deployment": pl.String, "workload": pl.String, "peak": pl.Float64, "gpus": pl.Int64, "instances": pl.Int64}


@figure(
    "fleet",
    title="What one instance carries, and how many a peak takes",
    question="How do capacity and fleet change if the SLO or the peak turns out to be another one?",
    reading="Left, a panel an SLO: requests/s of one instance at its operating point, were this SLO's limit another one; dashed, the "
    "limit as it is. A step is a level that was measured. Right: GPUs (machines, where the engine runs on a CPU) for the SLOs as they "
    "are: peak ÷ usable requests/s, rounded up, × safety, rounded up, × GPUs of an instance; dashed, the peak that is planned for.",
    invalid="Left out",
    by_axis=False,
    uses=("slo", "failed_share", "peak_rps", "safety"),
)
def fleet_chart(results: Results) -> alt.HConcatChart | alt.LayerChart:
    """Usable requests/s against each SLO's limit, and GPUs against the peak, a line a curve.

    Args:
        results: `runs` as `operating_points` takes them; `decision` with its SLOs.
    """
    decision = results.decision
    if not decision.slo or results.points["c_max"].null_count() == len(results.points):
        return nothing_to_show(
            "no SLO, or no measured load meets it" if decision.slo else "the study's `decision` names no SLO"
        )
    panels = [_by_limit(results, slo) for slo in decision.slos]
    if decision.peak_rps is not None:
        panels.append(_by_peak(results, decision.peak_rps))
    return alt.hconcat(*panels)


def _by_limit(results: Results, slo: Slo) -> alt.LayerChart:
    last = 2 * max([*steps_of(results.curves, slo), slo.limit_s])
    parts = [  # each at its own steps: at those of all curves together, the time would grow with their square
        sensitivity(
            runs,
            results.decision.slos,
            slo,
            sorted({*steps_of(runs, slo), slo.limit_s, last}),
            results.decision.failed_share,
        )
        for runs in results.curves.partition_by("deployment", "workload", maintain_order=True)
    ]
    rows = with_curve(results, pl.concat(parts))
    x = alt.X(
        "limit_s:Q", title=f"limit of {slo.name} (s)", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format="~g")
    )
    y = alt.Y("usable_rps:Q", title="usable requests/s of an instance", scale=alt.Scale(domainMin=0))
    same = pl.struct("c_max", "usable_rps").ne_missing(pl.struct("c_max", "usable_rps").shift().over("curve"))
    rows = rows.filter(same | (pl.col("limit_s") == last))
    told = ["curve:N", alt.Tooltip("limit_s:Q", title="limit (s)", format=".3g"), alt.Tooltip("c_max:Q", title="C_max"),
            alt.Tooltip("usable_rps:Q", title="usable requests/s", format=".3g")]  # fmt: skip
    base = alt.Chart(rows.select("curve", "limit_s", "c_max", "usable_rps"))
    now = alt.Chart(pl.DataFrame({"limit_s": [slo.limit_s]})).mark_rule(strokeDash=[5, 4], color="#777777").encode(x=x)
    lines = base.mark_line(interpolate="step-after").encode(x=x, y=y, color=curve_colour(results))
    dots = base.mark_point(filled=True, size=25, opacity=1).encode(x=x, y=y, color=curve_colour(results), tooltip=told)
    return alt.LayerChart(layer=[now, lines, dots]).properties(width=_WIDTH, height=HEIGHT)


def _by_peak(results: Results, planned: float) -> alt.LayerChart:
    first = {(row["deployment"], row["workload"]): row for row in reversed(results.runs.to_dicts())}
    rows = []
    for row in results.points.iter_rows(named=True):
        point = OperatingPoint.of(row, first[row["deployment"], row["workload"]])
        if point is None:
            continue
        ends = [i * point.usable_rps for i in range(1, math.floor(2 * planned / point.usable_rps) + 1)]
        for peak in [0.0, *ends, 2 * planned]:
            found = fleet(point, peak or min([*ends, planned]), safety=results.decision.safety)
            rows.append((row["deployment"], row["workload"], peak, found.gpus, found.instances))
    frame = with_curve(results, pl.DataFrame(rows, schema=_FLEET, orient="row"))
    base = alt.Chart(frame.select("curve", "peak", "gpus", "instances"))
    x = alt.X("peak:Q", title="peak (requests/s)")
    y = alt.Y("gpus:Q", title="GPUs, or machines with a CPU engine")
    now = alt.Chart(pl.DataFrame({"peak": [planned]})).mark_rule(strokeDash=[5, 4], color="#777777").encode(x=x)
    lines = base.mark_line(interpolate="step-before").encode(x=x, y=y, color=curve_colour(results))
    hover = base.mark_point(size=25, opacity=0).encode(x=x, y=y, tooltip=["curve:N", "peak:Q", "instances:Q", "gpus:Q"])
    return alt.LayerChart(layer=[now, lines, hover]).properties(width=_WIDTH, height=HEIGHT)

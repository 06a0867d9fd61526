"""How the fleet's size moves with the SLO and with the peak."""

from __future__ import annotations

import math
from dataclasses import replace

import altair as alt
import polars as pl

from bench.analysis.sensitivity import sensitivity, steps_of
from bench.analysis.sizing import Fleet, OperatingPoint, fleet
from bench.figures.conditions import wanted
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import HEIGHT, NEUTRAL, curve_colour, curve_dash, curve_shape, nothing_to_show, with_curve
from bench.study import Slo

_WIDTH = 380
_RATE, _MACHINES = "usable requests/s of an instance", "GPUs, or machines with a CPU engine"
_STEPS = 200  # of a line over the peak; a finer one cannot be seen
_FLEET = {"deployment": pl.String, "workload": pl.String, "peak": pl.Float64, "instances": pl.Int64, "gpus": pl.Int64,
          "fewest": pl.Int64, "most": pl.Int64}  # fmt: skip


@figure(
    "fleet",
    applies=wanted("slo"),
    order=20,
    title="What one instance carries, and how many a peak takes",
    question="How do capacity and fleet change with another SLO or another peak?",
    reading="Left, a panel an SLO: requests/s of one instance, were this SLO's limit another one; each step is a measured level, a bar "
    "its 95 % range, dashed the limit as it is. Right: GPUs (machines, of a CPU engine) for the SLOs as they are: peak ÷ usable "
    "requests/s, rounded up, × safety, rounded up, × GPUs of an instance; shaded, the 95 % range; dashed, the planned peak. Without "
    "bar or shade an end of the range is not established. Bursts size no fleet.",
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
    results = replace(results, runs=results.runs.filter(pl.col("arrival") != "burst"), whole=results.study)
    if not decision.slo:
        return nothing_to_show("the study's `decision` names no SLO")
    if results.points["usable_rps"].null_count() == len(results.points):
        return nothing_to_show("no load that goes on meets the SLOs, or none was measured")
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
    y = alt.Y("usable_rps:Q", title=_RATE, scale=alt.Scale(domainMin=0))
    found = pl.struct("c_max", "usable_rps", "usable_low", "usable_high")
    another = found.ne_missing(found.shift().over("curve"))
    rows = rows.filter(another | pl.col("limit_s").is_in([slo.limit_s, last]))
    tooltip = ["curve:N", alt.Tooltip("limit_s:Q", title="limit (s)", format=".3g"), alt.Tooltip("c_max:Q", title="C_max"),
            alt.Tooltip("usable_rps:Q", title="usable requests/s", format=".3g"),
            *(alt.Tooltip(f"usable_{end}:Q", title=f"{end} end", format=".3g") for end in ("low", "high"))]  # fmt: skip
    base = alt.Chart(rows.select("curve", "limit_s", "c_max", "usable_rps", "usable_low", "usable_high"))
    now = alt.Chart(pl.DataFrame({"limit_s": [slo.limit_s]})).mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(x=x)
    lines = base.mark_line(interpolate="step-after").encode(
        x=x, y=y, color=curve_colour(results), strokeDash=curve_dash(results)
    )
    dots = base.mark_point(filled=True, size=35, opacity=1).encode(
        x=x, y=y, color=curve_colour(results), shape=curve_shape(results), tooltip=tooltip
    )
    known = alt.Chart(rows.drop_nulls(["usable_low", "usable_high"]).select("curve", "limit_s", "usable_low", "usable_high"))
    bars = known.mark_rule(opacity=0.5).encode(
        x=x, y=alt.Y("usable_low:Q", title=_RATE), y2="usable_high:Q", color=curve_colour(results)
    )
    return alt.LayerChart(layer=[now, bars, lines, dots]).properties(width=_WIDTH, height=HEIGHT)


def _by_peak(results: Results, planned: float) -> alt.LayerChart:
    first = {(row["deployment"], row["workload"]): row for row in reversed(results.runs.to_dicts())}
    rows = []
    for row in results.points.iter_rows(named=True):
        point = OperatingPoint.of(row, first[row["deployment"], row["workload"]])
        if point is None:
            continue
        known = point.usable_low and point.usable_high
        for peak in _peaks(point, planned):
            at = _fleet(point, point.usable_rps, peak, results.decision.safety)
            ends = [
                _fleet(point, rate, peak, results.decision.safety).gpus if known and rate else None
                for rate in (point.usable_high, point.usable_low)
            ]
            rows.append((row["deployment"], row["workload"], peak, at.instances, at.gpus, *ends))
    frame = with_curve(results, pl.DataFrame(rows, schema=_FLEET, orient="row"))
    base = alt.Chart(frame.select("curve", "peak", "gpus", "instances", "fewest", "most"))
    x = alt.X("peak:Q", title="peak (requests/s)")
    y = alt.Y("gpus:Q", title=_MACHINES)
    now = alt.Chart(pl.DataFrame({"peak": [planned]})).mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(x=x)
    lines = base.mark_line(interpolate="step-before").encode(
        x=x, y=y, color=curve_colour(results), strokeDash=curve_dash(results)
    )
    tooltip = ["curve:N", "peak:Q", "instances:Q", "gpus:Q", "fewest:Q", "most:Q"]
    hover = base.mark_point(size=25, opacity=0).encode(x=x, y=y, tooltip=tooltip)
    ranges = alt.Chart(frame.drop_nulls(["fewest", "most"]).select("curve", "peak", "fewest", "most"))
    shade = ranges.mark_area(interpolate="step-before", opacity=0.15).encode(
        x=x, y=alt.Y("fewest:Q", title=_MACHINES), y2="most:Q", color=curve_colour(results)
    )
    return alt.LayerChart(layer=[now, shade, lines, hover]).properties(width=_WIDTH, height=HEIGHT)


def _peaks(point: OperatingPoint, planned: float) -> list[float]:
    """Peaks up to twice the planned one: where an instance more is needed at the rate or at an end of its range, or, of very many such,
    evenly spaced ones.
    """
    rates = [rate for rate in (point.usable_rps, point.usable_low, point.usable_high) if rate]
    every = [rate if 2 * planned / rate <= _STEPS else 2 * planned / _STEPS for rate in rates]
    steps = {i * step for step in every for i in range(1, math.floor(2 * planned / step) + 1)}
    return sorted({0.0, planned, 2 * planned, *steps})


def _fleet(point: OperatingPoint, usable_rps: float, peak: float, safety: float) -> Fleet:
    """At no load at all it is one instance's."""
    return fleet(replace(point, usable_rps=usable_rps), max(peak, 1e-6 * usable_rps), safety=safety)

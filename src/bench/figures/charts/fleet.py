"""How the fleet's size moves with the SLO and with the peak."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import altair as alt
import polars as pl

from bench.analysis import is_machine
from bench.analysis.sensitivity import sensitivity, steps_of
from bench.analysis.sizing import Fleet, OperatingPoint, fleet, sized
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import HEIGHT, NEUTRAL, curve_colour, curve_shape, in_order, nothing_to_show, with_curve
from bench.figures.ticks import log_ticks, ticked
from bench.study.questions import wanted
from bench.study.slo import Slo
from bench.words.sizing import title

_WIDTH = 380
_RATE, _MACHINES = "usable requests/s of an instance", "GPUs, or machines with a CPU engine"
_STEPS = 200  # of a line over the peak; a finer one cannot be seen
_FLEET = {"deployment": pl.String, "workload": pl.String, "peak": pl.Float64, "instances": pl.Int64, "gpus": pl.Int64,
          "fewest": pl.Int64, "most": pl.Int64}  # fmt: skip


def _lasting(results: Results) -> Results:
    """Without bursts, as they size no fleet."""
    return replace(results, runs=results.runs.filter(pl.col("arrival") != "burst"), whole=results.study)


def _finding(results: Results) -> str | None:
    """What the planned peak takes, where every curve of a load that goes on knows it."""
    results, decision = _lasting(results), results.decision
    peak = decision.peak_rps
    if peak is None or not decision.slo:
        return None
    known = {(row["deployment"], row["workload"]): point for row, point in _operating(results)}
    fleets = []
    for row in in_order(results, results.points).to_dicts():
        curve = (row["deployment"], row["workload"])
        point = known.get(curve)
        name = " · ".join(curve) if results.several_workloads else curve[0]
        fleets.append((name, sized(point, peak, safety=decision.safety, slos=decision.slos) if point else None))
    machine = any(map(is_machine, results.runs.iter_rows(named=True)))
    return title(fleets, "machine" if machine else "GPU")


@figure(
    "fleet",
    applies=wanted("slo"),
    order=20,
    title="What one instance sustains, and how many a peak takes",
    question="How do capacity and fleet change with another SLO or another peak?",
    reading="Left, a panel an SLO: requests/s of one instance, were this SLO's limit another one; each step is a measured level, a bar "
    "its 95 % range, dashed the limit as it is. Right: GPUs (machines, of a CPU engine) for the SLOs as they are: peak ÷ usable "
    "requests/s, rounded up, × safety, rounded up, × GPUs of an instance; shaded, the 95 % range; dashed, the planned peak. Without "
    "bar or shade an end of the range is not established. Bursts size no fleet.",
    invalid="Left out",
    by_axis=False,
    uses=("slo", "failed_share", "peak_rps", "safety"),
    finding=_finding,
)
def fleet_chart(results: Results) -> alt.HConcatChart | alt.LayerChart:
    """Usable requests/s against each SLO's limit, and GPUs against the peak, a line a curve.

    Args:
        results: `runs` as `operating_points` takes them; `decision` with its SLOs.
    """
    decision = results.decision
    results = _lasting(results)
    if not decision.slo:
        return nothing_to_show("the study's `decision` names no SLO")
    if results.points["usable_rps"].null_count() == len(results.points):
        valid = results.runs["valid"].any()
        return nothing_to_show(
            "no load that goes on is known to meet the SLOs" if valid else "no load that goes on has a valid run"
        )
    panels = [panel for slo in decision.slos if (panel := _by_limit(results, slo))]
    if decision.peak_rps is not None:
        panels.append(_by_peak(results, decision.peak_rps))
    return alt.hconcat(*panels)


def _by_limit(results: Results, slo: Slo) -> alt.LayerChart | None:
    """The chart of the curves that the SLO limits; None where none of them meets it or a wider one: no run may have its class."""
    of_slo = results.points.filter(pl.col("slos").list.contains(str(slo)))
    curves = results.curves.join(of_slo, on=["deployment", "workload"], how="semi", maintain_order="left")
    if curves.is_empty():
        return None
    last = 2 * max([*steps_of(curves, slo), slo.limit_s])
    parts = [  # each at its own steps: at those of all curves together, the time would grow with their square
        sensitivity(
            runs,
            results.decision.slos,
            slo,
            sorted({*steps_of(runs, slo), slo.limit_s, last}),
            results.decision.failed_share,
        )
        for runs in curves.partition_by("deployment", "workload", maintain_order=True)
    ]
    rows = with_curve(results, pl.concat(parts))
    if rows.is_empty():
        return None
    ends = float(rows["limit_s"].min()), last  # type: ignore[arg-type]
    x = alt.X(
        "limit_s:Q",
        title=f"limit of {slo.name} (s, log)",
        scale=alt.Scale(type="log", domain=ends, nice=False),
        axis=ticked(log_ticks(*ends), *ends, format="~g"),
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
    lines = base.mark_line(interpolate="step-after").encode(x=x, y=y, color=curve_colour(results))
    dots = base.mark_point(filled=True, size=35, opacity=1).encode(
        x=x, y=y, color=curve_colour(results), shape=curve_shape(results), tooltip=tooltip
    )
    known = alt.Chart(rows.drop_nulls(["usable_low", "usable_high"]).select("curve", "limit_s", "usable_low", "usable_high"))
    bars = known.mark_rule(opacity=0.5).encode(
        x=x, y=alt.Y("usable_low:Q", title=_RATE), y2=alt.Y2("usable_high:Q"), color=curve_colour(results)
    )
    return alt.LayerChart(layer=[now, bars, lines, dots]).properties(width=_WIDTH, height=HEIGHT)


def _by_peak(results: Results, planned: float) -> alt.LayerChart:
    rows = []
    for row, point in _operating(results):
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
    lines = base.mark_line(interpolate="step-before").encode(x=x, y=y, color=curve_colour(results))
    dots = (
        base.transform_filter(f"datum.peak == {planned}")
        .mark_point(filled=True, size=45, opacity=1)
        .encode(x=x, y=y, color=curve_colour(results), shape=curve_shape(results))
    )
    tooltip = ["curve:N", "peak:Q", "instances:Q", "gpus:Q", "fewest:Q", "most:Q"]
    hover = base.mark_point(size=25, opacity=0).encode(x=x, y=y, tooltip=tooltip)
    ranges = alt.Chart(frame.drop_nulls(["fewest", "most"]).select("curve", "peak", "fewest", "most"))
    shade = ranges.mark_area(interpolate="step-before", opacity=0.15).encode(
        x=x, y=alt.Y("fewest:Q", title=_MACHINES), y2=alt.Y2("most:Q"), color=curve_colour(results)
    )
    return alt.LayerChart(layer=[now, shade, lines, dots, hover]).properties(width=_WIDTH, height=HEIGHT)


def _operating(results: Results) -> list[tuple[dict[str, Any], OperatingPoint]]:
    """The rows of `points` at which an instance can be operated, with what it then sustains."""
    first = {(row["deployment"], row["workload"]): row for row in reversed(results.runs.to_dicts())}
    found = [
        (row, OperatingPoint.of(row, first[row["deployment"], row["workload"]]))
        for row in in_order(results, results.points).to_dicts()
    ]
    return [(row, point) for row, point in found if point is not None]


def _peaks(point: OperatingPoint, planned: float) -> list[float]:
    """Peaks up to twice the planned one: where an instance more is needed at the rate or at an end of its range, or, of very many such,
    evenly spaced ones.
    """
    rates = [rate for rate in (point.usable_rps, point.usable_low, point.usable_high) if rate]
    every = [rate if 2 * planned / rate <= _STEPS else 2 * planned / _STEPS for rate in rates]
    steps = {i * step for step in every for i in range(1, math.floor(2 * planned / step) + 1)}
    return sorted({0.0, planned, 2 * planned, *steps})


def _fleet(point: OperatingPoint, usable_rps: float, peak: float, safety: float) -> Fleet:
    """The fleet for a peak; one instance where nothing comes."""
    return fleet(replace(point, usable_rps=usable_rps), max(peak, 1e-6 * usable_rps), safety=safety)

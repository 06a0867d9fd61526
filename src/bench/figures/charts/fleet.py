"""How many GPUs a peak takes."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import polars as pl

from bench.analysis import is_machine
from bench.analysis.sizing import OperatingPoint, fleet, sized
from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import NEUTRAL, curve_colour, in_order, layered, nothing_to_show, with_curve
from bench.words.sizing import title

_MACHINES = "GPUs, or machines with a CPU engine"
_STEPS = 100  # of a line up to the planned peak; a finer one cannot be seen


def _operating(results: Tables) -> list[tuple[str, str, OperatingPoint | None]]:
    """The curves of loads that go on, with what an instance sustains where that is known."""
    runs = {(row["deployment"], row["workload"]): row for row in results.runs.to_dicts()}
    rows = in_order(results, results.points).to_dicts()
    curves = [(row["deployment"], row["workload"], row) for row in rows]
    return [(name, load, OperatingPoint.of(row, runs[name, load])) for name, load, row in curves if row["basis"] != "burst"]


def _finding(results: Tables) -> str | None:
    """What the planned peak takes, where every curve of a load that goes on knows it."""
    decision = results.decision
    if (peak := decision.peak_rps) is None or not decision.slo:
        return None
    fleets = [
        (
            f"{name} · {load}" if results.several_workloads else name,
            sized(point, peak, safety=decision.safety, slos=decision.slos) if point else None,
        )
        for name, load, point in _operating(results)
    ]
    machine = any(map(is_machine, results.runs.iter_rows(named=True)))
    return title(fleets, "machine" if machine else "GPU")


@figure(
    "fleet",
    title="How many GPUs a peak takes",
    question="How does the fleet grow with the peak?",
    reading="GPUs (machines, of a CPU engine) for the SLOs: peak ÷ usable requests/s, rounded up, × safety, rounded up, × GPUs of an "
    "instance; shaded, the 95 % range, where both of its ends are established; dashed, the planned peak. Bursts size no fleet.",
    invalid="Left out",
    by_axis=False,
    finding=_finding,
)
def fleet_chart(results: Tables) -> alt.LayerChart:
    """GPUs against the peak, a line a curve.

    Args:
        results: `runs` as `operating_points` takes them; `decision` with its SLOs and its peak.
    """
    decision = results.decision
    planned = decision.peak_rps
    if planned is None:
        return nothing_to_show("the study's `decision` names no peak")
    rows = []
    for name, load, point in _operating(results):
        for step in range(1, 2 * _STEPS + 1) if point else ():
            assert point
            peak = planned * step / _STEPS
            ends = point.usable_high, point.usable_rps, point.usable_low
            sizes = [
                fleet(replace(point, usable_rps=rate), peak, safety=decision.safety).gpus if rate else None for rate in ends
            ]
            rows.append((name, load, peak, *(sizes if None not in ends else (None, sizes[1], None))))
    if not rows:
        valid = results.runs.filter(pl.col("arrival") != "burst")["valid"].any()
        why = "no load that goes on is known to meet the SLOs" if valid else "no load that goes on has a valid run"
        return nothing_to_show(why)
    numbers = dict.fromkeys(("fewest", "gpus", "most"), pl.Int64)
    schema = {"deployment": pl.String, "workload": pl.String, "peak": pl.Float64, **numbers}
    base = alt.Chart(with_curve(results, pl.DataFrame(rows, schema=schema, orient="row")).select("curve", "peak", *numbers))
    x, colour = alt.X("peak:Q", title="peak (requests/s)"), curve_colour(results)
    y, least = alt.Y("gpus:Q", title=_MACHINES), alt.Y("fewest:Q", title=_MACHINES)
    step_line = base.mark_line(interpolate="step-before").encode(
        x=x, y=y, color=colour, tooltip=["curve:N", "peak:Q", "gpus:Q", "fewest:Q", "most:Q"]
    )
    shade = base.transform_filter("isValid(datum.most)").mark_area(interpolate="step-before", opacity=0.15)
    now = alt.Chart(pl.DataFrame({"peak": [planned]})).mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(x=x)
    return layered(now, shade.encode(x=x, y=least, y2=alt.Y2("most:Q"), color=colour), step_line)

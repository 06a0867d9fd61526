"""What each curve sustains, in one table: the first thing that a report says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.axes import AXES
from bench.findings.capacity import words as capacity
from bench.findings.capacity.curves import Curve
from bench.report.blocks import Block, Charts, Column, Section, Table
from bench.runs.sentences import between_text, load_text

if TYPE_CHECKING:
    from bench.findings.view import View

_MOST_CURVES = 12  # most curves of a first screen; convention


def section(view: View) -> Section:
    sustains = f"sustains within {view.within}" if view.within else "sustains"
    columns = [Column("curve", "curve"), Column(sustains, "sustains"), Column("KV cache full at", "full")]
    if peak := view.results.decision.peak_rps:
        columns.append(Column(f"a peak of {peak:g} requests/s takes", "fleet"))
    table: list[Block] = [Table("What each curve sustains", columns, view.of_curves(headline(view.curves)))]
    return Section("headline", "At a glance", [*table, Charts(view.figures[:1])], short=table, heading=False)


def headline(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """What each curve sustains, where its cache fills, and how many a peak takes; none where they would not fit a first screen."""
    limited = any(curve.slos for curve in curves)
    found = [
        {
            "curve": curve.name,
            "deployment": curve.deployment,
            "workload": curve.workload,
            "sustains": _sustained(curve, free=limited and not curve.slos) or None,
            "full": _full(curve) or None,
            "fleet": _fleet(curve) or None,
        }
        for curve in curves
    ]
    known = [row for row in found if row["sustains"] or row["full"] or row["fleet"]]
    return known if len(known) <= _MOST_CURVES else []


def _sustained(curve: Curve, *, free: bool) -> str:
    """The highest load within the SLOs, of a search, or else the rate of the highest measured one. Args: free: no SLO limits it."""
    if (found := curve.searched) and found.why == "found":
        between = between_text(found.low or None, found.high, "{:.3g}")
        return _strong(f"{found.limit:.3g}", AXES[found.axis].short, between)
    point = curve.point
    if point and point["kind"] == "below" and capacity.too_close(point):
        return f"too close to tell at {load_text(point['missed_at'], point['unit'])}"
    if curve.burst or point is None or point["usable_rps"] is None:
        return ""
    between = between_text(point["usable_low"], point["usable_high"], "{:.3g}")
    return _strong(f"{point['usable_rps']:.3g}", "requests/s", between) + ", no SLO limits it" * free


def _full(curve: Curve) -> str:
    row = curve.saturation
    if row is None or row["measured"] is None or not AXES[row["axis"]].requests:
        return ""
    return _strong(f"{row['measured']:g}", "in flight", "" if row["below"] is None else f"not at {row['below']:g}")


def _fleet(curve: Curve) -> str:
    fleet = curve.fleet
    if not fleet or not fleet["instances"]:
        return ""
    return _strong(
        f"{fleet['instances']:,d}", "instances", between_text(fleet["instances_least"], fleet["instances_most"], "{:.3g}")
    )


def _strong(value: str, unit: str, between: str) -> str:
    return f"**{value}** {unit}" + (f" ({between})" if between else "")

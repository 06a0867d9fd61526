"""What each start of a tuning showed of its candidate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bench.report.blocks import Cell, Column, Section, Table
from bench.runs.searches import TuningRecord, Visit

if TYPE_CHECKING:
    from bench.findings.view import View

_COLUMNS = (
    Column("candidate", "candidate"),
    Column("start", "start"),
    Column("highest load within the SLOs", "rate"),
    Column("95 % interval", "interval"),
    Column("its search ended", "why"),
)


def section(view: View) -> Section:
    found = view.results.tuning
    if found is None:
        return Section("tuning", "What each candidate sustains", [])
    best = {visit.deployment: visit.middle for visit in found.visits if visit.middle is not None}
    visits = sorted(found.visits, key=lambda visit: -best.get(visit.deployment, -math.inf))
    unit = f"{found.unit} for each GPU" if found.objective == "cost" else found.unit
    table = Table(f"Starts of candidates' servers ({unit})", _COLUMNS, [_row(found, visit) for visit in visits])
    return Section("tuning", "What each candidate sustains", [table])


def _row(found: TuningRecord, visit: Visit) -> dict[str, Any]:
    roles = [role for role, of in (("default", found.default), ("winner", found.winner)) if of == visit.deployment]
    unit = found.units.get(visit.deployment, 1.0)
    rate = None if visit.middle is None else math.exp(visit.middle) / unit
    high = "not established" if visit.high is None else f"{visit.high / unit:.3g}"
    return {
        "deployment": visit.deployment,
        "candidate": f"{visit.deployment} ({' and '.join(roles)})" if roles else visit.deployment,
        "start": f"{visit.phase} {visit.round}",
        "rate": Cell("–" if rate is None else f"{rate:.3g}", rate),
        "interval": f"{visit.low / unit:.3g} to {high}",
        "why": visit.why,
    }

"""How sure the limit of each curve is, as a section of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.findings.capacity.curves import Curve
from bench.findings.predicted import time_spent
from bench.report.blocks import Article, Section

if TYPE_CHECKING:
    from bench.findings.view import View


def section(view: View) -> Section:
    spent = time_spent(view)
    judged = [curve for curve in view.curves if curve.point]
    blocks = [_sure(view, curve, spent.get((curve.deployment, curve.workload), "")) for curve in judged]
    return Section("verdicts", "How sure that is, curve by curve", blocks, short=[])


def _sure(view: View, curve: Curve, spent: str) -> Article:
    lines = [curve.sure, spent if curve.limit else "", curve.contradiction]
    return Article(curve.name, lines, deployment=curve.deployment, family=view.families[curve.workload])

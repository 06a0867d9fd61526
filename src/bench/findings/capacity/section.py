"""The limit of each curve, as a section of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.findings.capacity.curves import Curve
from bench.findings.capacity.words import BURSTS
from bench.findings.predicted import time_spent
from bench.report.blocks import Article, Block, Items, Section, Text

if TYPE_CHECKING:
    from bench.findings.view import View


def section(view: View) -> Section:
    spent = time_spent(view)
    blocks: list[Block] = [Text(text) for text in [_judged(view)] if text]
    blocks += [_limit(view, curve, spent.get((curve.deployment, curve.workload), "")) for curve in view.curves]
    short = [Items([f"**{curve.name}**: {curve.why}"]) for curve in view.curves if curve.limit and curve.why]
    return Section("verdicts", "Limit of each curve", blocks if view.curves else [], short=short)


def _judged(view: View) -> str:
    """By what the curves are judged; or that nothing judges them."""
    if view.within:
        return (
            f"One instance has to meet {view.within}. C_max is the highest measured load that does, judged in the steady part "
            f"of its runs; "
            "every range is at 95 % confidence."
            + (" Invalid runs decide nothing." if view.invalid.height else "")
            + (f" {BURSTS}" if any(curve.burst for curve in view.curves) else "")
        )
    if view.results.decision.slos:
        return ""
    return (
        "The study's `decision` sets no SLO, so C_max, the highest load that is sustained, is given of open loops alone. With "
        "an SLO, such as `slo: [ttft_p99=1s]`, every curve has one; nothing is measured again."
        + (" The searches have SLOs of their own." if view.results.answered else "")
    )


def _limit(view: View, curve: Curve, spent: str) -> Article:
    limit = curve.limit
    free = " No SLO limits it." if view.results.decision.slos and curve.point and not curve.slos else ""
    terms = {
        "Why not more": curve.why if limit else "",
        "Where the time goes": spent if limit else "",
        "What would raise it": curve.remedy,
        "Fleet": curve.takes if limit else "",
        "Contradiction": curve.contradiction,
        "Evidence": "`" + "`, `".join(limit.runs) + "`" if limit and limit.runs else "",
    }
    return Article(
        curve.name,
        [curve.sustains + free, curve.sure],
        [(term, [text]) for term, text in terms.items() if text],
        deployment=curve.deployment,
        family=view.families[curve.workload],
    )

"""The questions that a study's runs can answer, the study's own first, and their answers in words.

Which question the runs ask is decided by the conditions by which they get figures (`bench.study.questions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.axes import AXES
from bench.findings import advice, lengths
from bench.findings import levels as alone
from bench.findings import saturation as saturates
from bench.findings import settings as setting_gain
from bench.findings.analysis import asked_of
from bench.findings.capacity.curves import Curve
from bench.findings.comparison import words as against
from bench.findings.factors import answer as factors_answer
from bench.findings.tables import Tables
from bench.report.blocks import Answer, Section
from bench.search import tuning_words as tuning
from bench.search import words as searches
from bench.study.questions import (
    Rows,
    beside_baseline,
    crossed_factors,
    several_settings,
    swept_length,
    with_and_without_streaming,
)

if TYPE_CHECKING:
    from bench.findings.view import View


def answers(results: Tables, curves: list[Curve]) -> list[Answer]:
    """What the runs answer beyond what curves sustain, which the first screen has; the study's own question first."""
    rows = asked_of(results.runs)
    found = [answer for answer in _answers(results, rows, curves) if answer.lines]
    # What a curve sustains within the SLOs is said once, with what its search says of it.
    told = [curve.searched for curve in curves if curve.point]
    others = searches.answer((name, record) for name, record in results.searches if record not in told)
    found = [others, *found] if others.lines else found
    return found


def _answers(results: Tables, rows: Rows, curves: list[Curve]) -> Iterator[Answer]:
    runs, findings = results.runs, results.analysis.findings
    if results.tuning:
        yield tuning.answer(results.tuning)
    against_others = beside_baseline(rows) and bool(results.comparisons)
    told: set[frozenset[str]] = set()
    if against_others:
        baseline = next(iter(runs.filter("baseline")["deployment"]))
        told = {frozenset((baseline, name)) for name in results.comparisons}
        yield against.answer(baseline, results.comparisons)
    if crossed_factors(rows):
        yield factors_answer(findings.factors)
    swept, streamed = swept_length(rows), with_and_without_streaming(rows)
    if swept or streamed:
        yield lengths.answer(findings.lengths, findings.streaming)
    # What the comparison with the baseline answers is not answered again.
    if gains := [each for each in findings.settings if each.times or frozenset(each.deployments) not in told]:
        yield setting_gain.answer(gains)
    full = [each.saturation for each in curves if each.saturation and not each.point and AXES[each.saturation["axis"]].requests]
    compared = against_others or several_settings(rows)
    if full and not compared:  # else it is a detail, which the tables have
        yield saturates.answer(full, several_workloads=results.several_workloads)
    yield alone.answer(results)
    yield advice.answer(findings.advice)


def section(view: View) -> Section:
    return Section("answers", "In short", view.answers, short=view.answers, heading=False)

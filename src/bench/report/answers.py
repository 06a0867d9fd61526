"""The questions that a study's runs can answer, the study's own first, and their answers in words.

Which question the runs ask is decided by the conditions by which they get figures (`bench.figures.conditions`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import polars as pl

from bench.analysis import decided, device_gains, length_costs, recoveries, streamed_both_ways, streaming_gains, sustained
from bench.analysis.decisive import crossed
from bench.analysis.recommendation import KvBytes
from bench.figures import Results
from bench.figures.conditions import (
    Rows,
    beside_baseline,
    crossed_factors,
    lengths,
    several_device_counts,
    with_and_without_streaming,
)
from bench.records.searches import SearchRecord
from bench.report.findings import Curve, Findings
from bench.study.workload import ALIKE
from bench.words import advice, against, alone, carried, decisive, saturates, searches, second_device, token_costs
from bench.words import sustained as sustained_words
from bench.words.answer import Answer, remedy_once
from bench.words.loads import UNITS

__all__ = ["answers"]

# What the conditions look at.
_ASKED = ("family", "workload", "model", "engine", "tensor_parallel", "stream", "baseline", *ALIKE)
_SWEEPS = (lengths("prompt_fixed"), lengths("output_fixed"))


def answers(results: Results, findings: Findings, searched: Sequence[tuple[str, SearchRecord]] = ()) -> list[Answer]:
    """What the runs answer, the study's own question first.

    Args:
        searched: the deployment of each search, and what it found.
    """
    rows = results.runs.select(_ASKED).to_dicts()
    found = [answer for answer in _answers(results, rows, findings) if answer.lines]
    # What a curve carries within the SLOs is answered once, with what its search says of it.
    carried_there = [curve.searched for curve in _carried(results, findings)]
    others = searches.answer((name, record) for name, record in searched if record not in carried_there)
    found = [others, *found] if others.lines else found
    if left := _alone(results.runs, findings.curves, found, {(name, record.workload) for name, record in searched}):
        found.append(alone.answer(left, UNITS))
    return remedy_once(found)


def _answers(results: Results, rows: Rows, findings: Findings) -> Iterator[Answer]:
    runs, decision, curves = results.runs, results.decision, findings.curves
    carrying = _carried(results, findings)
    sized = decision.peak_rps is not None and bool(carrying)
    if sized:
        yield carried.answer(carrying, decision.slos, decision.peak_rps)
    against_others = beside_baseline(rows) and any(not each.replica for each in results.comparisons.values())
    if against_others:
        yield against.answer(next(iter(runs.filter("baseline")["deployment"])), results.comparisons)
    if crossed_factors(rows):
        yield decisive.answer(decided(runs))
    swept, streamed = any(applies(rows) for applies in _SWEEPS), with_and_without_streaming(rows)
    if swept or streamed:
        yield token_costs.answer(length_costs(runs) if swept else [], streaming_gains(runs) if streamed else [])
    if several_device_counts(rows) and (gains := device_gains(results.plain)):
        yield second_device.answer(gains)
    # The first answer has every curve, where there is one.
    open_loops = results.curves.clear() if sized else results.curves.filter(pl.col("axis") != "concurrency")
    steps = recoveries(runs)
    if open_loops.height or steps:
        yield sustained_words.answer(
            sustained(open_loops, decision.slos, decision.failed_share), steps, decision.slos, decision.failed_share
        )
    if carrying and not sized:
        yield carried.answer(carrying, decision.slos, None)
    full = [curve.saturation for curve in curves if curve.saturation and curve.saturation["axis"] == "concurrency"]
    compared = against_others or several_device_counts(rows)
    if full and (decision.slo or not compared):  # beside a comparison it is a detail, which the tables have
        kv_bytes = [advice.sentence(each) for each in findings.advice if isinstance(each.evidence, KvBytes)]
        yield saturates.answer(
            full, several_workloads=results.several_workloads, decided=bool(decision.slo), geometry="".join(kv_bytes)
        )


def _carried(results: Results, findings: Findings) -> list[Curve]:
    """The curves whose capacity is answered by itself: without a peak, an open loop's is that of the loads that it sustains."""
    judged = [curve for curve in findings.curves if curve.point]
    if results.decision.peak_rps is not None:
        return judged
    return [curve for curve in judged if curve.point and curve.point["axis"] == "concurrency"]


def _alone(
    runs: pl.DataFrame, curves: list[Curve], found: list[Answer], searched: Collection[tuple[str, str]]
) -> list[dict[str, object]]:
    """The runs of which no answer speaks: of workloads that were measured at a single load, and by no search."""
    spoken = {answer.name for answer in found}
    left = runs
    if "lengths" in spoken:
        left = left.filter(pl.col("workload") == pl.col("family"))
        left = left.join(streamed_both_ways(runs), on=["deployment", "run"], how="anti", maintain_order="left")
    if "factors" in spoken:
        left = left.filter(~crossed())
    known = {*searched, *((curve.deployment, curve.workload) for curve in curves)}
    rows = left.filter(pl.col("recovered").is_null()).drop("judged").to_dicts()
    return [row for row in rows if (row["deployment"], row["workload"]) not in known]

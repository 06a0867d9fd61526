"""The questions that a study's runs can answer, the study's own first, and their answers in words.

Which question the runs ask is decided by the conditions by which they get figures (`bench.figures.conditions`).
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from bench.analysis import decided, device_gains, length_costs, recoveries, streaming_gains, sustained
from bench.figures import Results
from bench.figures.conditions import (
    ALIKE,
    Rows,
    beside_baseline,
    crossed_factors,
    lengths,
    several_device_counts,
    with_and_without_streaming,
)
from bench.report.findings import Curve
from bench.words import against, alone, carried, decisive, saturates, second_device, token_costs
from bench.words import sustained as sustained_words
from bench.words.answer import Answer

__all__ = ["answers"]

_UNITS = {"concurrency": "requests in flight", "request_rate": "requests/s", "time_scale": "times the trace's speed"}
# What the conditions look at.
_ASKED = ("family", "workload", "model", "engine", "tensor_parallel", "stream", "baseline", *ALIKE)
_SWEEPS = (lengths("prompt_fixed"), lengths("output_fixed"))


def answers(results: Results, curves: list[Curve]) -> list[Answer]:
    """What the runs answer, the study's own question first.

    Args:
        curves: what was found of each curve.
    """
    rows = results.runs.select(_ASKED).to_dicts()
    found = list(_answers(results, rows, curves))
    if left := _alone(results.runs, curves, found):
        found.append(alone.answer(left, _UNITS))
    return found


def _answers(results: Results, rows: Rows, curves: list[Curve]) -> Iterator[Answer]:
    runs, decision = results.runs, results.decision
    judged = [curve for curve in curves if curve.point]
    sized = decision.peak_rps is not None and bool(judged)
    if sized:
        yield carried.answer(judged, decision.slos, decision.peak_rps)
    if beside_baseline(rows):
        yield against.answer(next(iter(runs.filter("baseline")["deployment"])), results.comparisons)
    if crossed_factors(rows):
        yield decisive.answer(decided(runs))
    swept, streamed = any(applies(rows) for applies in _SWEEPS), with_and_without_streaming(rows)
    if swept or streamed:
        yield token_costs.answer(length_costs(runs) if swept else [], streaming_gains(runs) if streamed else [])
    if several_device_counts(rows) and (gains := device_gains(runs)):
        yield second_device.answer(gains)
    # The first answer has every curve, where there is one.
    open_loops = results.curves.clear() if sized else results.curves.filter(pl.col("axis") == "request_rate")
    steps = recoveries(runs)
    if open_loops.height or steps:
        yield sustained_words.answer(
            sustained(open_loops, decision.slos, decision.failed_share), steps, decision.slos, decision.failed_share
        )
    closed = [curve for curve in judged if curve.point and curve.point["axis"] != "request_rate"]
    if closed and not sized:
        yield carried.answer(closed, decision.slos, None)
    full = [curve.saturation for curve in curves if curve.saturation and curve.saturation["axis"] == "concurrency"]
    compared = beside_baseline(rows) or several_device_counts(rows)
    if full and (decision.slo or not compared):  # beside a comparison it is a detail, which the tables have
        yield saturates.answer(full, several_workloads=results.several_workloads, decided=bool(decision.slo))


def _alone(runs: pl.DataFrame, curves: list[Curve], found: list[Answer]) -> list[dict[str, object]]:
    """The runs of which no answer speaks: of workloads that were measured at a single load."""
    spoken = {answer.name for answer in found}
    left = runs
    if "lengths" in spoken:
        left = left.filter((pl.col("workload") == pl.col("family")) & (pl.col("stream").n_unique().over(ALIKE) < 2))
    if "factors" in spoken:
        left = left.filter(pl.col("workload") == pl.col("family"))
    known = {(curve.deployment, curve.workload) for curve in curves}
    rows = left.filter(pl.col("recovered").is_null()).drop("judged").to_dicts()
    return [row for row in rows if (row["deployment"], row["workload"]) not in known]

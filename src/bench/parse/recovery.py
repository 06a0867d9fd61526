"""How long a server takes to come back after a step in its load. Definition: docs/reference/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from bench.statistics.percentiles import percentile

# requests of a recovered window; derived: one of a server that is as before passes with a probability of 0.999 (`recovery`)
_WINDOW = 9


@dataclass(frozen=True)
class Recovery:
    """What the step did.

    Attributes:
        baseline_p50_s, baseline_p90_s: TTFT before the step (s); None where fewer than `_WINDOW` requests stand for it.
        recovered: whether TTFT came back; None if unknown: no baseline, or fewer than `_WINDOW` requests after the step.
        recovery_s: time from the step's end to the first request of the first recovered window (s); None unless recovered.
    """

    baseline_p50_s: float | None
    baseline_p90_s: float | None
    recovered: bool | None
    recovery_s: float | None


def recovery(requests: pl.DataFrame, *, step_start_s: float, step_end_s: float) -> Recovery:
    """When TTFT was back at what it was before a step in the load.

    The baseline is the TTFT of the `ok` requests that were due before the step. The server has recovered at the first nine
    consecutive requests, all due at or after the step's end, whose median TTFT is at most the baseline's P90; a request that failed
    is one of infinite TTFT, and an answer without TTFT says nothing. The median of nine passes over a few slow requests, and the P90
    keeps noise out: of a server that is as before the step, a window passes with a probability of 0.999 (at most 4 of 9 above a value
    that one of ten exceeds).

    Args:
        requests: `scheduled_s` (s since the run's start), `outcome`, `ttft_s` (s, null without a token). step_start_s, step_end_s:
            between which moments the load was higher (s since the run's start).
    """
    due = requests.rename({"scheduled_s": "due_s"})
    before = due.filter((pl.col("due_s") < step_start_s) & (pl.col("outcome") == "ok"))["ttft_s"].drop_nulls()
    if len(before) < _WINDOW:
        return Recovery(None, None, None, None)
    p50, p90 = percentile(before, 0.5), percentile(before, 0.9)
    # A request that failed is one of infinite TTFT. Polars puts a window's median at its last row; the shift brings it to its first.
    ok = pl.col("outcome") == "ok"
    after = (
        due.filter(pl.col("due_s") >= step_end_s)
        .sort("due_s")
        .select("due_s", ttft_s=pl.when(ok).then("ttft_s").otherwise(float("inf")))
        .drop_nulls("ttft_s")
    )
    if len(after) < _WINDOW:
        return Recovery(p50, p90, None, None)
    back = after.filter(pl.col("ttft_s").rolling_median(_WINDOW).shift(1 - _WINDOW) <= p90)["due_s"]
    return Recovery(p50, p90, recovered=len(back) > 0, recovery_s=float(back[0]) - step_end_s if len(back) else None)

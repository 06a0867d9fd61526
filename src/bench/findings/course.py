"""The course of a run: when its KV cache is full and for how long, how its throughput moves before, then and throughout, and how
the server recovers from a step in its load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from bench.parse.server import FULL
from bench.report.blocks import Answer
from bench.runs.sentences import load_cell
from bench.statistics.textbook import student_t

_STANDS = 0.9  # share of the most requests that ran, from which on the load stands; convention
# Of a stretch, parts whose means count as independent, and bins in each of them; tuned: where each bin's noise is to six tenths that
# of the one before, 91 to 95 % of the intervals held, and 83 % with parts of two bins.
_PARTS, _PART = 10, 5
_FEWEST = 4 * _PART  # bins of a stretch of which anything is said: a line through four means
_RANKS = 6  # fewest requests of a burst whose waits have a slope; convention
Change = tuple[float, float, float]


@dataclass(frozen=True)
class Course:
    """What happens within a run.

    Attributes:
        full_after_s, full_for_s: when the KV cache is full first, and for how long in all (s); None where it never is, or is not known.
        running: requests that run while it is full, in the median.
        filling, full: by which share throughput changes from the begin to the end of the stretch in which the load stands and the cache
            fills, and of that in which it is full, each with its 95 % interval; None of stretches that are too short to tell.
        swing: how far the peaks (P95) of throughput lie above its valleys (P5) while the load stands, as a share of its mean.
    """

    full_after_s: float | None = None
    full_for_s: float | None = None
    running: float | None = None
    filling: Change | None = None
    full: Change | None = None
    swing: float | None = None


def course(timeseries: pl.DataFrame) -> Course:
    """Args: timeseries: of one run: `series`, `elapsed_s` (s) and `value`, of `throughput`, `running` and `kv_usage`."""
    series = {
        name: timeseries.filter(series=name).sort("elapsed_s").select("elapsed_s", "value").to_numpy()
        for name in ("throughput", "running", "kv_usage")
    }
    speed, running, usage = series["throughput"], series["running"], series["kv_usage"]
    full_at = usage[usage[:, 1] >= FULL, 0]
    begin, end = (float(full_at[0]), float(full_at[-1])) if len(full_at) else (None, None)
    lasts = len(full_at) * float(np.median(np.diff(usage[:, 0]))) if len(usage) > 1 else None
    stood = running[running[:, 1] >= _STANDS * running[:, 1].max(), 0] if len(running) else speed[:, 0]
    if not len(stood) or not len(speed):
        return Course(begin, lasts if begin is not None else None)
    stands = _between(speed, stood[0], stood[-1])
    values = stands[:, 1]
    swing = (
        float(np.subtract(*np.percentile(values, (95, 5))) / values.mean()) if len(values) >= _FEWEST and values.any() else None
    )
    if begin is None or end is None:
        return Course(filling=_change(stands), swing=swing)
    ran = _between(running, begin, end)
    return Course(
        *(begin, lasts, float(np.median(ran[:, 1])) if len(ran) else None),
        filling=_change(_between(speed, stood[0], begin)),
        full=_change(_between(speed, begin, end)),
        swing=swing,
    )


def _between(rows: np.ndarray[Any, Any], begin: float, end: float) -> np.ndarray[Any, Any]:
    return rows[(rows[:, 0] >= begin) & (rows[:, 0] <= end)]


def _change(rows: np.ndarray[Any, Any]) -> Change | None:
    """The change along a least-squares line from the first to the last value, as a share of the first, with its 95 % interval.

    Neighbours depend on each other, so the line goes through the means of up to ten parts (Student's t, parts − 2).
    """
    if len(rows) < _FEWEST:
        return None
    parts = np.array_split(rows, min(_PARTS, len(rows) // _PART))
    time, value = (np.array([part[:, column].mean() for part in parts]) for column in (0, 1))
    (slope, level), covariance = np.polyfit(time, value, 1, cov=True)
    first = level + slope * rows[0, 0]
    if first <= 0:
        return None
    share = (rows[-1, 0] - rows[0, 0]) / first
    half = student_t(len(parts) - 2) * float(covariance[0, 0]) ** 0.5
    return float(slope * share), float((slope - half) * share), float((slope + half) * share)


def ttft_slope(judged: Sequence[Mapping[str, Any]]) -> float | None:
    """By how much each request of a burst waits longer for its first token than the one before it (s); None of fewer than six.

    Args:
        judged: the requests of a run, as the summary's column has them. By their TTFT they are in the order in which they were served.
    """
    waits = np.sort([each["ttft"] for each in judged if each["ok"] and each["ttft"] is not None])
    return float(np.polyfit(np.arange(len(waits)), waits, 1)[0]) if len(waits) >= _RANKS else None


def answer(steps: Sequence[Mapping[str, Any]]) -> Answer:
    """How the server recovers, a line a run with a step. Args: steps: their rows of the summary table."""
    return Answer(
        name="recovery",
        question="How does the server recover from a step of its load?",
        lines=tuple(
            f"{step['deployment']} · {step['workload']} at {load_cell(step['level'], step['axis'])}: {_line(step)}"
            for step in steps
        ),
        sure=(
            "From the end of the step to the first of nine requests in a row whose median TTFT is no more than what nine of ten had "
            "before the step.",
        ),
    )


def _line(step: Mapping[str, Any]) -> str:
    if not step["valid"]:
        return "not known, the run is invalid."
    if not step["recovered"] or step["recovery_s"] is None:
        return "TTFT had not recovered when the run ended."
    return f"TTFT is as before {step['recovery_s']:.2g} s after the step."

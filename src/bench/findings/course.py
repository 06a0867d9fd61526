"""The course of a run: when its KV cache is full and for how long, how its throughput moves before, then and throughout, and how its
burst is served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from bench.parse.server import FULL
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
    """What happens within a run; None of what never is, is not known, or lasts too short to tell.

    Attributes:
        full_after_s, full_for_s: when the KV cache is full first, and for how long in all (s). running: requests that run meanwhile, in
            the median.
        filling, full: by which share throughput changes while the load stands and the cache fills, and while it is full, each with its
            95 % interval.
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
    speed, running, usage = (
        timeseries.filter(series=name).sort("elapsed_s").select("elapsed_s", "value").to_numpy()
        for name in ("throughput", "running", "kv_usage")
    )
    stood = running[running[:, 1] >= _STANDS * running[:, 1].max(), 0] if len(running) else speed[:, 0]
    stands = _between(speed, stood[0], stood[-1]) if len(stood) else speed
    values = stands[:, 1]
    swing = (
        float(np.subtract(*np.percentile(values, (95, 5))) / values.mean()) if len(values) >= _FEWEST and any(values) else None
    )
    full_at = usage[usage[:, 1] >= FULL, 0]
    if not len(full_at):
        return Course(filling=_change(stands), swing=swing)
    begin, end = float(full_at[0]), float(full_at[-1])
    ran = _between(running, begin, end)[:, 1]
    return Course(
        full_after_s=begin,
        full_for_s=len(full_at) * float(np.median(np.diff(usage[:, 0]))) if len(usage) > 1 else None,
        running=float(np.median(ran)) if len(ran) else None,
        filling=_change(stands[stands[:, 0] <= begin]),
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

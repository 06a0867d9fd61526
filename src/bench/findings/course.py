"""The course of a run: when its KV cache is full and for how long, and how its burst is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from bench.parse.server import FULL

_RANKS = 6  # fewest requests of a burst whose waits have a slope; convention


@dataclass(frozen=True)
class Course:
    """When the KV cache is full first, and for how long in all (s), and the requests that run between, in the median; None where it
    never is, or is not known.
    """

    full_after_s: float | None = None
    full_for_s: float | None = None
    running: float | None = None


def course(timeseries: pl.DataFrame) -> Course:
    """Args: timeseries: of one run: `series`, `elapsed_s` (s) and `value`, of `running` and `kv_usage`."""
    usage, running = (timeseries.filter(series=name).sort("elapsed_s") for name in ("kv_usage", "running"))
    full = usage.filter(pl.col("value") >= FULL)["elapsed_s"]
    if full.is_empty():
        return Course()
    apart = usage["elapsed_s"].diff().median()
    ran = running.filter(pl.col("elapsed_s").is_between(full[0], full[-1]))["value"].median()
    return Course(full[0], len(full) * apart if apart else None, ran)  # type: ignore[arg-type, operator]


def ttft_slope(judged: Sequence[Mapping[str, Any]]) -> float | None:
    """By how much each request of a burst waits longer for its first token than the one before it (s); None of fewer than six.

    Args:
        judged: the requests of a run, as the summary's column has them. By their TTFT they are in the order in which they were served.
    """
    waits = np.sort([each["ttft"] for each in judged if each["ok"] and each["ttft"] is not None])
    return float(np.polyfit(np.arange(len(waits)), waits, 1)[0]) if len(waits) >= _RANKS else None

"""The monitoring bands: where a run's memory, cache and queue stand, against where operators want them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_RUNNING_SHARE = 0.02  # queue ÷ requests in flight below which the queue is near zero; convention


@dataclass(frozen=True)
class Judged:
    """A run's value on one band.

    Attributes:
        state: `within`, `below` or `above` the band, `far above` where it calls for action.
    """

    value: float
    state: str


@dataclass(frozen=True)
class Band:
    """A quantity and the range that operators aim for.

    Attributes:
        value: of a summary row; None where it is not known. low, high: of the range. far: from here on it calls for action; None where
            there is no such bound.
    """

    value: Callable[[Mapping[str, Any]], float | None]
    low: float
    high: float
    far: float | None = None


def _preempted(run: Mapping[str, Any]) -> float | None:
    known = run.get("preemptions") is not None and run.get("requests")
    return run["preemptions"] / run["requests"] if known else None


def _queue(run: Mapping[str, Any]) -> float | None:
    standing, flight = run.get("waiting_standing"), run.get("in_flight_peak")
    return standing / flight if standing is not None and flight else None


def _memory(run: Mapping[str, Any]) -> float | None:
    held, there = run.get("gpu_memory_peak_bytes"), run.get("device_memory_bytes")
    return held / there if held is not None and there else None


def _prefix(run: Mapping[str, Any]) -> float | None:
    rate, expected = run.get("prefix_hit_rate"), run.get("prefix_hit_rate_expected")
    return rate / expected if rate is not None and expected else None


# Source: a table of the texts that docs/explanation/published-numbers.md checks; what a prefix cache serves depends on the workload.
BANDS: dict[str, Band] = {
    "gpu_memory": Band(_memory, 0.8, 0.9, 0.95),
    "kv_usage": Band(lambda run: run.get("kv_usage_peak"), 0.75, 0.90, 0.99),
    "preempted": Band(_preempted, 0.0, 0.05, 0.20),
    "prefix": Band(_prefix, 0.95, float("inf")),
    "queue": Band(_queue, 0.0, _RUNNING_SHARE, 0.2),
}


def judge(run: Mapping[str, Any]) -> dict[str, Judged]:
    """Where a run stands on each band that it has a value of.

    Args:
        run: summary row: `kv_usage_peak` (0–1), `preemptions`, `requests`, `waiting_standing`, `in_flight_peak`,
            `gpu_memory_peak_bytes` and, for the GPU's band, `device_memory_bytes` (of one GPU).
    """
    judged = {}
    for key, band in BANDS.items():
        value = band.value(run)
        if value is not None:
            far = band.far is not None and value >= band.far
            state = "far above" if far else "above" if value > band.high else "below" if value < band.low else "within"
            judged[key] = Judged(value, state)
    return judged

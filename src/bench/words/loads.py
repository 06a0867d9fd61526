"""Loads and counts in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bench.axes import AXES, CONCURRENCY
from bench.errors import listed

# By which of its ends are established: the lower, the upper.
_INTERVALS = {
    (True, True): "{low} to {high} at 95 % confidence",
    (True, False): "at least {low} at 95 % confidence, its upper end is not established",
    (False, True): "at most {high} at 95 % confidence, its lower end is not established",
    (False, False): "neither end of its 95 % interval is established",
}


def load_text(level: float, unit: str) -> str:
    """A load with its unit, such as `1 request in flight`."""
    return f"{level:g} {unit.replace('s in flight', ' in flight').replace('s/s', '/s') if level == 1 else unit}"


def load_cell(level: float, axis: str, turns: int | None = None) -> str:
    """A load in a table: `16` requests in flight, `2 requests/s`, of conversations `2 conversations/s`, `4 users`."""
    if axis == CONCURRENCY:
        return f"{level:g}"
    return f"{level:g} {AXES[axis].short.replace('requests', 'conversations') if turns and turns > 1 else AXES[axis].short}"


def loads_text(loads: Iterable[float]) -> str:
    """Several loads, such as `8, 16`."""
    return ", ".join(f"{load:g}" for load in loads)


def time_text(seconds: float) -> str:
    """A latency to three digits: `1.47 s`, `152 ms`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def latency_text(value: float | None) -> str:
    """A latency in a table: a dash where it is not known, `failed` where that share of requests failed."""
    if value is None:
        return "–"
    return "failed" if math.isinf(value) else time_text(value)


def between_text(low: float | None, high: float | None, shape: str = "{:g}") -> str:
    """What a number lies between, such as `8 to 12`, `8 or more` or `at most 12`; empty where neither end is known."""
    if high is None:
        return "" if low is None else f"{shape.format(low)} or more"
    return f"at most {shape.format(high)}" if low is None else f"{shape.format(low)} to {shape.format(high)}"


def interval_text(low: float | None, high: float | None, shape: str = "{:.3g}") -> str:
    """A 95 % interval. Args: low, high: None where that end is not established."""
    ends = {name: "" if end is None else shape.format(end) for name, end in (("low", low), ("high", high))}
    return _INTERVALS[low is not None, high is not None].format(**ends)


def numbers_text(numbers: Sequence[float]) -> str:
    """Several numbers, such as `16, 64 and 64`; one, where all are the same."""
    texts = [f"{number:,.0f}" if number >= 100 else f"{number:.3g}" for number in numbers]
    return texts[0] if len(set(texts)) == 1 else listed(texts)

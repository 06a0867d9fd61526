"""Loads and counts in words."""

from __future__ import annotations

from collections.abc import Iterable

from bench.axes import AXES, CONCURRENCY

__all__ = ["between_text", "count_text", "load_cell", "load_text", "loads_text", "time_text"]


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


def count_text(number: int, what: str) -> str:
    """A count with its noun, such as `1 run` or `2 runs`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def between_text(low: float | None, high: float | None, shape: str = "{:g}") -> str:
    """What a number lies between, such as `8 to 12`, `8 or more` or `at most 12`; empty where neither end is known."""
    if high is None:
        return "" if low is None else f"{shape.format(low)} or more"
    return f"at most {shape.format(high)}" if low is None else f"{shape.format(low)} to {shape.format(high)}"

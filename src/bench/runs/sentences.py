"""How numbers, units and loads are written, and sentences as templates with named numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from bench.axes import AXES, CONCURRENCY
from bench.errors import count_text, listed, shown, shown_share, shown_size
from bench.runs.latencies import LATENCIES

# By which of its ends are established: the lower, the upper.
_INTERVALS = {
    (True, True): "{low} to {high} at 95 % confidence",
    (True, False): "at least {low} at 95 % confidence, its upper end is not established",
    (False, True): "at most {high} at 95 % confidence, its lower end is not established",
    (False, False): "neither end of its 95 % interval is established",
}

_TWO_DIGITS = 3.55  # first digits of an error below which it keeps two; source: Particle Data Group 2024, 5.3
_ABOUT = 0.2  # half of a 95 % interval ÷ its number, from which that is said to be about so; convention


def load_text(level: float, unit: str) -> str:
    """A load with its unit, such as `1 request in flight`."""
    one = re.sub(r"^([a-z]+)s(?=$| in flight|/s$)", r"\1", unit)
    return f"{level:g} {one if level == 1 else unit}"


def load_cell(level: float, axis: str, turns: int | None = None) -> str:
    """A load in a table: `16` requests in flight, `2 requests/s`, of conversations `2 conversations/s`, `4 users`."""
    if axis == CONCURRENCY:
        return f"{level:g}"
    return load_text(level, AXES[axis].short.replace("requests", "conversations") if turns and turns > 1 else AXES[axis].short)


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


def sure_text(value: float, low: float | None, high: float | None) -> tuple[str, str]:
    """A number with the digits that its 95 % interval deserves, and that interval: `about 11` and `6 to 26`, `2.04` and `1.98 to 2.1`.

    Half of the interval keeps one digit, two where it begins with 1, 2 or 3 (the rule of the Particle Data Group). Two digits of the
    number where an end is not established.
    """
    if low is None or high is None:
        least, most_likely, greatest = (None if each is None else float(f"{each:.2g}") for each in (low, value, high))
        return f"about {most_likely:,g}", between_text(least, greatest, "{:,g}") or "95 % interval not established"
    half = (high - low) / 2
    if half <= 0 or value <= 0:
        return f"{value:,.3g}", between_text(low, high, "{:,.3g}")
    most = math.floor(math.log10(value))
    one = min(most, max(most - 2, math.floor(math.log10(half))))
    last = max(most - 2, one - (half < _TWO_DIGITS * 10.0**one))
    last += all(round(each, -last) == round(each, -one) for each in (value, low, high)) * (one - last)
    number, *ends = (f"{round(each, -last):,.{max(0, -last)}f}" for each in (value, low, high))
    return ("about " if half > _ABOUT * value else "") + number, " to ".join(ends)


def numbers_text(numbers: Sequence[float]) -> str:
    """Several numbers, such as `16, 64 and 64`; one, where all are the same."""
    texts = [f"{number:,.0f}" if number >= 100 else f"{number:.3g}" for number in numbers]
    return texts[0] if len(set(texts)) == 1 else listed(texts)


_UNITS: dict[str, Callable[[Any], str]] = {
    "time": time_text,
    "ms": lambda seconds: f"{1000 * seconds:.3g} ms",
    "size": shown_size,
    "share": shown_share,
    "share.1": lambda share: shown_share(share, 1),
    "latency": lambda name: str(LATENCIES[name].title),
    "quoted": lambda text: shown(text, 160),
    "requests": lambda number: count_text(round(number), "request"),
    "wait": lambda number: f"{number:,} request{'s wait' if number != 1 else ' waits'}",
}
_OPTIONAL = re.compile(r"\[([^]]*)\]")


class _Units(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        unit = _UNITS.get(format_spec)
        return unit(value) if unit else str(super().format_field(value, format_spec))


_FORMATTER = _Units()


def filled(template: str, numbers: Mapping[str, Any]) -> str:
    """The template with its numbers, as `str.format` takes it; a spec may also be a unit: `{limit_s:time}`, `{share:share}`.

    Args:
        template: a part in brackets is left out where one of its numbers is None.
        numbers: by name.

    Raises:
        KeyError: a number is missing.
    """
    known = _OPTIONAL.sub(lambda part: "" if any(numbers[name] is None for name in numbers_of(part[1])) else part[1], template)
    return _FORMATTER.vformat(known, (), numbers)


def numbers_of(template: str) -> list[str]:
    """The names of the numbers that a template takes."""
    return [name for _, name, _, _ in Formatter().parse(template) if name]

"""Sentences as templates with named numbers: how each unit is written, and what is left out where a number is not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from bench.errors import count_text, shown, shown_share, shown_size
from bench.runs.latencies import LATENCIES
from bench.words.loads import time_text

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

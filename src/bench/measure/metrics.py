"""A first look at an exposition while a session measures: which metrics it has, and the values of a few. `bench.parse` reads it all."""

from __future__ import annotations

import re
from collections.abc import Collection

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["metric_names", "metric_values"]

_NAME_END = re.compile(r"[{ \t]")


def metric_names(text: str) -> set[str]:
    """Names of the samples of an exposition."""
    return {_name(line) for line in text.splitlines() if line.strip() and not line.startswith("#")}


def metric_values(text: str, names: Collection[str]) -> list[float] | None:
    """Values of the samples that are called so; None where they cannot be read."""
    # No other line is read: what is odd about those is not asked here.
    lines = "".join(f"{line}\n" for line in text.splitlines() if _name(line) in names)
    try:
        return [float(sample.value) for family in text_string_to_metric_families(lines) for sample in family.samples]
    except Exception:  # whatever a parser of other people's text may raise
        return None


def _name(line: str) -> str:
    return _NAME_END.split(line, maxsplit=1)[0]

"""Cells that several tables have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.report.blocks import Cell
from bench.runs.sentences import latency_text, load_cell


def load(row: Mapping[str, Any]) -> Cell:
    """Requests in flight, requests/s, or times as fast."""
    return Cell(load_cell(row["level"], row["axis"], row.get("turns")), row["level"])


def latency(value: float | None, met: bool | None, *, name: str = "", marked: bool = False) -> Cell:
    """A latency. Args: met: whether it is within its limit. name: before it. marked: whether a cross stands behind one that is not."""
    shown = latency_text(value) if value is None else f"{name}{latency_text(value)}"
    return Cell(f"{shown} ✕" if marked and met is False else shown, value, met=bool(met))

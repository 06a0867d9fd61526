"""Notes on charts."""

from __future__ import annotations

__all__ = ["invalid_note", "widest_spread"]


def invalid_note(marks: str, invalid: int, runs: int) -> str:
    """How many runs are invalid, and how they are drawn; empty where none is. Args: marks: such as `Crosses, kept out of the lines`."""
    if not invalid:
        return ""
    return f"{marks}: {invalid} of {runs} runs, which are invalid for it; the report and summary.csv say why."


def widest_spread(low: float, high: float, level: float) -> str:
    """How far the GPUs of one instance are apart. Args: low, high: their utilisation (0–1)."""
    return f"widest spread {100 * (high - low):.0f} points, at {level:g}"

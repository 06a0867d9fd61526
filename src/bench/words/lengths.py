"""A line over lengths in words."""

from __future__ import annotations

import math

from bench.analysis.lengths import Line

__all__ = ["fit_text", "with_half"]


def with_half(value: float, half: float) -> str:
    """A number with half of its interval, of which two digits count: `12.4 ± 8.8`."""
    digits = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 3
    return f"{value:,.{digits}f} ± {half:,.{digits}f}"


def fit_text(found: Line) -> str:
    """How well the line fits, and whether the points bend: `R² 0.998; bends by +12%, a parabola's intercept is 3.1 ms`."""
    r_squared = f"R² {found.r_squared:.3f}"
    if found.bend is None:
        return r_squared
    return f"{r_squared}; bends by {found.bend:+.0%}, a parabola's intercept is {found.curved_intercept:.3g} ms"

"""Latency over length in words."""

from __future__ import annotations

import math

from bench.analysis.lengths import Line
from bench.errors import shown_share

__all__ = ["cost_title", "fit_text", "with_half"]


def with_half(value: float, half: float) -> str:
    """A number with half of its interval, of which two digits count: `12.4 ± 8.8`."""
    digits = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 3
    return f"{value:,.{digits}f} ± {half:,.{digits}f}".replace("-", "−")


def fit_text(found: Line) -> str:
    """The fit that is drawn, with its numbers: `line, 1.2 ± 8.8 ms + 0.55 ± 0.07 ms a token (R² 0.998)`.

    Args:
        found: of milliseconds over tokens.
    """
    curve = found.parabola
    kind, fit = ("parabola", curve) if curve else ("line", found)
    terms = [
        f"{with_half(fit.intercept, fit.intercept_half)} ms",
        f"{with_half(fit.slope, fit.slope_half)} ms a token",
    ]
    if curve:
        terms.append(f"{with_half(1000 * curve.square, 1000 * curve.square_half)} µs a token²")
    return f"{kind}, {' + '.join(terms)} (R² {fit.r_squared:.3f})"


def cost_title(found: Line, *, of: str, latency: str) -> str | None:
    """What a token costs, or that the cost grows with the length; None where neither is sure.

    Args:
        found: of milliseconds over tokens. of: such as `prompt token`. latency: such as `TTFT`.
    """
    curve = found.parabola
    if curve and 0 < curve.bend < 1:
        return f"At {curve.longest:,.0f} tokens {shown_share(curve.bend)} of {latency} grows with the square of the length"
    if curve or found.slope <= found.slope_half:
        return None
    article = "An" if of[0] in "aeiou" else "A"
    return f"{article} {of} adds {with_half(found.slope, found.slope_half)} ms to {latency}"

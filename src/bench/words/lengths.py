"""Latency over length in words."""

from __future__ import annotations

import math

from bench.analysis.lengths import Line
from bench.errors import shown_share

_LATENCY = {"prompt": "TTFT", "output": "E2E latency"}  # that the length of each kind sets


def with_half(value: float, half: float) -> str:
    """A number with half of its interval, of which two digits count: `12.4 ± 8.8`."""
    exact = half <= 1e-9 * abs(value)  # but for the last digits of floating-point numbers
    digits = 3 if exact else max(0, 1 - math.floor(math.log10(half)))
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


def adds(found: Line, kind: str) -> str:
    """What a token adds to a latency, on average where that bends.

    Args:
        found: of milliseconds over tokens. kind: `prompt` or `output`.
    """
    mean = " on average" if found.parabola else ""
    article = "An" if kind[0] in "aeiou" else "A"
    return f"{article} {kind} token adds {with_half(found.slope, found.slope_half)} ms to {_LATENCY[kind]}{mean}"


def squared(found: Line, kind: str) -> str | None:
    """How much of a latency grows with the square of the length; None where no part does. Args: as of `adds`."""
    curve = found.parabola
    if curve is None or not 0 < curve.bend < 1:
        return None
    return f"At {curve.longest:,.0f} tokens {shown_share(curve.bend)} of {_LATENCY[kind]} grows with the square of the length"


def cost_title(found: Line, kind: str) -> str | None:
    """What a chart's title says: the square, or else the slope, if its interval excludes 0; else None. Args: as of `adds`."""
    if found.parabola:
        return squared(found, kind)
    return adds(found, kind) if found.slope > found.slope_half else None

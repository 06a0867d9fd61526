"""Titles that state what a chart shows, and notes on charts."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from bench.words.loads import count_text

__all__ = [
    "efficiency_title",
    "invalid_note",
    "pairs_note",
    "prediction_title",
    "saturation_title",
    "streaming_title",
    "whole_runs_note",
    "widest_spread",
]

_NAMED = 5  # loads in a title


def invalid_note(marks: str, invalid: int, runs: int) -> str:
    """How many runs are invalid, and how they are drawn; empty where none is. Args: marks: such as `Crosses, kept out of the lines`."""
    if not invalid:
        return ""
    return f"{marks}: {invalid} of {runs} runs, which are invalid for it; the report and summary.csv say why."


def pairs_note(left_out: int) -> str:
    """How many pairs are not compared; empty where all are."""
    return f"Left out: {count_text(left_out, 'pair')} with an invalid run." if left_out else ""


def whole_runs_note(runs: int, *, marks: str) -> str:
    """How whole runs on curves of steady windows are drawn; empty where there are none. Args: marks: such as `Hollow`."""
    return f"{marks}: {count_text(runs, 'whole run')}, ramp and drain included, among steady windows." if runs else ""


def saturation_title(saturation: pl.DataFrame) -> str | None:
    """At which loads the KV cache is full, and whether geometry predicted them; None where a few words cannot say it.

    Args:
        saturation: rows of `bench.analysis.saturation`.
    """
    known = saturation.filter(pl.col("cache_known") & (pl.col("axis") == "concurrency"))
    if known.is_empty() or known.height < saturation.height:
        return None
    if known["measured"].is_null().all():
        return "No measured load fills the KV cache"
    if known["measured"].is_null().any() or known.height > _NAMED:
        return None
    start = f"The KV cache is full at {_listed(known['measured'].to_list())} requests in flight"
    if known["levels_apart"].is_null().any():
        return start
    if (known["levels_apart"] == 0).all():
        return f"{start}, as predicted"
    return f"{start}; predicted: {_listed(known['predicted'].to_list())}"


def efficiency_title(devices: str, shares: Sequence[float]) -> str:
    """What several devices bring at the measured loads. Args: devices: such as `TP=2`. shares: of as many single ones (0–1)."""
    low, high = (f"{100 * end:.0f}" for end in (min(shares), max(shares)))
    return f"{devices} brings {low if low == high else f'{low} to {high}'} % of what as many single devices would"


def streaming_title(first_s: float, whole_s: float) -> str:
    """How much sooner there is something to read. Args: first_s: with streaming. whole_s: without."""
    return f"With streaming there is something to read after {first_s:.3g} s, without after {whole_s:.3g} s"


def prediction_title(saturation: pl.DataFrame) -> str | None:
    """On how many curves the KV cache is full at the level that geometry predicts; None where no curve has both.

    Args:
        saturation: as `saturation_title` takes it.
    """
    apart = saturation["levels_apart"].drop_nulls()
    if apart.is_empty():
        return None
    met = int((apart == 0).sum())
    if met == 0:
        return "The KV cache is full at other levels than geometry predicts"
    share = f"{met} of {len(apart)} curves" if met < len(apart) or met > 1 else "the one curve that shows it"
    return f"The KV cache is full at the level that geometry predicts on {share}"


def widest_spread(low: float, high: float, level: float) -> str:
    """How far the GPUs of one instance are apart. Args: low, high: their utilisation (0–1)."""
    return f"widest spread {100 * (high - low):.0f} points, at {level:g}"


def _listed(numbers: Sequence[float]) -> str:
    """Several numbers, such as `16, 64 and 64`."""
    *first, last = (f"{number:.3g}" for number in numbers)
    return f"{', '.join(first)} and {last}" if first else last

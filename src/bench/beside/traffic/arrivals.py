"""What a log says of its traffic: how requests arrive (rates and dispersion by window), and how long prompts and answers are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bench.beside.traffic.log import Log, Whole

_WINDOWS = (1.0, 10.0, 60.0, 600.0)  # seconds of each window; convention
_FEWEST_WINDOWS = 10  # fewest windows of a dispersion; convention
_SAME_S = 1e-6  # by which two gaps of one tick differ (s); derived: a float of seconds since 1970 is off by 0.24 µs
_PERCENTILES = (10, 25, 50, 75, 90, 95, 99)  # those of lengths that are printed; convention


@dataclass(frozen=True)
class Window:
    """Requests in windows of one length.

    Attributes:
        seconds: its length. peak: requests/s of the fullest one, wherever it begins.
        dispersion: variance ÷ mean of the counts of windows side by side, 1 for a Poisson process; None where fewer than ten fit.
    """

    seconds: float
    peak: float
    dispersion: float | None


def windows(log: Log) -> list[Window]:
    """A window of each length that fits twice in the log's span, and is not shorter than the shortest gap in it, such as a tick."""
    found, moments = [], log.arrival_s
    tick = np.diff(np.unique(moments)).min(initial=math.inf) - _SAME_S
    for size in _WINDOWS:
        if tick <= size <= log.span_s / 2:
            fullest = np.searchsorted(moments, moments + size, side="left") - np.arange(len(moments))
            whole = int(log.span_s // size)  # windows; what is left at the end is not counted
            counts = np.bincount((moments // size).astype(np.int64), minlength=whole)[:whole]
            dispersion = float(counts.var(ddof=1) / counts.mean()) if whole >= _FEWEST_WINDOWS else None
            found.append(Window(size, float(fullest.max()) / size, dispersion))
    return found


def percentiles(lengths: Whole) -> dict[str, float]:
    """Least, percentiles, highest and mean; percentiles are lengths that occur."""
    found = np.quantile(lengths, [0, *(p / 100 for p in _PERCENTILES), 1], method="inverted_cdf").tolist()
    names = ["min", *(f"p{p}" for p in _PERCENTILES), "max"]
    return dict(zip(names, map(float, found), strict=True)) | {"mean": float(lengths.mean())}

"""What a log says of its traffic: how requests arrive (rates and dispersion by window), and how long prompts and answers are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.beside.traffic.log import Floats, Log, Whole

_WINDOWS = (1.0, 10.0, 60.0, 600.0)  # seconds of each window; convention
_FEWEST_WINDOWS = 10  # fewest windows of a dispersion; convention


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
    """A window of each length that fits twice in the log's span, and is not shorter than its clock's tick."""
    return [_window(log.arrival_s, size) for size in _WINDOWS if log.resolution_s <= size <= log.span_s / 2]


def _window(moments: Floats, size: float) -> Window:
    peak = float((np.searchsorted(moments, moments + size, side="left") - np.arange(len(moments))).max()) / size
    whole = int(moments[-1] // size)  # windows; what is left at the end is not counted
    counts = np.bincount((moments // size).astype(np.int64), minlength=whole)[:whole]
    return Window(size, peak, float(counts.var(ddof=1) / counts.mean()) if whole >= _FEWEST_WINDOWS else None)


_PERCENTILES = (10, 25, 50, 75, 90, 95, 99)  # those of lengths that are printed; convention


@dataclass(frozen=True)
class Described:
    """A log's traffic.

    Attributes:
        requests: how many. span_s: from the first to the last. rate: requests/s, None where all came at once. prompts, outputs:
            percentiles of lengths.
    """

    requests: int
    span_s: float
    rate: float | None
    windows: Sequence[Window]
    prompts: dict[str, float]
    outputs: dict[str, float]


def describe(log: Log) -> Described:
    """All that a log says."""
    return Described(
        requests=log.count,
        span_s=log.span_s,
        rate=log.rate,
        windows=windows(log),
        prompts=percentiles(log.prompt_tokens),
        outputs=percentiles(log.output_tokens),
    )


def percentiles(lengths: Whole) -> dict[str, float]:
    """Least, percentiles, highest and mean; percentiles are lengths that occur."""
    found = np.quantile(lengths, [0, *(p / 100 for p in _PERCENTILES), 1], method="inverted_cdf").tolist()
    names = ["min", *(f"p{p}" for p in _PERCENTILES), "max"]
    return dict(zip(names, map(float, found), strict=True)) | {"mean": float(lengths.mean())}

"""What a log says of its traffic: how requests arrive (rates by window, the shape of gaps), and how long prompts and answers are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.beside.traffic.log import Floats, Log, Whole
from bench.statistics.textbook import Z

_WINDOWS = (1.0, 10.0, 60.0, 600.0)  # seconds of each window; convention
_FEWEST_WINDOWS = 10  # fewest windows of a dispersion; convention
_FEWEST_GAPS = 20  # fewest gaps of a shape; convention
_CENSORED = 10  # clock ticks below which a gap is only known to be shorter; derived: the rest is within 10 % of its length
_MOST_CENSORED = 0.5  # share of such gaps above which there is no shape; convention
_SHAPES = (1e-3, 1e3)  # least and highest shape that is looked for; convention
_EQUAL = 0.99  # of the highest shape, from which gaps are called equal; derived: the search ends within 0.1 % of it
_STEP = 1e-3  # of a logarithm, in differences that stand for derivatives; convention


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


@dataclass(frozen=True)
class Burstiness:
    """The shape of a gamma distribution of gaps, vLLM's `burstiness`: 1 for a Poisson process, less is burstier.

    Attributes:
        shape: its estimate, 1000 at most. low, high: its 95 % interval.
    """

    shape: float
    low: float
    high: float

    @property
    def poisson(self) -> bool:
        """Whether a Poisson process is within the interval."""
        return self.low <= 1 <= self.high

    @property
    def equal(self) -> bool:
        """Whether gaps are too much alike for a shape: it is where the search for it ends."""
        return self.shape >= _EQUAL * _SHAPES[1]


def windows(log: Log) -> list[Window]:
    """A window of each length that fits twice in the log's span, and is not shorter than its clock's tick."""
    return [_window(log.arrival_s, size) for size in _WINDOWS if log.resolution_s <= size <= log.span_s / 2]


def _window(moments: Floats, size: float) -> Window:
    peak = float((np.searchsorted(moments, moments + size, side="left") - np.arange(len(moments))).max()) / size
    whole = int(moments[-1] // size)  # windows; what is left at the end is not counted
    counts = np.bincount((moments // size).astype(np.int64), minlength=whole)[:whole]
    return Window(size, peak, float(counts.var(ddof=1) / counts.mean()) if whole >= _FEWEST_WINDOWS else None)


def burstiness(log: Log) -> Burstiness | None:
    """The shape of the gaps, by maximum likelihood; gaps near the clock's tick are only known to be shorter than ten of them.

    Returns:
        None where there are too few requests, or the clock is too coarse.
    """
    gaps = np.diff(log.arrival_s)
    if len(gaps) < _FEWEST_GAPS or log.span_s <= 0:
        return None
    limit = (_CENSORED - 0.5) * log.resolution_s  # a gap reads as ten ticks or more if it is 9.5 or longer, on average
    known = gaps[gaps >= limit]
    return _from_gaps(gaps, known, limit) if len(known) >= (1 - _MOST_CENSORED) * len(gaps) else None


def _from_gaps(gaps: Floats, known: Floats, limit: float) -> Burstiness | None:
    from scipy.optimize import minimize  # noqa: PLC0415 - half a second that other commands need not pay
    from scipy.special import gammainc, gammaln, xlogy  # noqa: PLC0415

    total, logs, short = float(known.sum()), float(np.log(known).sum()), len(gaps) - len(known)
    low, high = (math.log(end) for end in _SHAPES)

    def unlikely(at: Sequence[float]) -> float:
        """−log likelihood at ln shape and ln mean."""
        shape = math.exp(min(high, max(low, at[0])))
        scale = math.exp(at[1]) / shape
        below = float(gammainc(shape, limit / scale))
        sure = len(known) * (shape * math.log(scale) + float(gammaln(shape))) - (shape - 1) * logs + total / scale
        return sure - float(xlogy(short, max(below, 1e-300)))

    start = [math.log(min(_SHAPES[1], max(_SHAPES[0], gaps.mean() ** 2 / max(gaps.var(), 1e-12)))), math.log(gaps.mean())]
    best = minimize(unlikely, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-6}).x
    steps = (-_STEP, 0.0, _STEP)
    near = np.array([[unlikely((best[0] + i, best[1] + j)) for j in steps] for i in steps])
    aa, bb = (line @ (1, -2, 1) / _STEP**2 for line in (near[:, 1], near[1]))
    ab = (near[2, 2] - near[2, 0] - near[0, 2] + near[0, 0]) / (4 * _STEP**2)
    left = aa - ab**2 / bb if bb > 0 else 0.0  # information on the shape, whatever the mean
    shape = math.exp(min(high, max(low, best[0])))
    if best[0] >= high:
        left = len(gaps) / 2  # the information of ln shape where gaps hardly differ; beyond the end its differences are 0
    if left <= 0:
        return None
    error = Z / math.sqrt(left)
    return Burstiness(shape, shape * math.exp(-error), shape * math.exp(error))


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
    burstiness: Burstiness | None
    prompts: dict[str, float]
    outputs: dict[str, float]


def describe(log: Log) -> Described:
    """All that a log says."""
    return Described(
        requests=log.count,
        span_s=log.span_s,
        rate=log.rate,
        windows=windows(log),
        burstiness=burstiness(log),
        prompts=percentiles(log.prompt_tokens),
        outputs=percentiles(log.output_tokens),
    )


def percentiles(lengths: Whole) -> dict[str, float]:
    """Least, percentiles, highest and mean; percentiles are lengths that occur."""
    found = np.quantile(lengths, [0, *(p / 100 for p in _PERCENTILES), 1], method="inverted_cdf").tolist()
    names = ["min", *(f"p{p}" for p in _PERCENTILES), "max"]
    return dict(zip(names, map(float, found), strict=True)) | {"mean": float(lengths.mean())}

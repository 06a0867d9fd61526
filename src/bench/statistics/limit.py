"""Where a limit lies, given runs at some loads: a distribution, by a rising curve through noisy points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.statistics.observation import FAILED, GROWTH, SLOWER, SPEEDS_DIFFER, Observation
from bench.statistics.textbook import TAIL, Z

Floats = npt.NDArray[np.floating[Any]]
Motion = Callable[[Floats, Floats], Floats]

# nominal confidence of an interval: a search looks after each run and stops when it looks narrow, so that half the error is kept for
# that; tuned: benchmarks.search and benchmarks.capacity, 95 % hold in the end
NOMINAL = 1 - TAIL
_COARSE = 60  # grid points of a curve over all loads; convention
_FINE = 140  # grid points of a curve over the loads that may hold the limit; convention
_LEAST_STEEP = 0.2  # lowest derivative of the bounded excess, so that no far run's error vanishes; tuned: benchmarks.search
_PICKED = 25  # fits that are drawn from; convention
_DRAWS = 400  # draws of a limit; convention
_CLIFFS = 0.3  # share of draws with a cliff; tuned: benchmarks.search
BEYOND = 2.0  # factor beyond the measured loads up to which a limit is looked for; tuned: benchmarks.search
_ODDS = 2.0  # ratio of the slope of the odds of a miss to that of latencies; tuned: benchmarks.search
_BENDS = 0.02  # share of the variance of a smooth motion that is not smooth; convention: without, intervals are 13 % wider
# prior standard deviation of the excess at the middle of the loads, and of its slope about 1; tuned: benchmarks.search
_LINE = 3.0
_SPEED = 0.03  # by how much rounds' speeds are unknown (standard deviation of the logarithm); tuned: benchmarks.search
# roughnesses of the curve that are tried (standard deviation over one e-fold of load), and prior weights; tuned: benchmarks.search
_ROUGH = ((0.05, 0.5), (0.2, 1.0), (0.5, 1.5), (1.0, 1.5), (2.0, 1.0), (5.0, 0.5))
# noises between runs that are tried (standard deviation of the excess), and prior weights; tuned: benchmarks.search
_NOISE, _NOISE_PRIOR = np.array([[0.01, 0.025, 0.05, 0.1, 0.2, 0.4], [0.5, 1.0, 1.5, 1.0, 0.5, 0.25]])


@dataclass(frozen=True)
class Belief:
    """Where a limit may lie.

    Attributes:
        limits: draws of it, ascending (the unit of the loads); infinite, or 0, where a draw has none among the loads looked at.
    """

    limits: Floats

    def quantile(self, share: float) -> float:
        """The load below which the limit lies with a probability of `share`."""
        return float(np.quantile(self.limits, share, method="nearest"))

    def lies_below(self, load: float) -> float:
        """The probability that the limit lies below `load`."""
        return float(np.searchsorted(self.limits, load)) / len(self.limits)

    @property
    def middle(self) -> float:
        """The median."""
        return self.quantile(0.5)

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the 95 % interval."""
        return self.quantile((1 - NOMINAL) / 2), self.quantile((1 + NOMINAL) / 2)


def believe(observations: Sequence[Observation]) -> Belief:
    """The distribution of the highest load that meets every criterion."""
    return lowest(beliefs(observations).values())


def lowest(found: Iterable[Belief]) -> Belief:
    """The least of the limits by criteria that share their runs, and so the runs' noise: their draws are paired by rank."""
    return Belief(np.minimum.reduce([each.limits for each in found]))


def beliefs(observations: Sequence[Observation], seed: int = 0) -> dict[str, Belief]:
    """The distribution of the load at which each criterion's excess rises above 0.

    Failures count where there are any: few runs are long enough to show that at most 1 % fail, and of a server that refuses nothing
    the SLOs, which a failed request misses too, bound the rest. Growth counts wherever it is known.
    """
    keys = [*dict.fromkeys(key for each in observations for key in each.of_slos)]
    keys += [FAILED] if any(each.failed for each in observations) else []
    random = np.random.default_rng(seed)
    found = {key: Belief(_by_criterion(observations, key, random)) for key in keys}
    grown = [each for each in observations if each.growth is not None]
    return found | ({GROWTH: believe_growth(grown)} if grown else {})


def believe_growth(observations: Sequence[Observation]) -> Belief:
    """The distribution of the capacity of an open loop, by the requests that pile up in runs of which that is known.

    Of those that come, 1 − capacity ÷ load stay at a server whose requests wait for a place. Where they share the server, each also
    takes longer the more there are, so that any larger share may stay. Which of the two it is, the data decide.
    """
    from scipy.special import ndtr  # noqa: PLC0415 - 0.4 s, which closed loops need not pay

    loads, growth, errors = np.array([(each.load, each.growth, each.growth_error) for each in observations]).T
    x = np.linspace(math.log(loads.min()) - math.log(BEYOND), math.log(loads.max()) + math.log(BEYOND), _DRAWS)
    stay = np.maximum(0, 1 - np.exp(x)[:, None] / loads)
    noise = np.hypot(errors, SPEEDS_DIFFER * (stay > 0))
    off = (growth - stay) / noise
    waiting = -(off**2) / 2 - np.log(noise * math.sqrt(2 * math.pi))
    never = np.finfo(float).tiny
    sharing = np.log(np.maximum(ndtr(off) - ndtr((growth - 1) / noise), never) / np.maximum(1 - stay, never))
    logs = np.stack([waiting.sum(axis=1), np.where(stay > 0, sharing, waiting).sum(axis=1)])
    below = np.cumsum(np.exp(logs - logs.max()).sum(axis=0))
    ranks = (np.arange(_DRAWS) + 0.5) / _DRAWS
    limits: Floats = np.exp(np.interp(ranks, below / below[-1], x))
    rounds = len({each.round for each in observations})
    limits = limits * np.exp(SPEEDS_DIFFER / math.sqrt(rounds) * np.random.default_rng(0).standard_normal(len(limits)))
    return Belief(np.sort(np.where(limits > loads.max(), math.inf, limits)))


def _by_criterion(observations: Sequence[Observation], key: str, random: np.random.Generator) -> Floats:
    """Draws of the load at which one criterion is missed, ascending: by its excess or by the odds of a miss, whichever knows more.

    Where a latency rises smoothly its percentile does, and shows how far the limit is. Where requests either wait or do not, it jumps
    from the ones to the others, and their odds rise smoothly.
    """
    observations = [each for each in observations if key in each.excesses]
    seen = [each.excesses[key] for each in observations]
    raw = np.array([each.value for each in seen])
    runs = _Runs(
        x=np.log([each.load for each in observations]),
        raw=raw,
        errors=np.array([each.error for each in seen]),
        by_speed=_steepness(raw) * float(key != FAILED),
        together=np.array([[a.round is not None and a.round == b.round for a in observations] for b in observations]),
        moves=not observations[0].held,
    )
    found = _limits(runs, random)
    if any(each.odds is None for each in seen):
        return found
    odds, errors, at = (
        np.array(each) / _ODDS for each in ([x.odds for x in seen], [x.odds_error for x in seen], [x.odds_at for x in seen])
    )
    # Latencies that are all alike pass the limit together: a machine that is a little slower turns few misses into many.
    slopes = np.abs(_bounded(at) - _bounded(odds)[:, None]) / np.abs(SLOWER)
    by_odds = _limits(replace(runs, raw=odds, errors=errors, by_speed=slopes.max(axis=1)), random)
    return min(found, by_odds, key=_width)


@dataclass(frozen=True)
class _Runs:
    """What runs showed of one criterion.

    Attributes:
        x: logarithms of their loads. raw: what a curve is drawn through. errors: of each.
        by_speed: by how much each, bounded, rises with the logarithm of the machine's slowness.
        together: 1 for each two runs of the same round, which share the error of its speed. moves: whether that moves a run along the
            curve as well, as it does a rate.
    """

    x: Floats
    raw: Floats
    errors: Floats
    by_speed: Floats
    together: npt.NDArray[np.bool_]
    moves: bool


def _width(limits: Floats) -> float:
    low, high = np.quantile(limits, [TAIL, 1 - TAIL], method="nearest")
    return float(high / low) if 0 < low < math.inf else math.inf


def _limits(runs: _Runs, random: np.random.Generator) -> Floats:
    """Draws of the load at which a curve through runs rises above 0, ascending.

    It is, over the logarithm of the load, a straight line, a Brownian motion or the integral of one on top (which, and how rough, the
    data decide), and noise: each run's own error, what runs differ by, and what rounds differ by, as the machine's speed in each is
    known only so well. Draws of the curve are made monotone, as more load never helps; each one's zero is a draw of the limit.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), 2.7 and 5.4; Lin and Dunson, Bayesian monotone
    regression using Gaussian process projection (Biometrika 2014).
    """
    x, y = runs.x, _bounded(runs.raw)
    # The bound is steeper towards the limit, which is the side that counts.
    errors = np.maximum(_steepness(runs.raw) * runs.errors, np.abs(y - _bounded(runs.raw - np.sign(runs.raw) * runs.errors)))
    centre = float(x.mean())
    by_speed = runs.by_speed
    fits = _fits(x - centre, y, errors, np.outer(by_speed, by_speed) * runs.together)
    if runs.moves:
        by_speed = by_speed + sum(fit.times * fit.slopes() for fit in fits) / _PICKED
        fits = _fits(x - centre, y, errors, np.outer(by_speed, by_speed) * runs.together)
    grid = _grid(x, centre, fits)
    width, at = np.gradient(grid), np.searchsorted(grid, x - 1e-9)
    above = np.zeros(len(grid))
    limits: list[Floats] = []
    for fit in fits:
        middle, gain = fit.at(grid - centre)
        spread = _covariance(grid - centre, grid - centre, fit.rough, fit.motion) - gain.T @ gain
        variance = np.diag(spread).copy()
        np.fill_diagonal(spread, variance + 1e-8)
        root = np.linalg.cholesky(spread)
        draws = middle + random.standard_normal((fit.times * _DRAWS // _PICKED, len(grid))) @ root.T
        above += (draws > 0).sum(axis=0) / _DRAWS
        limits.append(_zeros(grid, draws, width / (variance + 1e-4)))
    found = np.concatenate(limits)
    _spread_over_cliffs(found, x, above[at], random)
    return np.sort(found)


def _bounded(raw: Floats) -> Floats:
    """Far from the limit only the side counts: a smooth bound keeps the distant points from deciding the curve near it."""
    bounded: Floats = 2 * np.tanh(raw / 2)
    return bounded


def _steepness(raw: Floats) -> Floats:
    """Derivative of the bounded excess with respect to the raw one."""
    steepness: Floats = np.maximum(1 - np.tanh(raw / 2) ** 2, _LEAST_STEEP)
    return steepness


@dataclass(frozen=True)
class _Fit:
    """The curve by one roughness and one noise.

    Attributes:
        times: how often it was picked, by its probability. rough, motion: of the curve. x: measured loads, from the centre on.
        lower, white: the root of their covariance, and how far they lie from the mean, in its units.
    """

    times: int
    rough: float
    motion: Motion
    x: Floats
    lower: Floats
    white: Floats

    def at(self, points: Floats) -> tuple[Floats, Floats]:
        """The curve's mean at `points`, and what the measured loads take off its covariance, as the root of that."""
        gain = np.linalg.solve(self.lower, _covariance(self.x, points, self.rough, self.motion))
        # Before any run a latency rises in proportion to the load.
        return points + gain.T @ self.white, gain

    def slopes(self) -> Floats:
        """Of the curve at the measured loads, over what a machine's speed may move them by."""
        rise: Floats = self.at(self.x + SPEEDS_DIFFER)[0] - self.at(self.x - SPEEDS_DIFFER)[0]
        return np.maximum(0.0, rise) / (2 * SPEEDS_DIFFER)


def _covariance(a: Floats, b: Floats, rough: float, motion: Motion) -> Floats:
    covariance: Floats = _LINE**2 * (1 + np.outer(a, b)) + rough**2 * motion(a, b)
    return covariance


def _brownian(a: Floats, b: Floats) -> Floats:
    """Covariance of a two-sided Brownian motion from the centre on."""
    covariance: Floats = 0.5 * (np.abs(a)[:, None] + np.abs(b)[None, :] - np.abs(a[:, None] - b[None, :]))
    return covariance


def _integrated(a: Floats, b: Floats) -> Floats:
    """Covariance of the integral of a two-sided Brownian motion from the centre on, and a little of the motion itself, for bends."""
    near, far = np.minimum(np.abs(a)[:, None], np.abs(b)[None, :]), np.maximum(np.abs(a)[:, None], np.abs(b)[None, :])
    covariance: Floats = np.where(np.outer(a, b) > 0, near**2 * (3 * far - near) / 6, 0.0) + _BENDS * _brownian(a, b)
    return covariance


# A percentile may jump at some load and rise smoothly over the others.
_MOTIONS: tuple[Motion, ...] = (_brownian, _integrated)


def _fits(x: Floats, y: Floats, errors: Floats, shared: Floats) -> list[_Fit]:
    """The curve by each motion, roughness and noise that the data do not rule out."""
    noise = np.eye(len(x)) * (errors**2 + _NOISE[:, None] ** 2)[:, None, :] + _SPEED**2 * shared
    curves = [(motion, *rough) for motion in _MOTIONS for rough in _ROUGH]

    def rooted(motion: Motion, rough: float, these: slice) -> tuple[Floats, Floats]:
        lower = np.linalg.cholesky(_covariance(x, x, rough, motion) + noise[these])
        return lower, np.linalg.solve(lower, np.broadcast_to((y - x)[:, None], (*lower.shape[:2], 1)))[:, :, 0]

    likelihoods = []
    for motion, rough, weight in curves:  # the matrices of all would fill the memory of many runs
        lower, white = rooted(motion, rough, slice(None))
        ends = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        likelihoods.append(np.log(weight * _NOISE_PRIOR) - 0.5 * (white**2).sum(axis=1) - ends)
    logs = np.concatenate(likelihoods)
    weights = np.exp(logs - logs.max())
    # Each one that is drawn from costs a decomposition of its own: by their weights, a few stand for all.
    shares = np.cumsum(weights / weights.sum())
    picked = np.searchsorted(shares, (np.arange(_PICKED) + 0.5) / _PICKED)
    fits = []
    for number, times in zip(*np.unique(picked, return_counts=True), strict=True):
        place, of = divmod(int(number), len(_NOISE))
        motion, rough, _ = curves[place]
        lower, white = rooted(motion, rough, slice(of, of + 1))
        fits.append(_Fit(int(times), rough, motion, x, lower[0], white[0]))
    return fits


def _grid(x: Floats, centre: float, fits: Sequence[_Fit]) -> Floats:
    """Where curves are drawn: everywhere, more closely where one's sign is not known, and at the measured loads."""
    coarse = np.linspace(x.min() - math.log(BEYOND), x.max() + math.log(BEYOND), _COARSE)
    unsure = np.zeros(_COARSE, dtype=bool)
    for fit in fits:
        middle, gain = fit.at(coarse - centre)
        variance = np.diag(_covariance(coarse - centre, coarse - centre, fit.rough, fit.motion)) - (gain**2).sum(axis=0)
        unsure |= np.abs(middle) < Z * np.sqrt(np.maximum(variance, 1e-12))
        unsure[:-1] |= (middle[:-1] < 0) & (middle[1:] >= 0)
    between = np.flatnonzero(unsure)
    first, last = (between[0] - 1, between[-1] + 1) if len(between) else (0, _COARSE)
    fine = np.linspace(coarse[max(0, first)], coarse[min(_COARSE - 1, last)], _FINE)
    return np.unique(np.round(np.concatenate([coarse, fine, x]), 9))


def _spread_over_cliffs(limits: Floats, x: Floats, above: Floats, random: np.random.Generator) -> None:
    """Let a share of the draws lie anywhere between the highest load that is surely carried and the lowest that surely is not.

    A curve that is flat everywhere else looks smooth, and a smooth curve would cross about the middle; a cliff may be anywhere.

    Args:
        limits: draws, changed in place. x: logarithms of the measured loads. above: the share of the curves above 0 at each.
    """
    carried, missed = x[above < TAIL], x[above > 1 - TAIL]
    if not len(missed):
        return
    high = missed.min()
    below = carried[carried < high]
    if len(below) and not np.any((x > below.max()) & (x < high)):  # a run between them that is neither shows a slope
        count = round(_CLIFFS * len(limits))
        limits[random.permutation(len(limits))[:count]] = np.exp(random.uniform(below.max(), high, count))


def _zeros(grid: Floats, curves: Floats, weights: Floats) -> Floats:
    """Where the rising curve nearest to each of `curves` (in weighted squares) crosses 0; 0 or infinity where it does not.

    That curve itself is not needed: it crosses where the weighted sum of all values before is least.
    """
    before = np.cumsum(curves * weights, axis=1)
    sums = np.concatenate([np.zeros((len(curves), 1)), before], axis=1)
    cuts = np.argmin(sums, axis=1)
    edges = np.concatenate([[-np.inf], (grid[1:] + grid[:-1]) / 2, [np.inf]])
    crossed: Floats = np.exp(edges[cuts])
    return crossed

"""Where a limit lies, given runs at some loads: a distribution, by a rising curve through noisy points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.search.observation import FAILED, GROWTH, Observation

__all__ = ["Belief", "believe", "believe_relative"]

Floats = npt.NDArray[np.floating[Any]]
Motion = Callable[[Floats, Floats], Floats]

_COARSE, _FINE = 60, 140  # points at which curves are drawn: of all loads, and of those between which the limit may lie
_SURELY = 3.5  # standard errors beyond which a curve's sign is known
_SAMPLES = 400
_LEAST_WEIGHT = 0.01
_CLIFFS = 0.3  # of the draws: curves with a cliff
_SURE = 0.025
_NEARBY = math.log(1.3)
_ODDS = 2.0  # odds of a miss rise so much faster than latencies
_BEYOND = math.log(2)  # how far from the measured loads a limit is looked for
_BENDS = 0.02  # of the variance of a throughput's motion, where it is not smooth
_HARDLY_BEYOND = 0.05  # the same, for a height that the measured loads set
# Priors: of the curve at the middle and of its slope (standard deviations), and grids of its roughness and of the noise between runs.
_LEVEL, _SLOPE, _SLOPE_MEAN = 3.0, 3.0, 1.5
_ROUGH = np.array([0.05, 0.2, 0.5, 1.0, 2.0, 5.0])
_NOISE = np.array([0.01, 0.025, 0.05, 0.1, 0.2, 0.4])
_NOISE_PRIOR = np.array([0.5, 1.0, 1.5, 1.0, 0.5, 0.25])
_ROUGH_PRIOR = np.array([0.5, 1.0, 1.5, 1.5, 1.0, 0.5])


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

    def below(self, load: float) -> float:
        """The probability that the limit lies below `load`."""
        return float(np.searchsorted(self.limits, load)) / len(self.limits)

    @property
    def middle(self) -> float:
        """The median."""
        return self.quantile(0.5)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Both ends of the central interval."""
        tail = (1 - confidence) / 2
        return self.quantile(tail), self.quantile(1 - tail)


def believe(observations: Sequence[Observation], seed: int = 0) -> Belief:
    """The distribution of the highest load that meets every criterion: the least of the loads at which each one's excess rises above 0.

    Failures count where there are any: few runs are long enough to show that at most 1 % fail, and of a server that refuses nothing
    the SLOs, which a failed request misses too, bound the rest. Growth counts where a load piles up within the SLOs.

    Criteria that share their runs share the runs' noise: their draws are paired by rank.
    """
    keys = [key for key in observations[0].excesses if key not in (FAILED, GROWTH)]
    keys += [FAILED] if any(each.failed for each in observations) else []
    keys += [GROWTH] if any(GROWTH in each.excesses and each.grows and not each.slow for each in observations) else []
    random = np.random.default_rng(seed)
    return Belief(np.minimum.reduce([_by_criterion(observations, key, random) for key in keys]))


def believe_relative(
    loads: Floats, excesses: Floats, errors: Floats, offset: Callable[[Floats], Floats], seed: int = 0
) -> Belief:
    """The distribution of the load at which a curve rises above a height that the curve itself sets, such as a share of its top.

    Each draw of the curve is held against its own height, so that what is not known of the height widens the interval. Throughput is
    smoother than a latency's percentile: the motion is integrated, a spline. Nothing is looked for beyond the measured loads.

    Args:
        loads, excesses, errors: of each run: its load, by how much it lies above the height as estimated, and its standard error.
        offset: by how much the height of each draw lies above the estimated one; it gets the draws (rows) at the runs (columns).
    """
    return Belief(_limits(np.log(loads), excesses, errors, np.random.default_rng(seed), offset))


def _by_criterion(observations: Sequence[Observation], key: str, random: np.random.Generator) -> Floats:
    """Draws of the load at which one criterion is missed, ascending: by its excess or by the odds of a miss, whichever knows more.

    Where a latency rises smoothly its percentile does, and shows how far the limit is. Where requests either wait or do not, it jumps
    from the ones to the others, and their odds rise smoothly.
    """
    observations = [each for each in observations if key in each.excesses]
    seen = [each.excesses[key] for each in observations]
    loads, less = np.log([each.load for each in observations]), _less_sure(observations)
    found = _limits(loads, np.array([each.value for each in seen]), less * np.array([each.error for each in seen]), random)
    if any(each.odds is None for each in seen):
        return found
    odds, errors = (np.array(each) / _ODDS for each in ([x.odds for x in seen], [x.odds_error for x in seen]))
    by_odds = _limits(loads, odds, less * errors, random)
    return min(found, by_odds, key=_width)


def _less_sure(observations: Sequence[Observation]) -> Floats:
    """How many times as unsure each run is as its own requests show: beside a much longer one it ended before its queue had filled."""
    loads, requests = (np.array(each) for each in ([x.load for x in observations], [x.requests for x in observations]))
    near = np.abs(np.log(loads[:, None] / loads[None, :])) < _NEARBY
    longest = np.where(near, requests[None, :], 0).max(axis=1)
    unsure: Floats = np.sqrt(longest / requests)
    return unsure


def _width(limits: Floats) -> float:
    low, high = np.quantile(limits, [_SURE, 1 - _SURE], method="nearest")
    return float(high / low) if 0 < low < math.inf else math.inf


def _limits(
    x: Floats,
    raw: Floats,
    errors: Floats,
    random: np.random.Generator,
    offset: Callable[[Floats], Floats] | None = None,
) -> Floats:
    """Draws of the load at which a curve through runs rises above 0, ascending.

    It is, over the logarithm of the load, a straight line, a Brownian motion on top (how rough, the data decide), and noise: each
    run's own error and what runs differ by. Draws of the curve are made monotone, as more load never helps; each one's zero is a
    draw of the limit. With an `offset`, `believe_relative` has what differs.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), 2.7 and 5.4; Lin and Dunson, Bayesian monotone
    regression using Gaussian process projection (Biometrika 2014).
    """
    # Far from the limit only the side counts: a smooth bound keeps the distant points from deciding the curve near it.
    y = 2 * np.tanh(raw / 2)
    errors = errors * np.maximum(1 - np.tanh(raw / 2) ** 2, 0.2)
    centre = float(x.mean())
    motion = _brownian if offset is None else _integrated
    fits = _fits(x - centre, y, errors, motion)
    grid = _grid(x, centre, fits, _BEYOND if offset is None else _HARDLY_BEYOND)
    width, at = np.gradient(grid), np.searchsorted(grid, x - 1e-9)
    limits: list[Floats] = []
    above = np.zeros(len(grid))
    for fit, count in zip(fits, random.multinomial(_SAMPLES, [fit.weight for fit in fits]).tolist(), strict=True):
        if not count:
            continue
        middle, gain = fit.at(grid - centre)
        spread = _covariance(grid - centre, grid - centre, fit.rough, motion) - gain.T @ gain
        root = np.linalg.cholesky(spread + 1e-8 * np.eye(len(grid)))
        draws = middle + random.standard_normal((count, len(grid))) @ root.T
        if offset is not None:
            draws -= offset(draws[:, at])[:, None]
        above += (draws > 0).sum(axis=0) / _SAMPLES
        limits.append(_zeros(grid, draws, width / (np.diag(spread) + 1e-4)))
    found = np.concatenate(limits)
    _spread_over_cliffs(found, x, above[at], random)
    return np.sort(found)


@dataclass(frozen=True)
class _Fit:
    """The curve by one roughness and one noise.

    Attributes:
        weight: its probability. rough: of the motion. motion: its covariance. x: measured loads, from the centre on.
        lower, white: the root of their covariance, and how far they lie from the mean, in its units.
    """

    weight: float
    rough: float
    motion: Motion
    x: Floats
    lower: Floats
    white: Floats

    def at(self, points: Floats) -> tuple[Floats, Floats]:
        """The curve's mean at `points`, and what the measured loads take off its covariance, as the root of that."""
        gain = np.linalg.solve(self.lower, _covariance(self.x, points, self.rough, self.motion))
        return _SLOPE_MEAN * points + gain.T @ self.white, gain


def _covariance(a: Floats, b: Floats, rough: float, motion: Motion) -> Floats:
    """Of a straight line and a motion."""
    both: Floats = _LEVEL**2 + _SLOPE**2 * np.outer(a, b) + rough**2 * motion(a, b)
    return both


def _brownian(a: Floats, b: Floats) -> Floats:
    """Covariance of a two-sided Brownian motion from the centre on."""
    covariance: Floats = 0.5 * (np.abs(a)[:, None] + np.abs(b)[None, :] - np.abs(a[:, None] - b[None, :]))
    return covariance


def _integrated(a: Floats, b: Floats) -> Floats:
    """Covariance of the integral of a two-sided Brownian motion from the centre on, and a little of the motion itself, for bends."""
    near, far = np.minimum(np.abs(a)[:, None], np.abs(b)[None, :]), np.maximum(np.abs(a)[:, None], np.abs(b)[None, :])
    covariance: Floats = np.where(np.outer(a, b) > 0, near**2 * (3 * far - near) / 6, 0.0) + _BENDS * _brownian(a, b)
    return covariance


def _fits(x: Floats, y: Floats, errors: Floats, motion: Motion) -> list[_Fit]:
    """The curve by each roughness and noise that the data do not rule out."""
    found: list[tuple[float, float, Floats, Floats]] = []
    for rough, p_rough in zip(_ROUGH, _ROUGH_PRIOR, strict=True):
        inner = _covariance(x, x, rough, motion)
        for noise, p_noise in zip(_NOISE, _NOISE_PRIOR, strict=True):
            lower = np.linalg.cholesky(inner + np.diag(errors**2 + noise**2))
            white = np.linalg.solve(lower, y - _SLOPE_MEAN * x)
            likelihood = -0.5 * float(white @ white) - float(np.log(np.diag(lower)).sum())
            found.append((likelihood + math.log(p_rough * p_noise), float(rough), lower, white))
    best = max(fit[0] for fit in found)
    weights = np.exp([fit[0] - best for fit in found])
    weights[weights < _LEAST_WEIGHT * weights.sum()] = 0.0  # each fit that is drawn from costs a decomposition of its own
    weights /= weights.sum()
    return [
        _Fit(float(weight), rough, motion, x, lower, white)
        for weight, (_, rough, lower, white) in zip(weights, found, strict=True)
        if weight
    ]


def _grid(x: Floats, centre: float, fits: Sequence[_Fit], beyond: float) -> Floats:
    """Where curves are drawn: everywhere, more closely where one's sign is not known, and at the measured loads."""
    coarse = np.linspace(x.min() - beyond, x.max() + beyond, _COARSE)
    unsure = np.zeros(_COARSE, dtype=bool)
    for fit in fits:
        middle, gain = fit.at(coarse - centre)
        variance = np.diag(_covariance(coarse - centre, coarse - centre, fit.rough, fit.motion)) - (gain**2).sum(axis=0)
        unsure |= np.abs(middle) < _SURELY * np.sqrt(np.maximum(variance, 1e-12))
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
    carried, missed = x[above < _SURE], x[above > 1 - _SURE]
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

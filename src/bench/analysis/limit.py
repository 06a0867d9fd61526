"""Where the highest load within a limit lies: a posterior by what runs at any loads showed, whoever placed them.

More load never helps, so the logarithm of the odds of a miss never falls over the logarithm of the load. It is a rising random walk of
two parts, one that rises steadily and one that jumps, as latencies do at a cliff; how fast each rises, and by how much runs of one load
differ, the data decide. On a grid of states and loads the posterior is exact (forward and backward), without draws.

Source: Rabiner, A tutorial on hidden Markov models, Proceedings of the IEEE, 1989, for the recursion; Çınlar, On a generalization of
gamma processes, Journal of Applied Probability, 1980, for the walk.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bench.statistics import TAIL

__all__ = ["SPEEDS", "Counts", "Limit", "growth_limit", "limit_of", "lowest"]

Floats = npt.NDArray[np.float64]

_APART = 0.02  # step of `SPEEDS` (ln); convention
# what a machine may be slower by in a round (ln); convention: three times `_SPEED` to both sides
SPEEDS = np.arange(-6, 7) * _APART
# standard deviation of that; measured: docs/explanation/decisions.md, 1.9 to 3.4 % between starts in four measurements, rounded up
_SPEED = 0.04
_POINTS = 5  # points of a normal distribution that stand for it; convention
_SIDE = 24  # states to each side of the limit; convention
_CLOSE = 0.15  # ln odds about the limit within which states are spaced evenly; convention
_FAR = 4.8  # ln odds beyond which a run shows its side alone; convention
_STEP = 0.02  # step of the grid in ln load; convention
_SMALL = 0.1  # mean of the walk's small jumps (ln odds); tuned: benchmarks.capacity
_LARGE = 10.0  # mean of its large jumps (ln odds), as at a cliff; tuned: benchmarks.capacity
_STEADY = (0.6, 2.0, 6.0, 15.0, 36.0)  # rises of the ln odds over an e-fold of load by small jumps; tuned: benchmarks.capacity
_BY_JUMPS = (0.3, 3.0)  # the same by large ones; tuned: benchmarks.capacity
_NOISES = (0.03, 0.1, 0.25, 0.6)  # standard deviations of the ln odds between runs that are tried; tuned: benchmarks.capacity
_NEGLIGIBLE = 1e-3  # share of the posterior below which a rise and a noise are left out; convention
_GROWS_BY = 0.01  # standard deviation of backlog growth between runs, beside its own error; tuned: benchmarks.capacity
_LEAST = 1e-300  # what keeps a probability from being 0; convention
_RISES = tuple((steady, jumps) for steady in _STEADY for jumps in _BY_JUMPS)


def _states() -> Floats:
    apart = np.arcsinh(_FAR / _CLOSE) / (_SIDE - 0.5)
    states: Floats = _CLOSE * np.sinh((np.arange(-_SIDE, _SIDE) + 0.5) * apart)
    return states


_STATES = _states()  # ln odds of a miss ÷ those allowed; derived: the limit lies between the two in the middle
_WIDTHS = np.gradient(_STATES)


@dataclass(frozen=True)
class Counts:
    """What one run shows of a criterion.

    Attributes:
        load: its level. round: what it shares the machine's speed with.
        misses: of `requests`, had the machine been faster by each of `SPEEDS` (ln); all alike where speed does not matter.
        alike: how many requests in a row show as much as a single independent one (1 or more).
    """

    load: float
    round: Hashable
    misses: Floats
    requests: int
    alike: float = 1.0


@dataclass(frozen=True)
class Limit:
    """A posterior of the highest load within a limit.

    Attributes:
        x: ln loads, ascending. below: the probability that the limit lies below each. share: of requests that miss there, the median.
    """

    x: Floats
    below: Floats
    share: Floats

    def lies_below(self, load: float) -> float:
        """The probability that the limit lies below `load`."""
        return float(np.interp(math.log(load), self.x, self.below))

    def share_at(self, load: float) -> float:
        """The share of requests that miss at `load` (0–1)."""
        return float(np.interp(math.log(load), self.x, self.share))

    def quantile(self, share: float) -> float:
        """The load below which the limit lies with a probability of `share`; 0 or infinite beyond the grid."""
        if self.below[0] > share:
            return 0.0
        at = int(np.searchsorted(self.below, share, side="right"))
        if at == len(self.x):
            return math.inf
        part = (share - self.below[at - 1]) / (self.below[at] - self.below[at - 1])
        return math.exp(self.x[at - 1] + part * (self.x[at] - self.x[at - 1]))

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the central 95 %."""
        return self.quantile(TAIL), self.quantile(1 - TAIL)


def lowest(limits: Sequence[Limit]) -> Limit:
    """The least of several limits of the same runs, which share their noise: paired by rank."""
    first = limits[0]
    below = np.maximum.reduce([np.interp(first.x, each.x, each.below) for each in limits])
    return Limit(first.x, below, first.share)


def limit_of(runs: Sequence[Counts], allowed: float, *, moves: bool) -> Limit:
    """The limit of a criterion on a share of requests.

    The speed of each round is the likeliest one. What all rounds together are off by no run can show: that stays in the posterior.

    Args:
        allowed: share of requests that may miss (0–1), above 0. moves: whether a slower machine is loaded more, as by a rate.
    """
    grid = _Grid.of(runs, allowed, moves)
    kinds = grid.kinds()
    off, weights = _together(len(grid.members))
    states = grid.posterior(kinds, grid.speeds(kinds), off / _APART, weights)
    shares = 1 / (1 + (1 - allowed) / allowed * np.exp(-_STATES))
    middle = (np.cumsum(states, axis=1) < 1 / 2).sum(axis=1)
    return Limit(grid.x, np.maximum.accumulate(states[:, _SIDE:].sum(axis=1)), shares[np.minimum(middle, len(shares) - 1)])


def growth_limit(loads: Floats, growth: Floats, errors: Floats, rounds: Sequence[Hashable]) -> Limit:
    """The capacity of an open loop, by the requests that pile up: of those that come, 1 − capacity ÷ load.

    Args:
        growth, errors: of each run, the share of requests that stay and its standard error.
    """
    x = _axis(np.log(loads))
    stay = np.maximum(0, 1 - np.exp(x)[:, None] / loads)
    noise = np.sqrt(errors**2 + _GROWS_BY**2 + (_SPEED * (stay > 0)) ** 2)
    likelihood = -(((growth - stay) / noise) ** 2 / 2 + np.log(noise)).sum(axis=1)
    density = np.exp(likelihood - likelihood.max())
    below = np.cumsum(density) / density.sum()
    off, weights = _together(len(set(rounds)))
    spread = np.stack([np.interp(x + by, x, below, left=0.0, right=1.0) for by in off])
    return Limit(x, weights @ spread, np.maximum(0, 1 - math.exp(float(np.interp(0.5, below, x))) / np.exp(x)))


def _together(rounds: int) -> tuple[Floats, Floats]:
    """What the machine may be off by in all rounds together (ln), and how likely each is (Gauss and Hermite's points)."""
    points, weights = np.polynomial.hermite_e.hermegauss(_POINTS)
    return points * _SPEED / math.sqrt(rounds), weights / weights.sum()


def _axis(x: Floats) -> Floats:
    """From the lowest load to the highest (ln), and as far beyond as a round's speed may move them."""
    low, high = x.min() + SPEEDS[0], x.max() + SPEEDS[-1]
    axis: Floats = low + _STEP * np.arange(math.ceil((high - low) / _STEP) + 2)
    return axis


@dataclass(frozen=True)
class _Kinds:
    """Rises and noises that the data do not rule out, and the likeliest of each. Attributes: rises: as `_walks` has them."""

    rises: tuple[tuple[float, float], ...]
    noises: tuple[int, ...]
    best: tuple[tuple[float, float], int]


@dataclass(frozen=True)
class _Grid:
    """The runs on a grid of loads and states.

    Attributes:
        x: ln loads. at: where on it each run lies (rows) at each of `SPEEDS` (columns), in steps.
        seen: ln likelihood by each run, at each speed and with each noise, of each state. members: the runs of each round.
    """

    x: Floats
    at: Floats
    seen: Floats
    members: tuple[npt.NDArray[np.intp], ...]

    @classmethod
    def of(cls, runs: Sequence[Counts], allowed: float, moves: bool) -> _Grid:
        loads = np.log([run.load for run in runs])
        x = _axis(loads)
        off = loads[:, None] + (SPEEDS if moves else np.zeros(len(SPEEDS)))
        rounds = list(dict.fromkeys(run.round for run in runs))
        members = tuple(np.flatnonzero([run.round == each for run in runs]) for each in rounds)
        seen = np.stack([_seen(run, allowed) for run in runs]) @ _blurs()[:, None]
        return cls(x, (off - x[0]) / _STEP, np.log(np.maximum(np.moveaxis(seen, 0, 2), _LEAST)), members)

    def likelihood(self, speeds: npt.NDArray[np.intp], noises: Sequence[int]) -> Floats:
        """At each place, for each set of speeds (columns of `speeds`, one a run) and each noise: of each state.

        A run between two places counts at both, by how near they are.
        """
        count = speeds.shape[1]
        logs = np.zeros((len(self.x), count, len(noises), len(_STATES)))
        for at, seen, picked in zip(self.at, self.seen, speeds, strict=True):
            before = np.floor(at[picked]).astype(int)
            part = (at[picked] - before)[:, None, None]
            known = seen[picked][:, list(noises)]
            logs[before, np.arange(count)] += (1 - part) * known
            logs[before + 1, np.arange(count)] += part * known
        likelihood: Floats = np.exp(logs - logs.max(axis=-1, keepdims=True))
        return likelihood.reshape(len(self.x), 1, count * len(noises), len(_STATES))

    @staticmethod
    def forward(seen: Floats, walks: Floats) -> tuple[Floats, Floats]:
        """The states at each place given those before, and the ln evidence, by walk and by column of `seen`."""
        kept = np.empty((len(seen), len(walks), *seen.shape[2:]))
        evidence, now = np.zeros(kept.shape[1:3]), _START
        for place, here in enumerate(seen):
            now = (now @ walks if place else now) * here
            total = np.maximum(now.sum(axis=-1, keepdims=True), _LEAST)
            now, evidence = now / total, evidence + np.log(total[..., 0])
            kept[place] = now
        return kept, evidence

    def kinds(self) -> _Kinds:
        """Which rises and noises the data do not rule out."""
        usual = np.full((len(self.at), 1), len(SPEEDS) // 2)
        evidence = self.forward(self.likelihood(usual, range(len(_NOISES))), _walks(_RISES))[1]
        weights = np.exp(evidence - evidence.max())
        known = weights / weights.sum() > _NEGLIGIBLE
        rise, noise = np.unravel_index(weights.argmax(), weights.shape)
        rises = tuple(_RISES[i] for i in np.flatnonzero(known.any(axis=1)))
        return _Kinds(rises, tuple(np.flatnonzero(known.any(axis=0)).tolist()), (_RISES[rise], int(noise)))

    def speeds(self, kinds: _Kinds) -> npt.NDArray[np.intp]:
        """The likeliest speed of each run's round, as an index of `SPEEDS`; rounds one after the other, twice."""
        found = np.full(len(self.at), len(SPEEDS) // 2)
        if len(self.members) == 1:
            return found
        rise, noise = kinds.best
        for members in 2 * self.members:
            tried = np.repeat(found[:, None], len(SPEEDS), axis=1)
            tried[members] = np.arange(len(SPEEDS))
            evidence = self.forward(self.likelihood(tried, (noise,)), _walks((rise,)))[1][0]
            found[members] = int(np.argmax(evidence - (SPEEDS / _SPEED) ** 2 / 2))
        return found

    def posterior(self, kinds: _Kinds, speeds: npt.NDArray[np.intp], shifts: Floats, weights: Floats) -> Floats:
        """The probability of each state (columns) at each place (rows).

        Args:
            shifts: of all rounds together, in steps of `SPEEDS`; weights: of each.
        """
        floor = np.floor(shifts).astype(int)
        sets = np.concatenate([floor, floor + 1])
        weights = np.concatenate([weights * (1 - (shifts - floor)), weights * (shifts - floor)])
        seen = self.likelihood(np.clip(speeds[:, None] + sets, 0, len(SPEEDS) - 1), kinds.noises)
        walks = _walks(kinds.rises)
        kept, evidence = self.forward(seen, walks)
        each = np.exp(evidence - evidence.max()).reshape(len(walks), len(sets), -1)
        each *= (weights / np.maximum(each.sum(axis=(0, 2)), _LEAST))[None, :, None]
        flat, back = each.reshape(len(walks), -1, 1), np.swapaxes(walks, 1, 2)
        later, found = np.ones_like(kept[0]), np.empty((len(seen), len(_STATES)))
        for place in reversed(range(len(seen))):
            both = kept[place] * later
            found[place] = (flat * both / np.maximum(both.sum(axis=-1, keepdims=True), _LEAST)).sum(axis=(0, 1))
            later = (later * seen[place]) @ back
            later /= np.maximum(later.max(axis=-1, keepdims=True), _LEAST)
        return found


def _seen(run: Counts, allowed: float) -> Floats:
    """The likelihood of each state (columns) at each speed (rows), by requests ÷ `alike` independent ones."""
    odds = math.log(allowed / (1 - allowed)) + _STATES
    missed, met = -np.logaddexp(0, -odds), -np.logaddexp(0, odds)
    logs = (run.misses[:, None] * missed + (run.requests - run.misses)[:, None] * met) / run.alike
    seen: Floats = np.exp(logs - logs.max(axis=1, keepdims=True))
    return seen


@lru_cache
def _blurs() -> Floats:
    """What each noise between runs makes of each state (rows), transposed."""
    noises = np.array(_NOISES)[:, None, None]
    near = np.exp(-(((_STATES[:, None] - _STATES) / noises) ** 2) / 2) * _WIDTHS
    blurs: Floats = np.swapaxes(near / near.sum(axis=-1, keepdims=True), 1, 2)
    return blurs


_START = _WIDTHS / _WIDTHS.sum()  # at the lowest load any odds are as likely


@lru_cache
def _walks(rises: tuple[tuple[float, float], ...]) -> Floats:
    """The chances to go from one state (rows) to another (columns) in a step, by each steady rise and each by jumps."""
    return np.stack([_gamma(steady, _SMALL) @ _gamma(jumps, _LARGE) for steady, jumps in rises])


@lru_cache
def _gamma(rise: float, jump: float) -> Floats:
    """Of a gamma process; steps that end between two states go to both, so that the mean stays."""
    from scipy.special import gammainc  # noqa: PLC0415 - 0.4 s, which a figure without SLOs need not pay

    shape = rise * _STEP / jump
    up = np.maximum(_STATES - _STATES[:, None], 0)
    short = up * gammainc(shape, up / jump) - shape * jump * gammainc(shape + 1, up / jump)
    slopes = np.diff(short, axis=1) / np.diff(_STATES)
    chances = np.clip(np.diff(slopes, axis=1, prepend=0.0, append=1.0), 0, None)
    each: Floats = chances / chances.sum(axis=1, keepdims=True)
    return each

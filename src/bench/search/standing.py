"""How good each candidate is, by all visits together: a Gaussian model of the logarithm of the objective.

A candidate's value is the sum of an effect of each of its settings and of what belongs to the combination alone. A visit shows it with
the error of its search, what one start differs from another, and the machine's drift, a Brownian motion over time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.statistics.limit import SPEEDS_DIFFER

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# Standard deviations of logarithms.
START = SPEEDS_DIFFER  # by how much starts of one server differ
_DRIFT = 0.01  # by how much a machine's speed moves within a minute (ln speed); convention
_LEVEL = 1.0  # what is not known of the objective at all (ln objective); convention: a factor of 2.7 either way
_EFFECT = 0.2  # effect of a value of a setting (ln objective); convention
_TOGETHER = 0.1  # what a combination adds to the effects of its values (ln objective); convention
# factors on all effects that are tried, alike beforehand; tuned: benchmarks.tuning --effect, of 0.1, 0.2 and 0.8
_SCALES = (0.5, 1.0, 2.0, 4.0)
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Seen:
    """What a visit showed. candidate: its place. middle, error: of the logarithm of the objective. at_min: when (min)."""

    candidate: int
    middle: float
    error: float
    at_min: float


@dataclass(frozen=True)
class Space:
    """The candidates.

    Attributes:
        settings: of each, by column; all have the same columns.
    """

    settings: Sequence[Mapping[str, Any]]

    def values(self, column: str) -> list[Any]:
        """The values of a setting, in the order of the candidates."""
        return list(dict.fromkeys(each[column] for each in self.settings))

    @property
    def columns(self) -> list[str]:
        """The settings that differ."""
        return [column for column in self.settings[0] if len(self.values(column)) > 1]

    def features(self) -> Floats:
        """Which values each candidate has: candidates × values of all settings, 0 or 1."""
        parts = [[[float(each[c] == value) for value in self.values(c)] for each in self.settings] for c in self.columns]
        return np.concatenate([np.array(part) for part in parts], axis=1) if parts else np.zeros((len(self.settings), 0))


class _Part:
    """The posterior of all candidates if effects have one scale.

    Attributes:
        means, covariance: of the logarithm of each candidate's objective. evidence: the marginal likelihood (ln, up to a constant).
    """

    def __init__(self, effects: Floats, seen: Sequence[Seen], scale: float) -> None:
        mean = seen[0].middle  # of all, as far as is known
        prior = scale**2 * effects + _LEVEL**2
        at = np.array([each.candidate for each in seen])
        times = np.array([each.at_min for each in seen])
        noise = _DRIFT**2 * np.minimum.outer(times, times) + np.diag([each.error**2 + START**2 for each in seen])
        total = prior[np.ix_(at, at)] + noise
        self._prior, self._at, self._times, self._mean = prior, at, times, mean
        self._weights: Floats = np.linalg.inv(total)
        self._residual: Floats = np.array([each.middle for each in seen]) - mean
        gain = prior[:, at] @ self._weights
        self.means: Floats = mean + gain @ self._residual
        self.covariance: Floats = prior - gain @ prior[at]
        self.evidence = -float(self._residual @ self._weights @ self._residual + np.linalg.slogdet(total)[1]) / 2

    def expected(self, candidate: int, at_min: float) -> tuple[float, float]:
        """The logarithm of a candidate's objective on the machine as it is then, and its variance."""
        shared = self._prior[candidate, self._at] + _DRIFT**2 * np.minimum(at_min, self._times)
        variance = self._prior[candidate, candidate] + _DRIFT**2 * at_min - shared @ self._weights @ shared
        return float(self._mean + shared @ self._weights @ self._residual), float(variance)


class Standing:
    """The posterior of all candidates, over the scales that effects may have.

    Attributes:
        means, covariance: of the logarithm of each candidate's objective.
    """

    def __init__(self, space: Space, seen: Sequence[Seen]) -> None:
        """Args: seen: at least one visit."""
        self._space = space
        features = space.features()
        effects = _EFFECT**2 * features @ features.T + _TOGETHER**2 * np.eye(len(features))
        self._parts = [_Part(effects, seen, scale) for scale in _SCALES]
        logs = np.array([part.evidence for part in self._parts])
        shares = np.exp(logs - logs.max())
        self._shares: Floats = shares / shares.sum()
        means = np.array([part.means for part in self._parts])
        self.means: Floats = self._shares @ means
        off = means - self.means
        within = np.tensordot(self._shares, np.array([part.covariance for part in self._parts]), axes=1)
        self.covariance: Floats = within + (self._shares[:, None] * off).T @ off

    def expected(self, candidate: int, at_min: float) -> tuple[float, float]:
        """The logarithm of a candidate's objective on the machine as it is then, and its standard error."""
        means, variances = np.array([part.expected(candidate, at_min) for part in self._parts]).T
        mean = float(self._shares @ means)
        return mean, math.sqrt(max(0.0, float(self._shares @ (variances + (means - mean) ** 2))))

    def difference(self, one: int, other: int) -> tuple[float, float]:
        """By how much the logarithm of one candidate's objective lies above another's, and the standard error of that."""
        variance = self.covariance[one, one] + self.covariance[other, other] - 2 * self.covariance[one, other]
        return float(self.means[one] - self.means[other]), math.sqrt(max(0.0, float(variance)))

    def better(self, one: int, other: int) -> float:
        """The probability that one candidate is better than another."""
        mean, error = self.difference(one, other)
        return _NORMAL.cdf(mean / error) if error else float(mean > 0)

    def improvement(self, one: int, other: int) -> float:
        """How much better one candidate is expected to be than another, where it is better at all (as a logarithm)."""
        mean, error = self.difference(one, other)
        return mean * _NORMAL.cdf(mean / error) + error * _NORMAL.pdf(mean / error) if error else max(0.0, mean)

    def contribution(self, column: str, one: int, other: int) -> tuple[float, float] | None:
        """What one candidate's value of a setting adds over another's, in the mean of all pairs of candidates that differ in nothing
        else: the logarithm of the factor, and its standard error. None where there is no such pair.
        """
        settings = self._space.settings
        first, second = settings[one][column], settings[other][column]
        contrast, pairs = np.zeros(len(settings)), 0
        for i, each in enumerate(settings):
            twin = {**each, column: second}
            if each[column] == first and twin in settings:
                contrast[i] += 1
                contrast[list(settings).index(twin)] -= 1
                pairs += 1
        if not pairs:
            return None
        contrast /= pairs
        return float(contrast @ self.means), math.sqrt(max(0.0, float(contrast @ self.covariance @ contrast)))

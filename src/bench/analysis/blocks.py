"""Effects from runs in blocks: what a session shares is one observation, whatever the number of its runs.

ln (candidate ÷ baseline) at level l in session s is taken as δ_l + b_s + e_ls: the level's effect, what the whole session is off by
(another start of a server, another hour of the machine) and the rest. How the intervals follow, and how often they are wrong:
docs/explanation/comparing.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bench.analysis.levels import LEAST_NOISE
from bench.statistics import CONFIDENCE

Floats = npt.NDArray[np.float64]
FEWEST_SESSIONS = 4  # fewest sessions that show how far sessions differ; derived: Student's t is 3.2 for four and 12.7 for two
# standard deviation of ln ratio between two sessions of one deployment, where fewer were measured; convention: a baseline against
# itself was 11 % off once (docs/explanation/decisions.md)
ASSUMED_SPREAD = 0.10
# weight of a test's threshold by what it covers: the effect over all levels is hardest to show, parts are many; measured:
# docs/explanation/comparing.md, five sessions detect 11 % in place of 15 %
WEIGHTS = {"all": 1.0, "trend": 0.2, "region": 0.05, "level": 0.05}
SHARED = 0.5  # what repeats of a level share within a session, as a multiple of their noise; convention
_MOST_FREEDOM = 30  # most degrees of freedom that the simulation draws; convention: more of them change nothing
_DRAWS = 2000  # simulated studies behind the threshold of a comparison; convention


@dataclass(frozen=True)
class Fit:
    """The levels' effects on one metric, and the two parts of their noise.

    Attributes:
        effects: mean ln ratio of each level; NaN where the metric has none. share: of the sessions behind each level (0–1).
        excess: of each level, its own variance ÷ that of all where it is larger, else 1: noise grows with the load at times.
        between: variance of the mean over levels, or where `assumed` of what sessions share alone. within: variance of a level's effect
            apart from what sessions share. Each with its degrees of `…_freedom`; 0: not known.
        sessions, repeats: the repeats are the mean number of runs of a level in a session.
    """

    effects: Floats
    share: Floats
    excess: Floats
    between: float
    between_freedom: float
    within: float
    within_freedom: float
    assumed: bool
    sessions: int
    repeats: float

    @property
    def levels(self) -> int:
        """Levels with a value."""
        return int(np.isfinite(self.effects).sum())

    @property
    def known(self) -> bool:
        """Whether there is any measure of the noise."""
        return self.within_freedom > 0 or (not self.assumed and self.levels == 1)

    @property
    def run_noise(self) -> float:
        """Standard deviation of the ln of one run, by itself."""
        return float((self.within * self.sessions * self.repeats / 2) ** 0.5)

    @property
    def spread(self) -> float:
        """Standard deviation of the ln ratio between two sessions that share a time, beyond the noise of their runs."""
        own = self.between if self.assumed else max(0.0, self.between - self.within / max(1, self.levels))
        return float((own * self.sessions) ** 0.5)


def fit(
    cells: Floats, counts: Floats, *, repeats: float, noise: tuple[float, float], spread: float, spread_freedom: float = 0.0
) -> Fit:
    """The effects of the levels in `cells`.

    Args:
        cells: [session, level] mean ln ratio of the runs of a level in a session; NaN where there is none. counts: [level] how many
            sessions have it. repeats: runs behind a cell, in the mean.
        noise: variance of a cell by its repeats, and its degrees of freedom, for where the cells themselves do not show it.
        spread: standard deviation of the ln ratio between sessions, taken where there are fewer than `FEWEST_SESSIONS`;
            spread_freedom: behind it; 0: it is assumed.
    """
    sessions, there = len(cells), np.isfinite(cells)
    share = counts / sessions
    levels = int((counts > 0).sum())
    floor = 2 * LEAST_NOISE**2 / max(repeats, 1.0)
    if sessions == 1:
        variance, freedom = noise
        off = np.zeros(1)
        effects, excess = cells[0], np.ones(cells.shape[1])
    else:
        effects, off, of_level = _two_way(cells, there)
        squares = float(of_level.sum())
        freedom = max(0.0, float(there.sum() - levels - sessions + 1))
        own = of_level / np.maximum(counts - 1, 1) * levels / max(1, levels - 1)
        enough = sessions >= FEWEST_SESSIONS and squares > 0 and freedom > 0
        excess = np.maximum(1.0, own * freedom / squares) if enough else np.ones(len(own))
        variance, freedom = (squares / freedom, freedom) if freedom else noise
    within = max(variance, floor) / sessions
    of_means = float((off**2).sum() / (sessions - 1)) if sessions > 1 else 0.0
    if sessions >= FEWEST_SESSIONS:
        between = max(of_means, floor / max(1, levels)) / sessions
        return Fit(effects, share, excess, between, sessions - 1.0, within, freedom, False, sessions, repeats)
    between = max(spread**2, of_means) / sessions
    return Fit(effects, share, excess, between, spread_freedom or math.inf, within, freedom, True, sessions, repeats)


def _two_way(cells: Floats, there: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Least squares for level + session, the sessions adding up to 0: levels (NaN without a cell), sessions, squares left by level."""
    sessions, levels = cells.shape
    rows, columns = np.nonzero(there)
    design = np.zeros((len(rows), levels + sessions - 1))
    design[np.arange(len(rows)), columns] = 1
    last = rows == sessions - 1
    design[np.flatnonzero(~last), levels + rows[~last]] = 1
    design[last, levels:] = -1
    solved, *_ = np.linalg.lstsq(design, cells[there], rcond=None)
    left = cells[there] - design @ solved
    off = np.append(solved[levels:], -solved[levels:].sum())
    of_level: Floats = np.bincount(columns, left**2, minlength=levels).astype(float)
    return np.where(there.any(axis=0), solved[:levels], np.nan), off, of_level


def judge(found: Fit, contrasts: Floats) -> tuple[Floats, Floats, Floats]:
    """Estimate, standard error and degrees of freedom (Satterthwaite's) of each weighted sum of levels.

    With weights c, the variance is (Σc)² · between + (Σc² − (Σc)²/L) · within where the sessions' own means give the first part, and
    Σc² · within where it is assumed; each level's c² times its `excess`. A trend has Σc = 0: what a session shares does not touch it.

    Args:
        contrasts: [contrast, level]; 0 where a level has no effect.
    """
    estimate = contrasts @ np.nan_to_num(found.effects)
    first, second = _coefficients(found, contrasts)
    one, two = first * found.between, second * found.within
    return estimate, np.sqrt(one + two), _satterthwaite(found, one, two)


def _coefficients(found: Fit, contrasts: Floats) -> tuple[Floats, Floats]:
    """Coefficients of `between` and `within`."""
    whole = contrasts.sum(axis=1) ** 2
    there = np.isfinite(found.effects)
    scale = np.where(there, found.excess / np.where(there, found.share, 1.0), 0.0)
    own = contrasts**2 @ scale
    return whole, own if found.assumed else np.maximum(own - whole * scale.sum() / max(1, found.levels) ** 2, 0.0)


def _satterthwaite(found: Fit, one: Floats, two: Floats) -> Floats:
    whole = one + two
    parts = one**2 / found.between_freedom + two**2 / max(found.within_freedom, 1.0)
    freedom: Floats = np.clip(
        np.divide(whole**2, parts, out=np.where(whole > 0, math.inf, 1.0), where=parts > 0), 1.0, math.inf
    )
    return freedom


def correlation(residuals: Floats, freedom: float) -> Floats:
    """Correlation of metrics, from their residuals [observation, metric], shrunk towards 0 the fewer there are."""
    metrics = residuals.shape[1]
    if freedom < 1 or metrics == 1:
        return np.eye(metrics)
    scale = np.sqrt((residuals**2).sum(axis=0))
    scales = np.outer(scale, scale)
    together = residuals.T @ residuals / np.where(scales > 0, scales, np.inf)  # a metric without variation correlates with none
    weight = freedom / (freedom + 2)
    mixed: Floats = weight * together
    np.fill_diagonal(mixed, 1.0)
    return mixed


def critical(
    fits: Sequence[Fit], contrasts: Sequence[Floats], weights: Sequence[Floats], together: Floats, *, draws: int = _DRAWS
) -> float:
    """The α such that no test's p-value is below α · its weight, 95 times in 100 without any effect (min-p, Westfall and Young 1993).

    Studies with the noise of `fits` are drawn, by a fixed seed, and each is tested as the real one is.

    Args:
        fits: of each metric. contrasts: of each metric, see `judge`. weights: of each metric's contrasts, 1 at most.
        together: [metric, metric] correlation of their noise.
    """
    from scipy.special import stdtr  # noqa: PLC0415 - 0.4 s, which jobs without a comparison need not pay

    random = np.random.default_rng(0)
    root = np.linalg.cholesky(together + 1e-9 * np.eye(len(fits)))
    levels = len(fits[0].effects)

    def normals(count: int) -> Floats:
        drawn: Floats = random.standard_normal((draws, count, len(fits))) @ root.T
        return drawn

    def squares(freedoms: Sequence[float]) -> list[Floats]:
        """Mean squares of each metric; correlated as the metrics are."""
        most = max((max(1, int(min(freedom, _MOST_FREEDOM))) for freedom in freedoms if math.isfinite(freedom)), default=1)
        drawn = normals(most) ** 2
        return [
            np.ones(draws) if math.isinf(freedom) else drawn[:, : max(1, int(min(freedom, _MOST_FREEDOM))), j].mean(axis=1)
            for j, freedom in enumerate(freedoms)
        ]

    common, own = normals(1)[:, 0], normals(levels)
    ones, twos = squares([one.between_freedom for one in fits]), squares([one.within_freedom for one in fits])
    least = np.ones(draws)
    even = [replace(one, excess=np.ones(levels)) for one in fits]  # so the drawn tests are no stricter than the real ones
    for j, (one, tests, weight) in enumerate(zip(even, contrasts, weights, strict=True)):
        if not one.known or not len(tests):
            continue
        there = np.isfinite(one.effects)
        noise = np.where(there, own[:, :, j] / np.sqrt(np.where(there, one.share, 1.0)), 0.0) * one.within**0.5
        if not one.assumed:
            noise = np.where(there, noise - noise.sum(axis=1, keepdims=True) / one.levels, 0.0)
        estimate = noise @ tests.T + np.outer(common[:, j] * one.between**0.5, tests.sum(axis=1))
        first, second = _coefficients(one, tests)
        parts = np.outer(ones[j], first * one.between), np.outer(twos[j], second * one.within)
        t = np.abs(estimate) / np.maximum(np.sqrt(parts[0] + parts[1]), 1e-12)
        least = np.minimum(least, (2 * stdtr(_satterthwaite(one, *parts), -t) / weight).min(axis=1))
    return float(np.quantile(least, 1 - CONFIDENCE))

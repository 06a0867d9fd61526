"""Which candidate's server to start next, and when the best is known.

First looks start candidates in the order of what is expected of them: a candidate's value (ln objective) is the sum of an effect of
each of its settings and of what belongs to the combination alone. A search ends as soon as its candidate has lost. The race starts
those that may still be the best by turns with the leader. The confirmation starts leader and default by turns; the gain is by these
starts alone, so that a candidate which had luck in the race gains nothing by it. The minutes that are kept for it go to the others
where the default leads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import NormalDist, fmean
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bench.runs.searches import MISSES, Confirmed, Phase, Visit
from bench.statistics.observation import SPEEDS_DIFFER
from bench.statistics.textbook import CONFIDENCE, FREEDOM, student_t

START = SPEEDS_DIFFER  # by how much starts of one server differ (standard deviation of ln speed)
_LITTLE = 0.01  # expected improvement (as a logarithm) that is not worth a start; convention
_PAIRS = 4  # pairs of starts that confirm the leader; convention
_KEPT = 2  # pairs for which the race leaves room; tuned: benchmarks.tuning
_EFFECT = 0.2  # effect of a value of a setting (standard deviation of ln objective); convention
_TOGETHER = 0.1  # what a combination adds to the effects of its values, likewise; convention
_NORMAL = NormalDist()
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rival:
    """Whom a candidate has to beat.

    Attributes:
        rate: of the leader (requests/s), at the candidate's units. error: of its logarithm, for what differs between starts too.
    """

    rate: float
    error: float


@dataclass(frozen=True)
class Ask:
    """A visit to make. start: first rate (requests/s); None: a probe finds one. rival: against whom it ends early; None: never."""

    candidate: str
    phase: Phase
    round: int
    start: float | None
    rival: Rival | None


@dataclass
class Outcome:
    """What a race found, as `TuningRecord` has it."""

    visits: list[Visit] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)
    settled: bool = False
    leader: str | None = None
    confirmed: Confirmed | None = None

    @property
    def seconds(self) -> float:
        """The time that visits took (s)."""
        return sum(visit.seconds for visit in self.visits)


@dataclass
class _Race:
    settings: Mapping[str, Mapping[str, Any]]
    units: Mapping[str, float]
    budget_s: float
    visit: Callable[[Ask], Visit]
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def default(self) -> str:
        return next(iter(self.settings))

    def start(self, candidate: str, phase: Phase, number: int, *, against: str | None = None) -> Visit:
        """Visit a candidate. Args: against: the leader, at whose rate the search begins, and below which it ends."""
        start, rival = None, None
        if known := self.value(against or candidate) or self.value(self.default):
            rate = math.exp(known[0] + math.log(self.units[candidate]))
            start = float(f"{rate:.3g}")
            rival = Rival(rate, math.sqrt(known[1] + START**2)) if against else None
        self.outcome.visits.append(self.visit(Ask(candidate, phase, number, start, rival)))
        return self.outcome.visits[-1]

    def failed(self, candidate: str) -> bool:
        """Whether a start shows that it cannot be used. A search that ends on invalid runs says nothing of its server, but one of
        a first look is not made again.
        """
        of = [visit for visit in self.outcome.visits if visit.deployment == candidate and visit.middle is None]
        return any(visit.why in (*MISSES, "died") or visit.phase == "first look" for visit in of)

    def value(self, candidate: str) -> tuple[float, float] | None:
        """The logarithm of its objective, and its variance, by all its starts; None where none shows it."""
        seen = [
            (visit.middle - math.log(self.units[candidate]), 1 / (visit.error**2 + START**2))
            for visit in self.outcome.visits
            if visit.deployment == candidate and visit.middle is not None and visit.error is not None
        ]
        weight = sum(each for _, each in seen)
        return (sum(middle * each for middle, each in seen) / weight, 1 / weight) if seen else None

    def ahead(self, one: str, other: str) -> tuple[float, float]:
        """The probability that one candidate is better than another, and how much better it is expected to be where it is (ln)."""
        names = list(self.settings)
        by = np.array([(each == one) - (each == other) for each in names], dtype=float)
        means, covariance = self.expected()
        mean, error = float(by @ means), math.sqrt(max(1e-9, float(by @ covariance @ by)))
        return _NORMAL.cdf(mean / error), mean * _NORMAL.cdf(mean / error) + error * _NORMAL.pdf(mean / error)

    def expected(self) -> tuple[Floats, Floats]:
        """What is expected of all candidates (ln objective), and its covariance: those that share settings are alike."""
        settings = list(self.settings.values())
        shared = [[sum(one[key] == other[key] for key in one) for other in settings] for one in settings]
        prior = _EFFECT**2 * np.array(shared) + _TOGETHER**2 * np.eye(len(settings)) + 1.0
        known = {i: found for i, name in enumerate(self.settings) if (found := self.value(name))}
        at, middles = list(known), np.array([middle for middle, _ in known.values()])
        gain = prior[:, at] @ np.linalg.inv(prior[np.ix_(at, at)] + np.diag([variance for _, variance in known.values()]))
        mean = middles[0] if at else 0.0
        return mean + gain @ (middles - mean), prior - gain @ prior[at]

    @property
    def tried(self) -> dict[str, float]:
        """The candidates that showed a rate each time, with the logarithm of their objective, the best first."""
        known = {name: found[0] for name in self.settings if (found := self.value(name)) and not self.failed(name)}
        return dict(sorted(known.items(), key=lambda each: -each[1]))

    @property
    def leader(self) -> str:
        """The best of those that were tried; the default where none was."""
        return next(iter(self.tried), self.default)

    def in_it(self) -> list[str]:
        """Those that may be the best, the leader first: none of them failed or is worse than the leader (95 %)."""
        outcome, leader = self.outcome, self.leader
        left = [each for each in self.tried if each == leader or self.ahead(each, leader)[0] > 1 - CONFIDENCE]
        out = [each for each in self.tried if each not in left]
        outcome.dropped = {each: outcome.dropped.get(each, len(outcome.visits)) for each in out}
        outcome.settled = len(left) == 1 and not outcome.untried
        return left

    @property
    def misses(self) -> bool:
        """Whether the default meets the SLOs at no rate."""
        return self.outcome.visits[0].middle is None

    @property
    def pair_s(self) -> float:
        """Seconds of a pair; of a start of the leader alone, where there is no rate of the default to compare it with."""
        return self.whole_s * (1 if self.misses else 2)

    @property
    def whole_s(self) -> float:
        """Seconds of a visit that shows a rate and is not ended early."""
        whole = [visit.seconds for visit in self.outcome.visits if visit.middle is not None and visit.why != "lost"]
        return fmean(whole or [max(visit.seconds for visit in self.outcome.visits)])

    def room(self, pairs: int) -> bool:
        """Whether a whole visit fits beside so many pairs of the confirmation."""
        return self.outcome.seconds + self.whole_s + pairs * self.pair_s <= self.budget_s


def race(
    settings: Mapping[str, Mapping[str, Any]], units: Mapping[str, float], budget_s: float, visit: Callable[[Ask], Visit]
) -> Outcome:
    """Find the best candidate, and what it gains over the first one, the default.

    Args:
        settings: of each candidate, by its name. units: by candidate, what its rate is divided by.
        budget_s: seconds for all visits. A leader is confirmed by a pair even where it does not fit.
        visit: makes one. What it returns alone decides what is concluded.
    """
    running = _Race(settings, units, budget_s, visit)
    outcome, default = running.outcome, running.default
    first = running.start(default, "first look", 1)
    if first.middle is None and first.why not in MISSES:  # nothing to hold the others against
        outcome.untried = list(settings)[1:]
        return outcome
    for kept in (_KEPT, 0):
        _first_looks(running, kept)
        _rounds(running, kept)
        if running.leader != default:
            break
    if not running.tried:  # nobody meets the SLOs each time
        return outcome
    running.in_it()
    outcome.leader = leader = running.leader
    if leader != default:
        outcome.confirmed = _confirmed(running, leader)
    return outcome


def _first_looks(running: _Race, kept: int) -> None:
    """Each candidate once, the most promising first, until none is worth its start. Args: kept: pairs to leave room for."""
    outcome = running.outcome

    def left() -> dict[str, float]:
        started, leader = {visit.deployment for visit in outcome.visits}, running.leader
        return {name: running.ahead(name, leader)[1] for name in running.settings if name not in started}

    while (new := left()) and running.room(kept):
        best = max(new, key=lambda name: new[name])
        if new[best] < _LITTLE:
            break
        running.start(best, "first look", 1, against=running.leader if running.tried else None)
    outcome.untried = [name for name, gain in new.items() if gain >= _LITTLE]


def _rounds(running: _Race, kept: int) -> None:
    """Those that may be the best by turns, until one is or the rest is not worth a start. Args: kept: pairs to leave room for."""
    before = max((visit.round for visit in running.outcome.visits if visit.phase == "race"), default=0)
    for number in count(before + 1):
        leader = running.leader
        worth = [each for each in running.in_it() if each != leader and running.ahead(each, leader)[1] >= _LITTLE]
        order = [leader, *worth] if number % 2 else [*reversed(worth), leader]
        if not worth:
            return
        for candidate in order:
            if not running.room(kept):
                return
            running.start(candidate, "race", number, against=None if candidate == leader else leader)


def _confirmed(running: _Race, leader: str) -> Confirmed | None:
    """Leader and default by turns (default, leader, leader, default, …), and what that says of the gain; the leader alone where the
    default meets the SLOs at no rate.
    """
    default, misses = running.default, running.misses
    pairs = max(1, min(_PAIRS, math.floor((running.budget_s - running.outcome.seconds) / running.pair_s)))
    rates: list[tuple[float, float]] = []  # each with its variance
    gains: list[tuple[float, float]] = []
    for number in range(1, pairs + 1):
        order = (leader,) if misses else (default, leader) if number % 2 else (leader, default)
        shown = {candidate: running.start(candidate, "confirmation", number) for candidate in order}
        one, other = shown[leader], shown.get(default)
        if running.failed(leader) or (running.failed(default) and not misses):
            return None  # one that does not always carry a rate has no gain
        if one.middle is None or one.error is None:
            continue
        rates.append((one.middle, one.error**2 + START**2))
        if other is None or other.middle is None or other.error is None:
            continue
        units = running.units[leader] / running.units[default]
        gains.append((one.middle - other.middle - math.log(units), one.error**2 + other.error**2 + 2 * START**2))
    counted = len(rates if misses else gains)
    if counted < min(pairs, _KEPT):
        return None
    rate, rate_low, rate_high = _interval(rates)
    gain, low, high = _interval(gains) if gains else (None, None, None)
    return Confirmed(pairs=counted, gain=gain, low=low, high=high, rate=rate, rate_low=rate_low, rate_high=rate_high)


def _interval(seen: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Geometric mean, and its interval at 95 %. Args: seen: logarithms, each with the variance that is expected of it."""
    # The sample's variance beside the one that starts and searches lead to expect, as few starts know little of their own.
    # Source: Smyth, Linear models and empirical Bayes methods for assessing differential expression (2004): moderated t.
    number, mean = len(seen), fmean(log for log, _ in seen)
    spread = FREEDOM * fmean(variance for _, variance in seen) + sum((log - mean) ** 2 for log, _ in seen)
    half = student_t(FREEDOM + number - 1) * math.sqrt(spread / (FREEDOM + number - 1) / number)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

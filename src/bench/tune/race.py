"""Which candidate's server to start next, and when the best is known.

Three phases share the minutes. First looks start candidates in the order of what is expected of them, and end a search as soon as the
candidate has lost. The race starts those that may still be the best by turns with the leader. The confirmation starts leader
and default by turns; the gain is by these starts alone, so that a candidate which had luck in the race gains nothing by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from bench.records.tuning import Confirmed, Phase, Visit
from bench.statistics import student_t
from bench.tune.standing import START, Seen, Space, Standing

__all__ = ["Ask", "Outcome", "Rival", "race"]

_LOST = 0.05  # probability of being better than the leader below which a candidate is out; convention
_LITTLE = 0.01  # expected improvement (as a logarithm) that is not worth a start; convention
_PAIRS = 4  # pairs of starts that confirm the leader; convention
_FEWEST_PAIRS = 2  # fewest pairs with an interval; derived
_LOOK = 0.5  # time of a first look ÷ that of a whole visit, as far as is known beforehand; convention
_NEARER = 0.6  # time of a search that begins near the limit ÷ that of the first one, likewise; convention
_ROUNDS = 4  # most rounds of the race; convention
_FREEDOM = 4  # degrees of freedom that the expected noise of a pair counts as; convention


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
    unpromising: list[str] = field(default_factory=list)
    settled: bool = False
    leader: str | None = None
    confirmed: Confirmed | None = None
    standing: Standing | None = None

    @property
    def seconds(self) -> float:
        """That the visits took."""
        return sum(visit.seconds for visit in self.visits)


@dataclass
class _Race:
    names: Sequence[str]
    space: Space
    units: Mapping[str, float]
    budget_s: float
    visit: Callable[[Ask], Visit]
    outcome: Outcome = field(default_factory=Outcome)
    failed: set[int] = field(default_factory=set)

    def start(self, candidate: int, phase: Phase, number: int, *, against: int | None = None) -> Visit:
        """Visit a candidate. Args: against: the leader, at whose rate the search begins, and below which it ends."""
        standing, name = self.standing(), self.names[candidate]
        rival, start = None, None
        if standing is not None:
            last = self.outcome.visits[-1]
            now_min = (last.began + last.seconds - self.outcome.visits[0].began) / 60
            mean, error = standing.expected(candidate if against is None else against, now_min)
            rate = math.exp(mean + math.log(self.units[name]))
            start = float(f"{rate:.3g}")
            rival = None if against is None else Rival(rate, math.hypot(error, START))
        shown = self.visit(Ask(name, phase, number, start, rival))
        self.outcome.visits.append(shown)
        if shown.middle is None:
            self.failed.add(candidate)
        return shown

    def seen(self) -> list[Seen]:
        """What the visits showed, but for those that showed nothing."""
        found, first = [], self.outcome.visits[:1]
        for visit in self.outcome.visits:
            if visit.middle is not None and visit.error is not None:
                middle = visit.middle - math.log(self.units[visit.deployment])
                at_min = (visit.began + visit.seconds / 2 - first[0].began) / 60
                found.append(Seen(self.names.index(visit.deployment), middle, visit.error, at_min))
        return found

    def standing(self) -> Standing | None:
        """The posterior by all visits; None before the first that shows anything."""
        seen = self.seen()
        return Standing(self.space, seen) if seen else None

    def leader(self) -> int:
        """The best of those that were visited and showed a rate each time; the default where none did."""
        standing = self.standing()
        assert standing is not None
        tried = {each.candidate for each in self.seen()} - self.failed
        return max(tried or {0}, key=lambda candidate: standing.means[candidate])

    def in_it(self) -> list[int]:
        """Those that may be the best: neither failed nor worse than the leader (95 %), the most promising first."""
        standing, leader = self.standing(), self.leader()
        assert standing is not None
        tried = {each.candidate for each in self.seen()} - self.failed
        for candidate in sorted(tried - {leader}):
            if standing.better(candidate, leader) < _LOST:
                self.outcome.dropped.setdefault(self.names[candidate], len(self.outcome.visits))
            else:
                self.outcome.dropped.pop(self.names[candidate], None)
        self.outcome.dropped.pop(self.names[leader], None)
        left = [each for each in tried if self.names[each] not in self.outcome.dropped]
        self.outcome.settled = len(left) == 1 and not self.outcome.untried
        return sorted(left, key=lambda each: -standing.means[each])

    def pairs(self) -> int:
        """How many pairs of starts the confirmation gets, in what is left of the minutes."""
        left_s = self.budget_s - self.outcome.seconds
        return max(_FEWEST_PAIRS, min(_PAIRS, math.floor(left_s / (2 * self.whole_s()))))

    def whole(self) -> list[Visit]:
        """The visits that were not ended early."""
        return [visit for visit in self.outcome.visits if visit.why not in ("lost", "died")]

    def whole_s(self) -> float:
        """Seconds of one of these, without the first, which has to find the first rate, where there are others."""
        first, *others = self.whole()
        return fmean(visit.seconds for visit in others) if others else _NEARER * first.seconds

    def room(self, visits: float, pairs: int) -> bool:
        """Whether so many whole visits fit beside so many pairs of the confirmation."""
        return self.outcome.seconds + (visits + 2 * pairs) * self.whole_s() <= self.budget_s


def race(
    names: Sequence[str], space: Space, units: Mapping[str, float], budget_s: float, visit: Callable[[Ask], Visit]
) -> Outcome:
    """Find the best candidate, and what it gains over the first one, the default.

    Args:
        names: of the candidates. space: their settings, in the same order. units: by candidate, what its rate is divided by.
        budget_s: seconds for all visits. The confirmation is made even where it does not fit, in its shortest form.
        visit: makes one. What it returns alone decides how the race goes on.
    """
    running = _Race(names, space, units, budget_s, visit)
    outcome = running.outcome
    default = running.start(0, "first look", 1)
    if default.middle is None or default.error is None:  # nothing to hold the others against
        outcome.untried = list(names[1:])
        return outcome
    _first_looks(running)
    _rounds(running)
    running.in_it()
    leader = running.leader()
    outcome.leader, outcome.standing = names[leader], running.standing()
    if leader and _showable(running, leader):
        outcome.confirmed = _confirmed(running, leader)
        outcome.standing = running.standing()
    return outcome


def _first_looks(running: _Race) -> None:
    """Each candidate once, the most promising first, until none is expected to be worth its start."""
    left = list(range(1, len(running.names)))
    while left and running.room(_LOOK, _FEWEST_PAIRS):
        standing, leader = running.standing(), running.leader()
        assert standing is not None
        best = max(left, key=lambda candidate: standing.improvement(candidate, leader))
        if standing.improvement(best, leader) < _LITTLE:
            break
        left.remove(best)
        running.start(best, "first look", 1, against=leader)
    outcome, names = running.outcome, [running.names[each] for each in left]
    outcome.unpromising, outcome.untried = (names, []) if running.room(_LOOK, _FEWEST_PAIRS) else ([], names)


def _rounds(running: _Race) -> None:
    """Those that may be the best by turns, until one is or the rest is not worth a start."""
    for number in range(1, _ROUNDS + 1):
        standing, leader = running.standing(), running.leader()
        assert standing is not None
        left = running.in_it()
        worth = [each for each in left if each != leader and standing.improvement(each, leader) >= _LITTLE]
        order = [leader, *worth] if number % 2 else [*reversed(worth), leader]
        if not worth:
            return
        for candidate in order:
            if not running.room(1, _FEWEST_PAIRS):
                return
            running.start(candidate, "race", number, against=None if candidate == leader else leader)


def _showable(running: _Race, leader: int) -> bool:
    """Whether the gain may be so large that the confirmation can show it: more than half of what its interval leaves open."""
    standing, pairs = running.standing(), running.pairs()
    assert standing is not None
    error = median(visit.error for visit in running.whole() if visit.error is not None)
    half = student_t(_FREEDOM + pairs - 1) * math.sqrt(2 * (error**2 + START**2) / pairs)
    return standing.difference(leader, 0)[0] > half / 2


def _confirmed(running: _Race, leader: int) -> Confirmed | None:
    """Leader and default by turns (default, leader, leader, default, …), and what that says of the gain."""
    differences, errors = [], []
    for number in range(1, running.pairs() + 1):
        order = (0, leader) if number % 2 else (leader, 0)
        shown = {candidate: running.start(candidate, "confirmation", number) for candidate in order}
        one, other = shown[leader], shown[0]
        if one.middle is None or other.middle is None or one.error is None or other.error is None:
            return None  # one that does not always carry a rate has no gain
        units = running.units[running.names[leader]] / running.units[running.names[0]]
        differences.append(one.middle - other.middle - math.log(units))
        errors.append(one.error**2 + other.error**2 + 2 * START**2)
    count, mean = len(differences), fmean(differences)
    # The sample's variance beside the one that starts and searches lead to expect, as few pairs know little of their own.
    # Source: Smyth, Linear models and empirical Bayes methods for assessing differential expression (2004): moderated t.
    variance = (_FREEDOM * fmean(errors) + sum((each - mean) ** 2 for each in differences)) / (_FREEDOM + count - 1)
    half = student_t(_FREEDOM + count - 1) * math.sqrt(variance / count)
    return Confirmed(pairs=count, gain=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))

"""Which candidate's server to start next, and when the best is known.

Three phases share the minutes. First looks start candidates in the order of what is expected of them, and end a search as soon as the
candidate has lost. The race starts those that may still be the best by turns with the leader. The confirmation starts leader
and default by turns; the gain is by these starts alone, so that a candidate which had luck in the race gains nothing by it. What is
kept for it goes to the others by and by where it is not worth making.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from bench.runs.searches import MISSES, Confirmed, Phase, Visit
from bench.search.standing import START, Seen, Space, Standing
from bench.statistics.textbook import student_t

_LOST = 0.05  # probability of being better than the leader below which a candidate is out; convention
_LITTLE = 0.01  # expected improvement (as a logarithm) that is not worth a start; convention
_PAIRS = 4  # pairs of starts that confirm the leader; convention
_KEPT = 2  # pairs for which the race leaves room, until none is worth making; tuned: benchmarks.tuning
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
    lacking_s: float = 0.0
    standing: Standing | None = None

    @property
    def seconds(self) -> float:
        """The time that visits took (s)."""
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
        # A search that ended on invalid runs says nothing of its server. One of a first look is not made again.
        if shown.middle is None and (shown.why in (*MISSES, "died") or phase == "first look"):
            self.failed.add(candidate)
        return shown

    def seen(self) -> list[Seen]:
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

    def new(self) -> list[int]:
        """The candidates that were never started."""
        started = {visit.deployment for visit in self.outcome.visits}
        return [candidate for candidate, name in enumerate(self.names) if name not in started]

    def leader(self) -> int:
        """The best of those that were visited and showed a rate each time; the default where none did."""
        standing = self.standing()
        tried = {each.candidate for each in self.seen()} - self.failed
        return max(tried, key=lambda candidate: standing.means[candidate]) if standing and tried else 0

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

    @property
    def misses(self) -> bool:
        """Whether the default meets the SLOs at no rate."""
        return self.outcome.visits[0].middle is None

    def pairs(self, kept: int) -> int:
        """How many pairs of starts the confirmation gets, in what is left of the minutes. Args: kept: pairs that it gets anyway."""
        left_s = self.budget_s - self.outcome.seconds
        return max(kept, min(_PAIRS, math.floor(left_s / self.pair_s())))

    def pair_s(self) -> float:
        """Seconds of a pair; of a start of the leader alone, where there is no rate of the default to compare it with."""
        return self.whole_s() * (1 if self.misses else 2)

    def whole(self) -> list[Visit]:
        """The visits that show a rate and were not ended early."""
        return [visit for visit in self.outcome.visits if visit.middle is not None and visit.why != "lost"]

    def whole_s(self) -> float:
        """Seconds of one of these, without the first, which has to find the first rate, where there are others."""
        first, *others = self.whole() or [max(self.outcome.visits, key=lambda visit: visit.seconds)]
        return fmean(visit.seconds for visit in others) if others else _NEARER * first.seconds

    def room(self, visits: float, pairs: int) -> bool:
        """Whether so many whole visits fit beside so many pairs of the confirmation."""
        return self.outcome.seconds + visits * self.whole_s() + pairs * self.pair_s() <= self.budget_s


def race(
    names: Sequence[str], space: Space, units: Mapping[str, float], budget_s: float, visit: Callable[[Ask], Visit]
) -> Outcome:
    """Find the best candidate, and what it gains over the first one, the default.

    Args:
        names: of the candidates. space: their settings, in the same order. units: by candidate, what its rate is divided by.
        budget_s: seconds for all visits. The confirmation of a leader that the race finds beside the minutes kept for it is made even
            where it does not fit, in its shortest form.
        visit: makes one. What it returns alone decides what is concluded.
    """
    running = _Race(names, space, units, budget_s, visit)
    outcome = running.outcome
    default = running.start(0, "first look", 1)
    if default.middle is None and default.why not in MISSES:  # nothing to hold the others against
        outcome.untried = list(names[1:])
        return outcome
    for kept in range(_KEPT, -1, -1):
        _first_looks(running, kept)
        _rounds(running, kept)
        leader, pairs = running.leader(), running.pairs(kept)
        if leader and pairs and _showable(running, leader, pairs):
            break
    outcome.standing = running.standing()
    if outcome.standing is None or (running.misses and not leader):  # nobody meets the SLOs each time
        return outcome
    running.in_it()
    outcome.leader = names[leader]
    if leader and _showable(running, leader, max(1, pairs)):
        outcome.confirmed = _confirmed(running, leader, pairs) if pairs else None
        outcome.lacking_s = 0.0 if pairs else outcome.seconds + running.pair_s() - budget_s
        outcome.standing = running.standing()
    return outcome


def _first_looks(running: _Race, kept: int) -> None:
    """Each candidate once, the most promising first, until none is worth its start. Args: kept: pairs to leave room for."""
    outcome, left = running.outcome, running.new()
    while left and running.room(_LOOK, kept):
        standing, leader = running.standing(), running.leader()
        best = max(left, key=lambda each: standing.improvement(each, leader)) if standing else left[0]
        if standing and standing.improvement(best, leader) < _LITTLE:
            break
        running.start(best, "first look", 1, against=leader if standing else None)
        left = running.new()
    names = [running.names[each] for each in left]
    outcome.unpromising, outcome.untried = (names, []) if running.room(_LOOK, kept) else ([], names)


def _rounds(running: _Race, kept: int) -> None:
    """Those that may be the best by turns, until one is or the rest is not worth a start. Args: kept: pairs to leave room for."""
    before = max((visit.round for visit in running.outcome.visits if visit.phase == "race"), default=0)
    for number in range(before + 1, _ROUNDS + 1):
        standing, leader = running.standing(), running.leader()
        if standing is None:
            return
        left = running.in_it()
        worth = [each for each in left if each != leader and standing.improvement(each, leader) >= _LITTLE]
        order = [leader, *worth] if number % 2 else [*reversed(worth), leader]
        if not worth:
            return
        for candidate in order:
            if not running.room(1, kept):
                return
            running.start(candidate, "race", number, against=None if candidate == leader else leader)


def _showable(running: _Race, leader: int, pairs: int) -> bool:
    """Whether the gain may be so large that the confirmation can show it: more than half of what its interval leaves open."""
    if running.misses:
        return True
    standing = running.standing()
    assert standing is not None
    error = median(visit.error for visit in running.whole() if visit.error is not None)
    half = student_t(_FREEDOM + pairs - 1) * math.sqrt(2 * (error**2 + START**2) / pairs)
    return standing.difference(leader, 0)[0] > half / 2


def _confirmed(running: _Race, leader: int, pairs: int) -> Confirmed | None:
    """Leader and default by turns (default, leader, leader, default, …), and what that says of the gain; the leader alone where the
    default meets the SLOs at no rate.
    """
    rates: list[tuple[float, float]] = []  # each with its variance
    gains: list[tuple[float, float]] = []
    for number in range(1, pairs + 1):
        order = (leader,) if running.misses else (0, leader) if number % 2 else (leader, 0)
        shown = {candidate: running.start(candidate, "confirmation", number) for candidate in order}
        one, other = shown[leader], shown.get(0)
        if leader in running.failed or (0 in running.failed and not running.misses):
            return None  # one that does not always carry a rate has no gain
        if one.middle is None or one.error is None:
            continue
        rates.append((one.middle, one.error**2 + START**2))
        if other is None or other.middle is None or other.error is None:
            continue
        units = running.units[running.names[leader]] / running.units[running.names[0]]
        gains.append((one.middle - other.middle - math.log(units), one.error**2 + other.error**2 + 2 * START**2))
    counted = len(rates if running.misses else gains)
    if counted < min(pairs, _KEPT):
        return None
    rate, rate_low, rate_high = _interval(rates)
    gain, low, high = _interval(gains) if gains else (None, None, None)
    return Confirmed(pairs=counted, gain=gain, low=low, high=high, rate=rate, rate_low=rate_low, rate_high=rate_high)


def _interval(seen: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Geometric mean, and its interval at 95 %. Args: seen: logarithms, each with the variance that is expected of it."""
    # The sample's variance beside the one that starts and searches lead to expect, as few starts know little of their own.
    # Source: Smyth, Linear models and empirical Bayes methods for assessing differential expression (2004): moderated t.
    count, mean = len(seen), fmean(log for log, _ in seen)
    spread = _FREEDOM * fmean(variance for _, variance in seen) + sum((log - mean) ** 2 for log, _ in seen)
    half = student_t(_FREEDOM + count - 1) * math.sqrt(spread / (_FREEDOM + count - 1) / count)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

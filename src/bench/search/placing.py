"""Which load to measure next, how many requests of it, and when the limit is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from bench.statistics.limit import BEYOND, NOMINAL, Belief, beliefs, lowest
from bench.statistics.observation import FAILED, NEARBY, Observation
from bench.statistics.textbook import FREEDOM
from bench.study.slo import Slo
from bench.workloads.workload import Workload

Why = Literal["found", "above", "below", "runs", "seconds", "invalid", "short", "gone", "alone", "decided", "lost"]
Ends = Callable[[Sequence[Observation], Belief], Why | None]

# smallest factor from the highest measured load to the next; derived: the nearest that is no neighbour
_LEAST_CLIMB = math.exp(NEARBY)
_LOWEST = 1 / 64  # lowest rate ÷ first rate; convention
ROUND = 3  # runs of a round, whose reference loads together show the machine's speed; tuned: benchmarks.search
FEWEST_RUNS = ROUND + 1  # fewest runs of an interval that is not the prior's; derived: of two rounds, whose speeds differ
_WITHIN = 0.85  # distance of a tested end from the middle, as a share of the precision asked for; tuned: benchmarks.search
_FEWEST_REQUESTS = 50  # fewest requests of a first run; tuned: benchmarks.search
# fewest requests of a run that is cut to what is left of the budget; convention: of 20 that all meet a P90, all but 12 % of servers do
_FEWEST_CUT = 20
_BEYOND = 2.0  # expected requests of a first run beyond the percentile, or failures; tuned: benchmarks.search
_MORE_NEAR = 4  # requests of a run near the limit ÷ those of a first one; tuned: benchmarks.search
# shortest run (s), of a rate near the limit four times that: a fast server's queue takes so long to show; tuned: benchmarks.find_scale
_LEAST_S = 5.0
_LATENCIES = 6  # length of a run in median latencies, of conversations too; tuned: benchmarks.search
# assumed E2E (s) until one is known; derived: a first run then lasts as long as the shortest
FIRST_LATENCY_S = _LEAST_S / _LATENCIES
# standard error of an excess, as a share of the precision, below which more requests add nothing; tuned: benchmarks.search
_SURE_ENOUGH = 0.3


@dataclass(frozen=True)
class Prior:
    """What a closed loop shows of the highest rate before any run of it.

    Attributes:
        middle: a rate (unit of a load) below which it lies as likely as above.
        most: throughput that no rate within the SLOs exceeds (unit of a load).
        error: standard error of the logarithm of both.
    """

    middle: float
    error: float
    most: float

    def belief(self, belief: Belief, bottom: float, top: float) -> Belief:
        """The posterior of this and of what runs show. Args: bottom, top: lowest and highest load of these runs."""
        from scipy.special import stdtr  # noqa: PLC0415 - 0.4 s, which closed loops need not pay

        limits = belief.limits.copy()  # those beyond all runs lie anywhere within the next factor
        below, above = (np.flatnonzero(each) for each in (limits <= 0, np.isinf(limits)))
        limits[below] = bottom * np.geomspace(1 / BEYOND, 1, len(below) + 1)[:-1]
        limits[above] = top * np.geomspace(1, BEYOND, len(above) + 1)[1:]
        off = np.log(limits / self.middle) / self.error
        # Student's t, of both: its tails leave the last word to the runs.
        weights = (1 + off**2 / FREEDOM) ** (-(FREEDOM + 1) / 2) * stdtr(FREEDOM, np.log(self.most / limits) / self.error)
        shares = (np.cumsum(weights) - weights / 2) / weights.sum()
        ranks = (np.arange(len(limits)) + 0.5) / len(limits)
        return Belief(np.exp(np.interp(ranks, shares, np.log(limits))))


@dataclass(frozen=True)
class Aim:
    """What is looked for, and within which bounds.

    Attributes:
        slos, failed_share: what has to be met; the share of requests that may fail (0–1).
        held: whether a closed loop holds the load, whose levels are whole numbers; else it is a rate of requests/s.
        precision: half the width of the interval that is asked for, as a share of its middle.
        start, highest: the first load, and the highest. Without a start, a probe finds one.
        burstiness: shape of the gaps of an open loop; below 1 they come in bursts, which takes more requests; infinite: equal gaps.
        shares: of all requests, those of each class that has a limit of its own (0–1).
        turns, think_s: requests of a conversation, and the pause between them (s); a load then counts conversations.
        prior: what is known before any run; None: nothing.
        ends: why what runs show is enough, before it is as precise as asked; None where it is not.
    """

    slos: Sequence[Slo]
    failed_share: float
    held: bool
    precision: float
    start: float | None
    highest: float
    burstiness: float = 1.0
    turns: int = 1
    think_s: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    prior: Prior | None = None
    ends: Ends = lambda *_: None

    def belief(self, observations: Sequence[Observation]) -> Belief:
        """Where the limit may lie, by runs and by what is known before any."""
        with threadpool_limits(
            limits=1, user_api="blas"
        ):  # matrices are small: on two busy cores more threads took ten times as long
            found = beliefs(observations)
        if self.prior is None:
            return lowest(found.values())
        levels = [each.level for each in observations]
        failed = [found.pop(FAILED)] if FAILED in found else []  # of which the prior knows nothing
        return lowest([self.prior.belief(lowest(found.values()), min(levels), max(levels)), *failed])

    @property
    def first(self) -> float:
        """The first load."""
        assert self.start is not None
        return self.start

    @property
    def least(self) -> float:
        """The lowest load that is tried."""
        return 1.0 if self.held else self.first * _LOWEST

    def requests(
        self, load: float, latency_s: float, observations: Sequence[Observation], *, near: bool, cut: bool = False
    ) -> int:
        """Requests, or conversations, of the next run: what the percentile takes, and a run that is long against its latencies.

        Args:
            latency_s: E2E of a request, of a load that is carried. near: the limit, where four times as many are sent.
            cut: as few as still say something, where no more can be answered in what is left of the budget.
        """
        allowed = min((1 - slo.share) * self.shares.get(slo.request_class or "", 1.0) for slo in self.slos)
        count = max(_FEWEST_CUT if cut else _FEWEST_REQUESTS, round(_BEYOND / allowed, 6)) / min(1.0, self.burstiness)
        times = _MORE_NEAR if near else 1
        if near:
            count *= times
            count *= _more(load, count, observations, _SURE_ENOUGH * self.precision)
            if self.failed_share and any(each.failed for each in observations):
                count = max(count, _MORE_NEAR * _BEYOND / self.failed_share)
        at_once = load if self.held else load * (self.turns * latency_s + (self.turns - 1) * self.think_s)
        rate = load / latency_s if self.held else load
        # On a closed loop's way up the latency is that of a load far below, at which requests would come too fast.
        least_s = 0.0 if self.held and not near else _LEAST_S if self.held else _LEAST_S * times
        return math.ceil(max(count / self.turns, _LATENCIES * max(1, times / self.turns) * at_once, least_s * rate))


@dataclass(frozen=True)
class Step:
    """A run to measure. near: whether it decides the limit, or looks for its surroundings."""

    load: float
    near: bool


@dataclass(frozen=True)
class Answer:
    """What is known of the limit.

    Attributes:
        limit: the highest load that is carried; 0 where none is. low, high: it lies between them at 95 % confidence; high is infinite
            where no load that was tried is too much.
        why: `found`, as narrow as was asked for; `above`, the highest load is carried; `below`, the lowest is not; `runs` or `seconds`,
            that budget is spent; `invalid`, runs cannot be trusted one after the other; `short`, none was long enough to be judged;
            `gone`, the server no longer answers; `alone`, single requests miss an SLO, so that no load meets all; `decided`, it is
            at least what was asked, or less (95 %); `lost`, it is below a rival's (95 %).
    """

    limit: float
    low: float
    high: float
    why: Why

    @property
    def known(self) -> bool:
        """Whether it says anything: a load that is carried, perhaps or surely, or one that is too much."""
        return bool(self.limit or self.low) or math.isfinite(self.high)


def gap_shape(workload: Workload) -> float:
    """Burstiness of an open loop's gaps as `Aim` has it; infinite for equal ones."""
    return workload.burstiness or (math.inf if workload.arrival == "constant" else 1.0)


def decided(at_least: float | None) -> Ends:
    """Once it is known whether the limit is that or more, or less (95 %); never, where nothing is asked."""

    def ends(observations: Sequence[Observation], belief: Belief) -> Why | None:
        if at_least is None or len(observations) < FEWEST_RUNS:
            return None
        low, high = belief.interval
        return None if low < at_least <= high else "decided"

    return ends


def place(observations: Sequence[Observation], aim: Aim) -> Answer | Step:
    """The next run, or the answer. It depends on the observations alone: the same ones lead to the same next run."""
    if not observations:
        return Step(aim.first, near=aim.prior is not None)
    levels = [each.level for each in observations]
    top, bottom = max(levels), min(levels)
    belief, near = aim.belief(observations), aim.prior is not None
    if why := aim.ends(observations, belief):
        return interval(belief, aim, why, top)
    if belief.lies_below(top) < 1 / 2:  # it lies higher than what was measured
        if top >= aim.highest:
            return _beyond(belief, aim.highest) or Step(aim.highest, near=True)
        return _step(max(_LEAST_CLIMB * top, min(BEYOND * top, belief.middle)), aim, near=near, up=True)
    if belief.lies_below(bottom) > 1 / 2:
        if bottom <= aim.least:
            return _beyond(belief, aim.least) or Step(aim.least, near=True)
        return _step(min(bottom / _LEAST_CLIMB, max(bottom / BEYOND, belief.middle)), aim, near=near)
    answer = interval(belief, aim, "found", top)
    known = math.isfinite(answer.high)
    narrow = known and (answer.low == answer.high or answer.high - answer.low <= aim.precision * (answer.high + answer.low))
    if narrow and len(observations) >= FEWEST_RUNS:
        return answer
    return _step(_between(belief, min(top, max(bottom, belief.middle)), aim), aim, near=True)


def _step(load: float, aim: Aim, *, near: bool, up: bool = False) -> Step:
    return Step(min(aim.highest, max(aim.least, level_of(load, aim, up=up))), near)


def _between(belief: Belief, middle: float, aim: Aim) -> float:
    """The posterior median while the posterior is wide; otherwise the end of the target interval with more mass outside.

    Where the curve is known to lie below 0 at the one end and above it at the other, the limit lies between them whatever the curve
    does there; runs in the middle would learn least where noise is largest.
    """
    if aim.held and middle * aim.precision < 1:
        low, high = float(math.floor(middle)), math.floor(middle) + 1.0  # it is carried, and the next number is not
    else:
        low, high = middle * (1 - _WITHIN * aim.precision), middle * (1 + _WITHIN * aim.precision)
        if belief.lies_below(high) - belief.lies_below(low) < 1 / 2:  # more of it lies outside
            return middle
        if aim.held:
            low, high = math.floor(low), math.ceil(high)
    return high if 1 - belief.lies_below(high) > belief.lies_below(low) else low


def answer_so_far(observations: Sequence[Observation], aim: Aim, why: Why) -> Answer:
    """What is known when a search ends early: of fewer runs than an answer takes, no ends."""
    if not observations:
        return Answer(0.0, 0.0, math.inf, why)
    found = interval(aim.belief(observations), aim, why, max(each.level for each in observations))
    return found if len(observations) >= FEWEST_RUNS else replace(found, low=0.0, high=math.inf)


def _more(load: float, count: float, observations: Sequence[Observation], sure: float) -> float:
    """How many times `count` requests a run takes where neighbours are alike, as in a queue: as many as count as one, by the runs of
    loads nearby, unless fewer are sure enough (`sure`, an excess's error).
    """
    nearby = [each for each in observations if abs(math.log(each.level / load)) < NEARBY]
    requests = sum(each.requests for each in nearby)
    if not requests:
        return 1.0
    alike = sum(each.alike * each.requests for each in nearby) / requests
    # The variance of one request, as the errors of the runs have it.
    variance = sum(each.error**2 * each.requests**2 for each in nearby) / requests
    return max(1.0, min(alike, variance / count / sure**2))


def interval(belief: Belief, aim: Aim, why: Why, top: float) -> Answer:
    """The interval and its middle. Args: top: the highest level that was measured: no more than that is known to be carried."""
    low, high = belief.interval
    ends = (min(belief.middle, top) if math.isinf(belief.middle) else belief.middle, min(low, top), high)
    if aim.held:  # the limit is the last whole number that is carried
        ends = tuple(math.floor(end) if math.isfinite(end) else end for end in ends)  # type: ignore[assignment]
    return Answer(*ends, why)


def _beyond(belief: Belief, bound: float) -> Answer | None:
    """The answer that the limit lies beyond a bound, once that is sure."""
    below = belief.lies_below(bound)
    if below >= NOMINAL:
        return Answer(0.0, 0.0, bound, "below")
    return Answer(bound, bound, math.inf, "above") if below <= 1 - NOMINAL else None


def level_of(load: float, aim: Aim, *, up: bool = False) -> float:
    """A load as a level: a whole number in flight, or a rate of three digits."""
    if not aim.held:
        return float(f"{load:.3g}")
    return float(math.ceil(load) if up else math.floor(load))

"""Where a search begins: a few seconds of a closed loop, with ever more in flight, show what a server carries.

A closed loop cannot overload a server, so each step takes about as long as its answers, whatever the capacity. It stops where an SLO is
missed, throughput no longer rises, or the time is spent. No step is a run of the search: nothing of it counts in the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Protocol

import numpy as np

from bench.parse.observation import MOST_EXCESS
from bench.runs.files import read_known, write_record
from bench.search.placing import CLIMB, Aim, Prior, level_of
from bench.statistics.levels import FLAT, PROPORTIONAL
from bench.statistics.percentiles import place
from bench.study.slo import Slo

_SECONDS = 45.0  # longest probe (s); tuned: benchmarks.find_scale
_LOOPS = 3  # longer closed loops at the end of a probe for a rate; tuned: benchmarks.search
_LOOP_S = 10.0  # one of them (s); tuned: benchmarks.search
_APART = 0.8  # ratio of requests in flight above which another loop shows no more; convention
_OF_PRECISION_S = 1.2  # that time × the precision asked for (s); tuned: benchmarks.search
_FEWEST = 20  # answers of such a loop, of fewer of which nothing is concluded; convention
_ENOUGH = 500  # requests that show throughput in less time; convention
_STEADY_S = 4.0  # shortest time with all in flight in which answers are counted, not their times (s); convention
_STEADY = 0.4  # over-dispersion of the requests in a server at which they come evenly; tuned: benchmarks.search
_HIGHER = 1.12  # highest rate ÷ that of a birth-death chain, in the median; tuned: benchmarks.search
_MORE = 1.08  # highest rate ÷ throughput of a closed loop that meets every SLO, in the median; tuned: benchmarks.search
_ERROR = 0.14  # standard error of ln highest rate by a probe; tuned: benchmarks.search
_STEP_S = 1.0  # shortest step of a probe (s); tuned: benchmarks.find_scale
_WAVES = 2  # answers of each place in flight; tuned: benchmarks.find_scale
_SLOW_S = 4.0  # E2E (s) above which one answer of each place does; tuned: benchmarks.find_scale
_STEP = round(CLIMB)  # factor between steps near the limit; derived
_LEAP = _STEP**2  # factor between steps far from the limit; derived: two of these
_FAR = 1 / _LEAP  # share of an SLO's limit below which a step is far from it; derived: a leap may reach it
_RISES = 1.15  # throughput ÷ that of half as many in flight, below which it no longer rises; tuned: benchmarks.find_scale
_MOST = 1024  # most requests in flight; convention
_FAILING = 0.1  # share of failures that is no accident, if fewer may fail; convention
_HALVINGS = 30  # halvings of the interval in which the first rate is sought; convention
# probability with which all of so many single requests may miss though no more than are allowed do; convention
_BY_CHANCE = 0.01
_FEWEST_ALONE = 2  # fewest single requests of which that is said: the first may find a server that is not warm; convention
_BELOW = FLAT  # first load ÷ the highest that throughput allows; derived


@dataclass(frozen=True)
class Reply:
    """What became of a request of a step.

    Attributes:
        sent_s, end_s: since any moment. outcome: `cut` where the probe waited no longer. latencies: by name (s); None where not known.
        tokens_s: when its parts came. A closed loop begins with requests of which a part is left, so they are counted, not answers.
        request_class: its class; None where the load has none.
    """

    sent_s: float
    end_s: float
    outcome: str
    latencies: Mapping[str, float | None]
    tokens_s: Sequence[float]
    request_class: str | None = None


class Send(Protocol):
    """Holds so many requests in flight until `count` are answered, none of which it waits for longer than `timeout_s`."""

    def __call__(self, in_flight: int, count: int, timeout_s: float) -> Sequence[Reply]: ...


@dataclass(frozen=True)
class _Step:
    """What so many in flight showed.

    Attributes:
        reached: latency ÷ limit, of the SLO that is closest to it or beyond; None where not known. size: parts of a whole answer.
    """

    in_flight: int
    rate: float
    reached: float | None
    e2e_s: float
    size: float


@dataclass(frozen=True)
class Alone:
    """A finding: requests that have the server for themselves miss an SLO.

    Attributes:
        latency_s: the least of so many `requests`, which all missed it. cut: whether it was not waited for any longer.
    """

    slo: Slo
    latency_s: float
    requests: int
    cut: bool


@dataclass(frozen=True)
class Probed:
    """What a probe found.

    Attributes:
        load: where the search begins. rate: the highest throughput that was seen (requests/s). in_flight: with so many.
        seconds: it took. steps: requests in flight, throughput, and what was reached of the closest limit.
        alone: that no load meets an SLO; None where one may. latency_s: E2E at about that load; 0 where not known.
        prior: of a rate, what the closed loops show of the highest one; None where they do not.
    """

    load: float
    rate: float
    in_flight: int
    seconds: float
    steps: list[tuple[int, float, float | None]] = field(default_factory=list)
    alone: Alone | None = None
    latency_s: float = 0.0
    prior: Prior | None = None


def probe(aim: Aim, send: Send) -> Probed:
    """Find where a search begins: near what it looks for, and rather below."""
    steps: list[_Step] = []
    spent, waves, in_flight = 0.0, 1, 1
    alone: Alone | None = None
    prior: Prior | None = None
    most = min(_MOST, math.floor(aim.highest)) if aim.held else _MOST
    while True:
        count = max(waves * in_flight, math.ceil(_STEP_S * steps[-1].rate)) if steps else 1
        replies = send(in_flight, count, _SECONDS - spent)
        if not replies:  # the server does not accept that many connections
            break
        spent += _length(replies)
        steps.append(_step(aim, in_flight, replies, steps[-1].size if steps else 0.0))
        if in_flight == 1 and (steps[-1].reached or 0.0) > 1:
            alone, seconds = _alone(aim, send, replies)
            spent += seconds
        in_flight = min(most, in_flight * (_LEAP if _far(steps) else _STEP))
        waves = 1 if steps[-1].e2e_s > _SLOW_S else _WAVES
        if _ended(steps, aim) or in_flight == steps[-1].in_flight or spent + waves * steps[-1].e2e_s > _SECONDS:
            break
    if steps and not aim.held and alone is None and steps[-1].rate and aim.turns == 1:
        steps, seconds = _loops(aim, send, steps, spent)
        prior = _prior(aim, steps) if seconds else None
        spent += seconds
    best = max(steps, key=lambda step: step.rate, default=_Step(1, 0.0, None, 0.0, 0.0))
    first = prior.middle if prior else _load(steps, aim, spent)
    load = min(aim.highest, level_of(first, aim))
    latency_s = next((step.e2e_s for step in steps if (step.in_flight if aim.held else step.rate) >= load), best.e2e_s)
    shown = [(step.in_flight, step.rate, step.reached) for step in steps]
    return Probed(load, best.rate, best.in_flight, spent, shown, alone, latency_s, prior)


def _loops(aim: Aim, send: Send, steps: list[_Step], before_s: float) -> tuple[list[_Step], float]:
    """The steps with longer loops in place of short ones, until one misses an SLO and one is near its limit; and their time (s), 0
    where none fits. Args: before_s: time of the short ones (s).
    """
    at, spent, longer = steps[-1].in_flight, 0.0, list[_Step]()
    for _ in range(_LOOPS):
        rate = float(np.interp(at, [step.in_flight for step in steps], [step.rate for step in steps]))
        seconds = min(_LOOP_S, max(_STEADY_S, _ENOUGH / rate), _OF_PRECISION_S / aim.precision)
        count = at + math.ceil(seconds * rate)
        if seconds * rate < _FEWEST or before_s + spent + count / rate > _SECONDS + _LOOPS * _LOOP_S:
            break
        if not (replies := send(at, count, _SECONDS)):
            break
        spent += _length(replies)
        longer.append(_step(aim, at, replies, steps[-1].size))
        most = max(step.rate for step in longer)  # in a second or two throughput may look higher than it is
        others = [replace(step, rate=min(most, step.rate)) for step in steps if step.in_flight != at]
        steps = sorted([*others, longer[-1]], key=lambda step: step.in_flight)
        missed = (steps[-1].reached or 0.0) > 1
        at = max(1, round(_within_slos(steps, aim))) if missed else min(_MOST, _LEAP * at)
        if not _APART < at / longer[-1].in_flight < 1 / _APART and missed:
            continue
        if missed or (len(longer) > 1 and longer[-1].rate < _RISES * longer[-2].rate):
            break
    return steps, spent


def _alone(aim: Aim, send: Send, first: Sequence[Reply]) -> tuple[Alone | None, float]:
    """That no load meets an SLO, as single requests miss it one after the other, more of them than chance explains; and the time that
    this took (s). None as soon as one meets each, or where the further ones take as long as a probe may.
    """
    replies, spent = list(first), 0.0
    while missed := [slo for slo in aim.slos if _missed(slo, replies)]:
        count = {slo: len(_limited(slo, replies)) for slo in missed}
        sure = [slo for slo in missed if count[slo] >= _FEWEST_ALONE and (1 - slo.share) ** count[slo] <= _BY_CHANCE]
        if sure:
            worst, least = max(((slo, _least(slo, replies)) for slo in sure), key=lambda pair: _of_limit(*pair) or 0.0)
            latency_s = worst.limit_s * (_of_limit(worst, least) or 0.0)
            return Alone(worst, latency_s, count[worst], cut=least.latencies[worst.metric] is None), spent
        if spent >= _SECONDS or not (further := send(1, 1, _SECONDS - spent)):
            break
        spent += _length(further)
        replies += further
    return None, spent


def keep(probed: Probed, file: Path) -> None:
    """Keep what a probe found beside the runs that follow: a search that goes on from them is not probed again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_record(probed, file)


def kept(file: Path) -> Probed | None:
    """What `keep` kept; None where there is nothing that can be read."""
    return read_known(Probed, file)


def _missed(slo: Slo, replies: Sequence[Reply]) -> bool:
    """Whether there are replies that it limits, and all miss it."""
    limited = _limited(slo, replies)
    return bool(limited) and all((_of_limit(slo, reply) or 0.0) > 1 for reply in limited)


def _limited(slo: Slo, replies: Sequence[Reply]) -> list[Reply]:
    return [reply for reply in replies if slo.request_class in (None, reply.request_class)]


def _least(slo: Slo, replies: Sequence[Reply]) -> Reply:
    return min(_limited(slo, replies), key=lambda reply: _of_limit(slo, reply) or 0.0)


def _length(replies: Sequence[Reply]) -> float:
    return max(reply.end_s for reply in replies) - min(reply.sent_s for reply in replies)


def _step(aim: Aim, in_flight: int, replies: Sequence[Reply], size: float) -> _Step:
    """A step of the probe: throughput while all requests were in flight, and latencies of those that began after the first.

    Args:
        size: parts of a whole answer, where none of these is one.
    """
    ordered = sorted(replies, key=lambda reply: reply.sent_s)
    later = ordered[in_flight:]
    e2e_s = fmean(reply.end_s - reply.sent_s for reply in later or ordered)
    reached = _reached(aim, later or ordered)
    refused = _failed(later or ordered)
    whole = [reply for reply in later or ordered if reply.outcome == "ok"]
    if whole and (later or not size):
        size = fmean(len(reply.tokens_s) for reply in whole)
    if later:
        rate = _came(ordered, later[0].sent_s, later[-1].sent_s, size)
        if rate is None:  # by Little's law
            rate = (1 - refused) * in_flight / e2e_s
        return _Step(in_flight, rate if whole else 0.0, reached, e2e_s, size)
    length = _length(ordered)
    came = sum(len(reply.tokens_s) for reply in ordered)
    return _Step(in_flight, came / size / length if size and length else 0.0, reached, e2e_s, size)


def _came(replies: Sequence[Reply], begin_s: float, end_s: float, size: float) -> float | None:
    """Answers a second between two moments, by their parts; None of less than `_STEADY_S`. Args: size: parts of an answer."""
    if end_s - begin_s < _STEADY_S or not size:
        return None
    return sum(begin_s < at <= end_s for reply in replies for at in reply.tokens_s) / size / (end_s - begin_s)


def _prior(aim: Aim, steps: Sequence[_Step]) -> Prior | None:
    """What the steps show of the highest rate; None where they show no throughput."""
    answered = [step for step in steps if step.rate]
    if not answered:
        return None
    allowed = min(1 - slo.share for slo in aim.slos)
    most = max(step.rate for step in answered)
    if (steps[-1].reached or 0.0) <= 1:  # more in flight might carry more
        return Prior(_MORE * most, _ERROR, math.inf)
    return Prior(min(most, _HIGHER * _rate(answered, _within_slos(steps, aim), allowed, aim.burstiness)), _ERROR, most)


def _reached(aim: Aim, replies: Sequence[Reply]) -> float | None:
    """A latency ÷ its limit, by the SLO that is closest to it or beyond; infinite where more fail than may."""
    if _failed(replies) > max(aim.failed_share, _FAILING):
        return math.inf
    reached = []
    for slo in aim.slos:
        known = [(reply, value) for reply in _limited(slo, replies) if (value := _of_limit(slo, reply)) is not None]
        if values := [MOST_EXCESS if reply.latencies[slo.metric] is None else value for reply, value in known]:
            reached.append(min(MOST_EXCESS, sorted(values)[place(len(values), slo.share)]))
    return max(reached, default=None)


def _failed(replies: Sequence[Reply]) -> float:
    """Share that failed."""
    return sum(reply.outcome not in ("ok", "cut") for reply in replies) / len(replies)


def _of_limit(slo: Slo, reply: Reply) -> float | None:
    """A request's latency ÷ its limit; of one that was not waited for any longer, what it has at least. None where not known."""
    latency, so_far = reply.latencies[slo.metric], reply.end_s - reply.sent_s
    if latency is not None:
        return latency / slo.limit_s
    return so_far / slo.limit_s if slo.metric != "tpot" and so_far > slo.limit_s else None


def _far(steps: Sequence[_Step]) -> bool:
    """Whether the server is far from its limit: throughput rises in proportion, and no SLO is close."""
    first, last = steps[0], steps[-1]
    proportional = last.rate >= PROPORTIONAL * first.rate * last.in_flight / first.in_flight
    return proportional and (last.reached or 0.0) < _FAR


def _flat(steps: Sequence[_Step]) -> bool:
    return len(steps) > 1 and steps[-1].rate < _RISES * steps[-2].rate


def _ended(steps: Sequence[_Step], aim: Aim) -> bool:
    """Whether an SLO is missed; or, where the load is a rate, throughput no longer rises."""
    if (steps[-1].reached or 0.0) > 1 or not steps[-1].rate:
        return True
    return not aim.held and _flat(steps)


def _load(steps: Sequence[_Step], aim: Aim, spent: float) -> float:
    """The first load by what the steps show. Without an answer: one in flight, or one in the time that was waited for it."""
    answered = [step for step in steps if step.rate]
    if not answered:
        return 1.0 if aim.held else 1 / max(1.0, spent)
    carried = _within_slos(steps, aim)
    if aim.held:
        return max(1.0, carried)
    if not _flat(steps) and (steps[-1].reached or 0.0) <= 1:  # the time was spent before anything was reached
        return _BELOW * answered[-1].rate / aim.turns
    allowed = min(1 - slo.share for slo in aim.slos)
    return min(_BELOW * max(step.rate for step in answered), _rate(answered, carried, allowed, aim.burstiness)) / aim.turns


def _within_slos(steps: Sequence[_Step], aim: Aim) -> float:
    """Requests in flight that meet every SLO: between the last step that does and the first that does not, by logarithms."""
    place = next((i for i, step in enumerate(steps) if (step.reached or 0.0) > 1), len(steps) - 1)
    last = steps[place]
    if last.reached is None:
        return last.in_flight
    if last.reached <= 1:  # once throughput is flat, latencies rise with what is in flight
        return last.in_flight / max(last.reached, 1 / MOST_EXCESS) if _flat(steps) and not aim.held else last.in_flight
    before = steps[place - 1] if place else None
    if before and math.isinf(last.reached):
        return before.in_flight
    if before is None or not before.reached:
        return last.in_flight / last.reached
    part = math.log(1 / before.reached) / math.log(last.reached / before.reached)
    between: float = before.in_flight * (last.in_flight / before.in_flight) ** part
    return between


def _rate(steps: Sequence[_Step], carried: float, allowed: float, burstiness: float) -> float:
    """The rate at which a request finds `carried` others there with the probability `allowed`.

    What is in the server is taken for a birth-death chain, which answers at the closed loop's rates. Answers whose times are less at
    random than that queue less, so that the rate is rather too low.
    """
    most, spread = max(step.rate for step in steps), _STEADY + (1 - _STEADY) / burstiness
    counts = np.arange(1, math.ceil(4 * max(carried, steps[-1].in_flight)) + 100)
    known = np.log([step.in_flight for step in steps])
    rates = np.exp(np.interp(np.log(counts), known, np.log([step.rate for step in steps])))
    rates[counts > steps[-1].in_flight] = most
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        weights = np.concatenate([[0.0], np.cumsum(np.log(rate / rates)) / spread])
        shares = np.exp(weights - weights.max())
        found = shares[math.floor(carried) :].sum() / shares.sum()
        low, high = (rate, high) if found <= allowed else (low, rate)
    return max(low, most / _MOST)

"""Where a search begins: a few seconds of a closed loop, with ever more in flight, show what a server carries.

A closed loop cannot overload a server, so each step takes about as long as its answers, whatever the capacity. It stops where an SLO is
missed, throughput no longer rises, or the time is spent. No step is a run of the search: nothing of it counts in the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from bench.parse.observation import MOST_EXCESS
from bench.search.placing import Aim, Prior, level_of
from bench.statistics.limit import BEYOND
from bench.statistics.percentiles import BOUND_CONFIDENCE, place
from bench.study.slo import Slo

LONGEST_S = 45.0  # longest probe, and run that is always allowed (s); tuned: benchmarks.find_scale
_WITHIN = 0.75  # highest rate ÷ the highest throughput of a closed loop that misses an SLO; tuned: benchmarks.search
_ERROR = 0.16  # standard error of its logarithm; tuned: benchmarks.search, with 4 degrees of freedom 22 %
_STEP_S = 1.0  # shortest step of a probe (s); tuned: benchmarks.find_scale
_WAVES = 2  # answers of each place in flight; tuned: benchmarks.find_scale
_SLOW_S = 4.0  # E2E (s) above which one answer of each place does; tuned: benchmarks.find_scale
_RISES = 1.15  # throughput ÷ that of a fourth as many in flight, below which it no longer rises; tuned: benchmarks.find_scale
_MOST = 1024  # most requests in flight; convention
_FAILING = 0.1  # share of failures that is no accident, if fewer may fail; convention
_FEWEST_ALONE = 2  # fewest single requests of which that is said: the first may find a server that is not warm; convention
_SHOWS = 2.0  # answers/s from which steps show the highest rate; convention: fewer than five answers in one show too little


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
    """What a probe found; it is kept, so that a search which goes on is not probed again.

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
    most = min(_MOST, math.floor(aim.highest)) if aim.held else _MOST
    while True:
        count = max(waves * in_flight, math.ceil(_STEP_S * steps[-1].rate)) if steps else 1
        replies = send(in_flight, count, LONGEST_S - spent)
        if not steps and replies and _length(replies) <= _SLOW_S:
            # A closed loop's first requests have a part of an answer left: the second shows how long a whole one takes.
            spent += _length(replies)
            replies = send(in_flight, _WAVES, LONGEST_S - spent)
        if not replies:  # the server does not accept that many connections
            break
        spent += _length(replies)
        steps.append(_step(aim, in_flight, replies, steps[-1].size if steps else 0.0))
        if in_flight == 1 and (steps[-1].reached or 0.0) > 1:
            alone, seconds = _alone(aim, send, replies)
            spent += seconds
        in_flight = min(most, round(BEYOND) * in_flight)
        waves = 1 if steps[-1].e2e_s > _SLOW_S else _WAVES
        if _ended(steps, aim) or in_flight == steps[-1].in_flight or spent + waves * steps[-1].e2e_s > LONGEST_S:
            break
    best = max(steps, key=lambda step: step.rate, default=_Step(1, 0.0, None, 0.0, 0.0))
    missed = bool(steps) and (steps[-1].reached or 0.0) > 1
    prior = None
    if not best.rate:  # one in flight, or one in the time that was waited for it
        first = 1.0 if aim.held else 1 / max(1.0, spent)
    elif aim.held:
        first = max(1.0, _within_slos(steps))
    else:
        first = (_WITHIN if missed else 1.0) * best.rate / aim.turns
        if aim.turns == 1 and alone is None and steps[-1].rate >= _SHOWS and _ended(steps, aim):
            prior = Prior(first, _ERROR, best.rate if missed else math.inf)
    load = min(aim.highest, level_of(first, aim))
    latency_s = next((step.e2e_s for step in steps if (step.in_flight if aim.held else step.rate) >= load), best.e2e_s)
    shown = [(step.in_flight, step.rate, step.reached) for step in steps]
    return Probed(load, best.rate, best.in_flight, spent, shown, alone, latency_s, prior)


def _alone(aim: Aim, send: Send, first: Sequence[Reply]) -> tuple[Alone | None, float]:
    """That no load meets an SLO, as single requests miss it one after the other, more of them than chance explains; and the time that
    this took (s). None as soon as one meets each, or where the further ones take as long as a probe may.
    """
    replies, spent = list(first), 0.0
    while missed := [slo for slo in aim.slos if _missed(slo, replies)]:
        count = {slo: len(_limited(slo, replies)) for slo in missed}
        sure = [slo for slo in missed if count[slo] >= _FEWEST_ALONE and (1 - slo.share) ** count[slo] <= 1 - BOUND_CONFIDENCE]
        if sure:
            worst, least = max(((slo, _least(slo, replies)) for slo in sure), key=lambda pair: _of_limit(*pair) or 0.0)
            latency_s = worst.limit_s * (_of_limit(worst, least) or 0.0)
            return Alone(worst, latency_s, count[worst], cut=least.latencies[worst.metric] is None), spent
        if spent >= LONGEST_S or not (further := send(1, 1, LONGEST_S - spent)):
            break
        spent += _length(further)
        replies += further
    return None, spent


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
    whole = [reply for reply in later or ordered if reply.outcome == "ok"]
    if whole and (later or not size):
        size = fmean(len(_parts(reply)) for reply in whole)
    begin_s, end_s = ordered[0].sent_s, max(each.end_s for each in ordered)
    if later:
        begin_s, end_s = later[0].sent_s, later[-1].sent_s
    if size and (not later or end_s - begin_s > e2e_s / 2):
        rate = sum(begin_s < at <= end_s for reply in ordered for at in _parts(reply)) / size / (end_s - begin_s)
    else:  # by Little's law
        rate = len(whole) / len(later or ordered) * in_flight / e2e_s if whole else 0.0
    return _Step(in_flight, rate, reached, e2e_s, size)


def _parts(reply: Reply) -> Sequence[float]:
    """When its parts came: an answer that is not streamed is one, and a failure has none."""
    if reply.outcome not in ("ok", "cut"):
        return []
    return reply.tokens_s or ([reply.end_s] if reply.outcome == "ok" else [])


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


def _ended(steps: Sequence[_Step], aim: Aim) -> bool:
    """Whether an SLO is missed; or, where the load is a rate, throughput no longer rises."""
    if (steps[-1].reached or 0.0) > 1 or not steps[-1].rate:
        return True
    return not aim.held and len(steps) > 2 and steps[-1].rate < _RISES * steps[-3].rate


def _within_slos(steps: Sequence[_Step]) -> float:
    """Requests in flight that meet every SLO: between the last two steps, by logarithms, where the last one misses one."""
    last, before = steps[-1], steps[-2] if len(steps) > 1 else None
    if last.reached is None or last.reached <= 1:
        return last.in_flight
    if before and math.isinf(last.reached):
        return before.in_flight
    if before is None or not before.reached:
        return last.in_flight / last.reached
    part = math.log(1 / before.reached) / math.log(last.reached / before.reached)
    between: float = before.in_flight * (last.in_flight / before.in_flight) ** part
    return between

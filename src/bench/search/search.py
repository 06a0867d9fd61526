"""Search: place a run, measure it and judge it, until the limit is known or the budget is spent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import polars as pl

from bench.errors import BenchError
from bench.parse.observation import observed, unjudged
from bench.search.placing import FEWEST_RUNS, FIRST_LATENCY_S, ROUND, Aim, Answer, Step, Why, answer_so_far, place
from bench.search.probe import LONGEST_S, Alone, Probed
from bench.statistics.observation import FEWEST_SPEEDS, Observation, Reference, speeds

_FIT = FEWEST_SPEEDS * ROUND  # runs that fit into any budget; derived: so many show how fast the machine usually is
_OF_SPENT = 0.25  # longest run, as a share of the time that is spent; tuned: benchmarks.find_scale
_LONGER = 2.0  # factor on the requests after a run that was too short; convention
# runs that a search takes to ± 10 %, in the median, of a rate and of what is held; measured: benchmarks.search --loop
_USUAL_RUNS = {False: 8, True: 6}
_NOTHING = Answer(0.0, 0.0, math.inf, "runs")  # what is known before the first run


@dataclass(frozen=True)
class Budget:
    """What a search may spend: runs, and seconds under load."""

    runs: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """A run.

    Attributes:
        row: of the summary, with `judged`. reasons: why it cannot be trusted, if it cannot.
        speed: of the machine, in any unit, by the reference load before the run; None where there was none. reference: which load
            that was; only speeds by the same one are compared. round: which one the run belongs to.
    """

    row: Mapping[str, Any]
    reasons: tuple[str, ...] = ()
    speed: float | None = None
    reference: str | None = None
    round: str | None = None


@dataclass(frozen=True)
class Look:
    """A run and what it showed.

    Attributes:
        observation: of its latencies; None where it could not be judged. row: of the summary.
    """

    load: float
    requests: int
    seconds: float
    observation: Observation | None
    reasons: tuple[str, ...] = ()
    row: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Next:
    """A run that is about to begin. requests: or conversations. seconds: it takes; None where not known."""

    load: float
    requests: int
    seconds: float | None


@dataclass
class Found:
    """The answer, and the runs behind it in order.

    Attributes:
        answer: as it is known so far.
        probed: by the probe, where one was sent. alone: that single requests miss an SLO, by this probe or by that of the search which
            goes on.
    """

    answer: Answer
    looks: list[Look] = field(default_factory=list)
    probed: Probed | None = None
    alone: Alone | None = None

    @property
    def seconds(self) -> float:
        """Time under load (s)."""
        return sum(look.seconds for look in self.looks)

    @property
    def observations(self) -> list[Observation]:
        """What could be judged."""
        return [look.observation for look in self.looks if look.observation is not None]


def search(
    aim: Aim,
    budget: Budget,
    measure: Callable[[float, int, int], Measured],
    known: Sequence[Measured] = (),
    report: Callable[[Found], None] = lambda _: None,
    begin: Callable[[Aim], Probed] = lambda _: Probed(1.0, 0.0, 1, 0.0),
    announce: Callable[[Next], None] = lambda _: None,
    before: Probed | None = None,
) -> Found:
    """Find what `aim` describes.

    Args:
        measure: a run of a load, with so many requests, for the nth time with both; it may return what an earlier search measured.
        known: what was measured before.
        report: gets what is known after each run.
        begin: finds the first load of an aim without one, where nothing is known. Else it is that of the first known run, so that
            the same runs and the same `before` always lead to the same search.
        announce: gets each run before it begins.
        before: what the probe ahead of the known runs found.
    """
    probed = begin(aim) if aim.start is None and not known else None
    shown = probed or before
    if aim.start is None:
        aim = replace(aim, start=probed.load if probed else known[0].row["level"], prior=shown.prior if shown else None)
    else:
        shown = None
    found = Found(_NOTHING, probed=probed, alone=shown.alone if shown else None)
    times: Counter[tuple[float, int]] = Counter()
    runs: list[Measured] = []
    latency_s, longer = (shown and shown.latency_s) or FIRST_LATENCY_S, 1.0
    looked = cache(lambda number, speed: _look(runs[number], aim, speed))
    former = list(known)
    began = len(former)  # runs that were invalid may be valid by now
    while True:
        step: Step | None = None
        if former:
            measured = former.pop(0)
        else:
            seen = found.observations
            placed = Answer(0.0, 0.0, 0.0, "alone") if found.alone else place(seen, aim)
            if isinstance(placed, Answer):
                found.answer = placed
                return found
            if why := _spent(found, budget, began):
                return _ended(found, aim, why)
            step = placed
            least, wanted = (round(longer * aim.requests(step.load, latency_s, seen, near=near)) for near in (False, step.near))
            requests = fitting_requests(wanted, least, step.load, found, budget, aim, latency_s)
            fewest = round(longer * aim.requests(step.load, latency_s, seen, near=False, cut=True))
            if requests < min(least, fewest):
                return _ended(found, aim, "seconds")
            announce(next_run(requests, step.load, found, aim, latency_s))
            measured = measure(step.load, requests, times[step.load, requests] + 1)
        runs.append(measured)
        relative = speeds([Reference(each.speed, each.reference, each.round) for each in runs])
        found.looks = [looked(*each) for each in enumerate(relative)]  # what is usual moves
        look = found.looks[-1]
        planned = measured.row.get("num_requests") or look.requests  # fewer are sent of a run that ends early
        times[look.load, planned // aim.turns] += 1
        if look.observation is not None:
            longer = 1.0
            carried = not (look.observation.slow or look.observation.grows or look.observation.failed)
            if carried or len(found.observations) == 1:
                latency_s = max(latency_s * (len(found.observations) > 1), _latency(measured.row) or latency_s)
        elif not look.reasons:
            longer *= max(_LONGER, (measured.row.get("steady_needs_s") or 0.0) / max(look.seconds, 1e-3))
        if step is not None:
            report(_ended(found, aim, "runs"))


def expected_s(probed: Probed, aim: Aim) -> float | None:
    """How long a search that begins with this probe takes under load, in the median (s); None where no answer came."""
    if not probed.latency_s:
        return None
    short, long = (aim.requests(probed.load, probed.latency_s, [], near=near) for near in (False, True))
    pace = probed.load / (probed.latency_s if aim.held else 1.0)
    run_s = max(short / pace, min(long / pace, LONGEST_S))
    return run_s * max(FEWEST_RUNS, _USUAL_RUNS[aim.held] * (0.1 / aim.precision) ** 2)


def _ended(found: Found, aim: Aim, why: Why) -> Found:
    found.answer = answer_so_far(found.observations, aim, why)
    return found


def next_run(requests: int, load: float, found: Found, aim: Aim, latency_s: float) -> Next:
    """A run, and about how long it takes. Args: latency_s: E2E of a request."""
    pace = _pace(load, found, aim)
    return Next(load, requests, None if pace is None else requests / pace + _last_s(aim, latency_s))


def fitting_requests(
    requests: int, least: int, load: float, found: Found, budget: Budget, aim: Aim, latency_s: float = 0.0
) -> int:
    """As many of the requests (conversations of so many turns) as can be answered in the seconds that are left, and beyond `least` in a
    ninth of all and a fourth of those that are spent, at the pace of the run whose load is nearest.

    Short runs first: most searches need no long one. Where neighbours are alike for long, a run that tells as much as asked would leave
    no time for a second one; and what runs differ by on a real machine no single one shows, however long.

    Args:
        latency_s: E2E of a request.
    """
    expected = _pace(load, found, aim)
    if expected is None:
        return requests
    left_s = budget.seconds - found.seconds
    requests = math.floor(max(0.0, min(requests, (left_s - _last_s(aim, latency_s)) * expected)))
    nearest = _nearest(load, found)
    pace = nearest.requests / nearest.seconds / aim.turns if nearest else expected
    longest_s = min(budget.seconds / _FIT, max(LONGEST_S, _OF_SPENT * found.seconds))
    longest = max(least, longest_s * pace)
    return math.floor(min(requests, longest, left_s * pace))


def _nearest(load: float, found: Found) -> Look | None:
    paced = [look for look in found.looks if look.seconds and look.requests]
    return min(paced, key=lambda look: abs(math.log(look.load / load)), default=None)


def _pace(load: float, found: Found, aim: Aim) -> float | None:
    """Requests (conversations of so many turns) a second at a load, by the nearest run, or by the probe; None where nothing shows it.
    No more than a rate itself, at which they are sent.
    """
    nearest = _nearest(load, found)
    if nearest is not None:
        pace = nearest.requests / nearest.seconds / aim.turns
        return pace if aim.held else min(load, pace * max(1.0, load / nearest.load))
    steps = [(in_flight, rate) for in_flight, rate, _ in (found.probed.steps if found.probed else ()) if rate]
    if aim.held:
        return min(steps, key=lambda step: abs(math.log(step[0] / load)))[1] / aim.turns if steps else None
    return min([load, *([max(rate for _, rate in steps) / aim.turns] if steps else [])])


def _last_s(aim: Aim, latency_s: float) -> float:
    """How long a run of a rate goes on after its last request, or conversation, has been sent (s)."""
    return 0.0 if aim.held else aim.turns * latency_s + (aim.turns - 1) * aim.think_s


def _look(measured: Measured, aim: Aim, speed: float) -> Look:
    """Args: speed: of the machine ÷ its usual one."""
    row, reasons = measured.row, measured.reasons
    observation = None if reasons else observed(row, aim.slos, aim.failed_share, speed)
    if observation is not None:
        for slo in aim.slos:
            if why := unjudged(row["judged"], slo):
                raise BenchError(why)
        observation = replace(observation.at_usual_speed(speed), round=measured.round)
    return Look(row["level"], row["requests"], row["duration_s"] or 0.0, observation, reasons, row)


def _latency(row: Mapping[str, Any]) -> float | None:
    values = pl.Series([each["e2e"] for each in row["judged"] if each["ok"]], dtype=pl.Float64)
    median = values.median()
    return None if median is None else float(median)  # type: ignore[arg-type]


def _spent(found: Found, budget: Budget, began: int) -> Why | None:
    """Which budget is spent; or that runs cannot be trusted. Args: began: how many runs were known before."""
    last = found.looks[began:][-ROUND:]  # a whole round of invalid runs
    if len(last) == ROUND and all(look.reasons for look in last):
        return "invalid"
    if len(found.looks) >= budget.runs:
        return "runs" if found.observations else "short"
    return "seconds" if found.seconds >= budget.seconds else None

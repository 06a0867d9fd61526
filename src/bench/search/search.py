"""Search: place a run, measure it, look at what it shows, until the limit is known or the budget is spent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from bench.search.observation import Observation, observed
from bench.search.placing import Aim, Answer, Step, Why, answer_so_far, place

__all__ = ["Budget", "Found", "Look", "Measured", "search"]

_LONGER = 2.0  # times the requests of a run that was too short
_INVALID_IN_A_ROW = 3
_FIRST_LATENCY_S = 0.5  # until one is known


@dataclass(frozen=True)
class Budget:
    """What a search may spend: runs, and seconds under load."""

    runs: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """A run: its summary row with `judged`, and why it cannot be trusted, if it cannot. speed: of the machine ÷ its usual one."""

    row: Mapping[str, Any]
    reasons: tuple[str, ...] = ()
    speed: float = 1.0


@dataclass(frozen=True)
class Look:
    """A run and what it showed; observation is None where it could not be judged."""

    load: float
    requests: int
    seconds: float
    observation: Observation | None
    reasons: tuple[str, ...] = ()


@dataclass
class Found:
    """The answer, and the runs behind it, in their order."""

    answer: Answer
    looks: list[Look] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Time under load."""
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
    report: Callable[[Look, Answer], None] = lambda *_: None,
) -> Found:
    """Find the limit that `aim` describes.

    Args:
        measure: a run of a load, with so many requests, for the nth time with both; it may return what an earlier search measured.
        known: what was measured before.
        report: gets each run, with the answer so far.
    """
    found = Found(Answer(0.0, 0.0, math.inf, "short"))
    times: Counter[tuple[float, int]] = Counter()
    latency_s, longer = _FIRST_LATENCY_S, 1.0
    former = list(known)
    began = len(former)  # what was invalid then may have been healed
    while True:
        step: Step | None = None
        if former:
            measured = former.pop(0)
        else:
            placed = place(found.observations, aim)
            if isinstance(placed, Answer):
                found.answer = placed
                return found
            if why := _spent(found, budget, began):
                found.answer = answer_so_far(found.observations, aim, why)
                return found
            step = placed
            requests = round(longer * aim.requests(step.load, latency_s, found.observations, near=step.near))
            measured = measure(step.load, requests, times[step.load, requests] + 1)
        look = _look(measured, aim)
        times[look.load, look.requests] += 1
        found.looks.append(look)
        if look.observation is not None:
            longer = 1.0
            carried = not (look.observation.slow or look.observation.grows or look.observation.failed)
            if carried or len(found.observations) == 1:
                latency_s = max(latency_s * (len(found.observations) > 1), _latency(measured.row) or latency_s)
        elif not look.reasons:
            longer *= max(_LONGER, (measured.row.get("steady_needs_s") or 0.0) / max(look.seconds, 1e-3))
        if step is not None:
            report(look, answer_so_far(found.observations, aim, "runs"))


def _look(measured: Measured, aim: Aim) -> Look:
    row, reasons = measured.row, measured.reasons
    observation = None if reasons else observed(row, aim.slos, aim.failed_share, measured.speed)
    if observation is not None:
        observation = observation.at_usual_speed(measured.speed, held=aim.held)
    return Look(row["level"], row["requests"], row["duration_s"] or 0.0, observation, reasons)


def _latency(row: Mapping[str, Any]) -> float | None:
    values = pl.Series([each["e2e"] for each in row["judged"] if each["ok"]], dtype=pl.Float64)
    median = values.median()
    return None if median is None else float(median)  # type: ignore[arg-type]


def _spent(found: Found, budget: Budget, began: int) -> Why | None:
    """Which budget is spent; or that runs cannot be trusted. Args: began: how many runs were known before."""
    last = found.looks[began:][-_INVALID_IN_A_ROW:]
    if len(last) == _INVALID_IN_A_ROW and all(look.reasons for look in last):
        return "invalid"
    if len(found.looks) >= budget.runs:
        return "runs" if found.observations else "short"
    return "seconds" if found.seconds >= budget.seconds else None

"""Rounds of a machine that is slower in some of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from bench.parse.drift import drift_reasons, place_of_run
from bench.runs.run import ReferenceLoad, RunHeader
from bench.study.config import Thresholds
from tests.support.records import DEFINITION

NOISES = (0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08)
_SECONDS, _TIMES = 1.2, 2


# Of vLLM's CPU build on two shared cores: of the variance, what both times of a reference have in common; and
# of a moment's deviation, what is left at the next run, 5 s later.
_OF_THE_MOMENT, _KEPT = 0.7, 0.3
_HICCUP_SHARE, _HICCUP = 0.05, 0.3


def rounds_of(
    generator: random.Random, count: int, noise: float, drift: float, *, runs: int = 5, hiccups: bool = False
) -> list[dict[str, Any]]:
    """Summaries of a deployment of `count` rounds of so many runs; the machine is slower by `drift` in one of them.

    Args:
        noise: standard deviation of the logarithm of a reference's times. Most of it is the moment's: a machine's speed wanders within
            seconds. hiccups: one time in twenty takes 30 % longer in the mean.
    """
    slow = generator.randrange(1, count + 1)
    moment = generator.gauss(0, 1)

    def seconds(number: int) -> float:
        log = math.log(_SECONDS) + noise * (
            math.sqrt(_OF_THE_MOMENT) * moment + math.sqrt(1 - _OF_THE_MOMENT) * generator.gauss(0, 1)
        )
        if hiccups and generator.random() < _HICCUP_SHARE:
            log += generator.expovariate(1 / _HICCUP)
        return math.exp(log) * (1 + drift * (number == slow))

    found = []
    for number in range(1, count + 1):
        for run in range(runs):
            moment = _KEPT * moment + math.sqrt(1 - _KEPT**2) * generator.gauss(0, 1)
            reference = ReferenceLoad(
                since=f"2026-01-01T{number:02}:00:00.000+00:00",
                started=f"2026-01-01T{number:02}:{run:02}:00.000+00:00",
                seconds=tuple(seconds(number) for _ in range(_TIMES)),
            )
            place = place_of_run(RunHeader(digest="d", round=number, reference=reference, definition=DEFINITION))
            found.append({"deployment": "a", "run": f"r{number}-{run}", "slow": number == slow and drift > 0, **place})
    return found


def rates(studies: int, make: Callable[[random.Random], list[dict[str, Any]]], seed: str = "0") -> dict[str, float]:
    """Shares of `studies` in which a round is named that did not drift (`alarms`), and in which the one that did is not (`misses`)."""
    generator = random.Random(seed)
    alarms = misses = 0
    for _ in range(studies):
        runs = make(generator)
        named = {run for _, run in drift_reasons(runs, Thresholds())}
        slow = {run["run"] for run in runs if run["slow"]}
        alarms += bool(named - slow)
        misses += bool(slow - named)
    return {"alarms": alarms / studies, "misses": misses / studies}

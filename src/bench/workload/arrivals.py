"""When the requests of an open loop are due: gaps of a kind, at a rate that may change."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from bench.study import Workload

__all__ = ["arrivals"]


def arrivals(workload: Workload, rate: float, seed: str) -> list[float]:
    """Moments at which an open loop's requests are due (s since the run's start), rising; the first is at 0.

    The gaps are drawn at a rate of one, and their sum is carried through the inverse of the expected number of arrivals: the same
    seed gives the same pattern at every rate, stretched, and a step or ramp bends it without another draw.

    Args:
        workload: `constant`, `poisson` or `gamma`, for `num_requests` or `duration_s`. rate: requests a second. seed: text.

    Source: time rescaling of a point process (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 7.4). Gamma gaps
    of shape `burstiness` and mean 1, as in vLLM's benchmark. Python promises the same `random()` for a seed in every version, and no
    such thing of `gammavariate`: a test holds its draws.
    """
    moments: list[float] = []
    for number in _unit_arrivals(workload, seed):
        moment = _moment(workload, rate, number)
        if len(moments) == workload.num_requests or (workload.duration_s is not None and moment >= workload.duration_s):
            return moments
        moments.append(moment)
    raise AssertionError("the arrivals of a process never end")


def _unit_arrivals(workload: Workload, seed: str) -> Iterator[float]:
    """Arrivals of the process at a rate of one; the first at 0."""
    draw = random.Random(seed)  # noqa: S311 - a schedule, no secret
    total = 0.0
    while True:
        yield total
        if workload.arrival == "constant":
            total += 1.0
        elif workload.arrival == "poisson":
            total -= math.log(1.0 - draw.random())
        else:
            assert workload.burstiness is not None
            total += draw.gammavariate(workload.burstiness, 1.0 / workload.burstiness)


def _moment(workload: Workload, rate: float, number: float) -> float:
    """The moment by which `number` arrivals are expected; infinite where a falling ramp never gets there."""
    if step := workload.step:
        before, during = rate * step.start_s, rate * step.factor * step.duration_s
        if number <= before:
            return number / rate
        if number <= before + during:
            return step.start_s + (number - before) / (rate * step.factor)
        return step.start_s + step.duration_s + (number - before - during) / rate
    if ramp := workload.ramp:
        assert workload.duration_s is not None
        # rate × (start t + slope t² / 2) = number
        slope = (ramp.end_factor - ramp.start_factor) / workload.duration_s
        if slope == 0:
            return number / (rate * ramp.start_factor)
        inside = ramp.start_factor**2 + 2 * slope * number / rate
        return (math.sqrt(inside) - ramp.start_factor) / slope if inside >= 0 else math.inf
    return number / rate

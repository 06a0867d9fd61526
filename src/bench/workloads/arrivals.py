"""When the requests of an open loop are due: gaps of a kind (`bench.workloads.gaps`), at a rate that may change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from bench.workloads.gaps import GAPS
from bench.workloads.workload import Workload


def arrivals(workload: Workload, rate: float, seed: str) -> list[float]:
    """Moments at which an open loop's requests are due (s since the run's start), rising; the first is at 0.

    The gaps are drawn at a rate of one, stretched so that exactly as many arrive as the rate promises, and their sum is carried
    through the inverse of the expected number of arrivals: a step bends the pattern without another draw. Unstretched, a
    Poisson stream of 100 requests offers 10 % more or less than its level, and a curve drawn over levels bends by chance.

    Args:
        workload: an open loop, for `num_requests` or `duration_s`. rate: requests a second. seed: text.

    Source: a Poisson process given its number of arrivals is that many uniform moments in order, which is what exponential gaps
    divided by the moment of the arrival after the last one are (Devroye, Non-Uniform Random Variate Generation, V.2). Time rescaling
    of a point process (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 7.4). Gamma gaps of shape
    `burstiness` and mean 1, as in vLLM's benchmark. Python promises the same `random()` for a seed in every version, and no such
    thing of `gammavariate`: a test holds its draws.
    """
    expected = workload.sent(rate)
    count = max(1, round(expected))
    drawn = list(islice(_unit_arrivals(workload, seed), count + 1))
    stretch = expected / drawn[count]
    return [_moment(workload, rate, number * stretch) for number in drawn[:count]]


def _unit_arrivals(workload: Workload, seed: str) -> Iterator[float]:
    """Arrivals of the process at a rate of one; the first at 0."""
    draw, gap = random.Random(seed), GAPS[workload.arrival].draw  # noqa: S311 - a schedule, no secret
    total = 0.0
    while True:
        yield total
        total += gap(draw, workload.burstiness or 1.0)


def _moment(workload: Workload, rate: float, number: float) -> float:
    """The moment by which `number` arrivals are expected."""
    if step := workload.step:
        before, during = rate * step.start_s, rate * step.factor * step.duration_s
        if number <= before:
            return number / rate
        if number <= before + during:
            return step.start_s + (number - before) / (rate * step.factor)
        return step.start_s + step.duration_s + (number - before - during) / rate
    return number / rate

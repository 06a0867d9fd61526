"""Of which class each request of a run is, and when it leaves."""

from __future__ import annotations

import random

from bench.axes import RATE
from bench.workloads.arrivals import arrivals
from bench.workloads.classes import dealt
from bench.workloads.workload import Workload


def mixture(workload: Workload, level: float, seed: str) -> list[tuple[str | None, float | None]]:
    """The class of each request, and its moment (s since the run's start; None where an end lets it go), in the order of leaving.

    Each class has exactly its share of the requests, to the nearest whole number: drawn one by one, their numbers would differ from
    run to run, and the load with them where one class weighs more than another. The order is that of a shuffled deck, so that classes
    come in clusters as they do by chance.

    Args:
        level: requests in flight, or requests a second. seed: text.

    Source: of a Poisson process with a given number of arrivals, marks in a shuffled order are as independent processes with given
    numbers of arrivals (Kingman, Poisson Processes, 1993, 5).
    """
    shares = {name: each.share for name, each in workload.classes.items()}
    moments = _moments(workload, level, f"{seed}/arrivals")
    names = _deck(dealt(len(moments), shares), seed) if shares else [None] * len(moments)
    return list(zip(names, moments, strict=True))


def _moments(workload: Workload, level: float, seed: str) -> list[float | None]:
    if workload.axis == RATE:
        return list(arrivals(workload, level, seed))
    if workload.arrival == "burst":
        return [0.0] * int(level)
    assert isinstance(workload.num_requests, int)  # the plan has put a number in place of `auto`
    return [None] * workload.num_requests


def _deck(counts: dict[str, int], seed: str) -> list[str | None]:
    """The names, each as often as asked for, in an order drawn by chance: one more class leaves that of the others as it is."""
    cards = []
    for name, count in counts.items():
        draw = random.Random(f"{seed}/order/{name}")  # noqa: S311 - a schedule, no secret
        cards += [(draw.random(), name) for _ in range(count)]
    return [name for _, name in sorted(cards)]

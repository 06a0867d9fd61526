"""Of which class each request of a run is, and when it leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.axes import RATE
from bench.workloads.arrivals import arrivals
from bench.workloads.classes import dealt
from bench.workloads.workload import Workload


def mixture(workload: Workload, level: float, seed: str) -> list[tuple[str | None, float | None]]:
    """The class of each request, and its moment (s since the run's start; None where an end lets it go), in the order of leaving.

    Each class has exactly its share of the requests, to the nearest whole number: drawn one by one, their numbers would differ from
    run to run, and the load with them where one class weighs more than another. The order is that of a shuffled deck, so that classes
    come in clusters as they do by chance. Classes that arrive by themselves have a process each at their share of the rate, beside
    that of the others; all end together.

    Args:
        level: requests in flight, or requests a second. seed: text.

    Source: of a Poisson process with a given number of arrivals, marks in a shuffled order are as independent processes with given
    numbers of arrivals (Kingman, Poisson Processes, 1993, 5).
    """
    shares = {name: each.share for name, each in workload.classes.items()}
    if not shares:
        return [(None, moment) for moment in _moments(workload, level, f"{seed}/arrivals")]
    together = {name: share for name, share in shares.items() if not workload.classes[name].arrival}
    asked = workload.num_requests if workload.axis == RATE else None
    counts = dealt(asked, shares) if isinstance(asked, int) else None
    found: list[tuple[str | None, float | None]] = []
    for names in (together, *({name: shares[name]} for name in shares if name not in together)):
        alone = next(iter(names)) if names is not together else None
        process, rate = workload.of(alone), level
        if counts is not None and isinstance(asked, int):
            mine = sum(counts[name] for name in names)
            process, rate = process.model_copy(update={"num_requests": mine}), level * mine / asked
        elif workload.axis == RATE:
            rate = level * sum(names.values())
        if names and rate:
            moments = _moments(process, rate, f"{seed}/arrivals" + (f"/{alone}" if alone else ""))
            found += zip(_deck(dealt(len(moments), names), seed), moments, strict=True)
    return found if len(together) == len(shares) else sorted(found, key=lambda each: each[1] or 0.0)


def _moments(workload: Workload, level: float, seed: str) -> list[float | None]:
    if workload.axis == RATE:
        return list(arrivals(workload, level, seed))
    if workload.arrival == "burst":
        return [0.0] * int(level)
    assert isinstance(workload.num_requests, int)  # the plan has put a number in place of `auto`
    return [None] * workload.num_requests


def _deck(counts: dict[str, int], seed: str) -> Iterator[str]:
    """The names, each as often as asked for, in an order drawn by chance: one more class leaves that of the others as it is."""
    cards = []
    for name, count in counts.items():
        draw = random.Random(f"{seed}/order/{name}")  # noqa: S311 - a schedule, no secret
        cards += [(draw.random(), name) for _ in range(count)]
    return (name for _, name in sorted(cards))

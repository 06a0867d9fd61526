"""How fast a machine was in each run, by the reference loads before them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from bench.statistics.textbook import variance_by_chance

# standard deviation of ln time of one reference load, against its round's speed; measured: docs/explanation/search.md, 5 to 9 % of
# vLLM's CPU build on two cores
_REFERENCE_NOISE = 0.07
_FEWEST_SPEEDS = 3  # fewest rounds that show which speed of a machine is usual; derived: of two nobody knows which one it is
_BY_CHANCE = 0.1  # probability with which noise alone may look like drift; convention


@dataclass(frozen=True)
class Reference:
    """The reference load before a run.

    Attributes:
        speed: of the machine, in any unit; None where there was none. load: what was sent; only speeds by the same load are compared.
        round: which one the run belongs to.
    """

    speed: float | None
    load: str | None
    round: Hashable


def speeds(seen: Sequence[Reference]) -> list[float]:
    """How fast the machine was in each run ÷ its usual speed, the median of all rounds with reference loads of the same kind.

    A reference load is short, and shows no more than a moment. So a round's speed is the mean over its runs, and differences count by
    the share of their variance that neither the noise nor chance explains (empirical Bayes), and not at all before there are three
    rounds.
    """
    found = [1.0] * len(seen)
    for kind in dict.fromkeys(run.load for run in seen):
        rounds: dict[Hashable, dict[int, float]] = defaultdict(dict)
        for i, run in enumerate(seen):
            if run.speed and run.load == kind:
                rounds[run.round][i] = math.log(run.speed)
        if len(rounds) < _FEWEST_SPEEDS:
            continue
        references = [set(known.values()) for known in rounds.values()]  # several runs may have one
        logs = [fmean(each) for each in references]
        noises = [_REFERENCE_NOISE**2 / len(each) for each in references]
        of_all, by_noise, usual = variance(logs), fmean(noises), median(logs)
        real = max(0.0, of_all - by_noise * variance_by_chance(len(logs) - 1, _BY_CHANCE))
        for known, log, noise in zip(rounds.values(), logs, noises, strict=True):
            relative = math.exp(real / max(of_all - by_noise + noise, 1e-12) * (log - usual)) if real else 1.0
            found = [relative if i in known else each for i, each in enumerate(found)]
    return found

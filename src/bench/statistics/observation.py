"""What a run shows of a limit, by how much it lies above or below each criterion, and how fast its machine was then."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, variance

from bench.statistics.textbook import CONFIDENCE, variance_by_chance

FAILED, GROWTH = "failed", "growth"
NEARBY = math.log(1.3)  # ln ratio of loads that are neighbours; tuned: benchmarks.search
# standard deviation of ln speed, of a machine from round to round and of a server from start to start; measured:
# docs/explanation/decisions.md, 1.9 to 3.4 % between starts in four measurements, rounded up
SPEEDS_DIFFER = 0.04
SLOWER = (-SPEEDS_DIFFER, SPEEDS_DIFFER)  # how slow a machine may be (ln) at which the odds of a miss are evaluated; derived


@dataclass(frozen=True)
class Excess:
    """How far a run lies from one criterion.

    Attributes:
        value: logarithm of what it reached ÷ what is allowed; above 0 the criterion is missed. error: its standard error, from the
            run's own requests. alike: how many requests in a row show as much as a single independent one.
        odds, odds_error: logarithm of the odds of a miss ÷ those that are allowed, and its standard error; None where `value` is that.
        odds_at: what they would be on machines slower by `SLOWER` (logarithms), by which `value` rises as well.
    """

    value: float
    error: float
    alike: float = 1.0
    odds: float | None = None
    odds_error: float = 0.0
    odds_at: tuple[float, ...] = ()


@dataclass(frozen=True)
class Observation:
    """One run.

    Attributes:
        load: its level. excesses: by criterion, an SLO's column, `failed` or, of an open loop, `growth`. requests: that were judged;
        failed: of them. grows: whether requests surely piled up. asked: the level as it was sent; None: the same as `load`, which
        is what it comes to on a machine that is as fast as usual. held: whether a closed loop holds it. round: whose runs share what
        is not known of the machine's speed; None where there is none.
        growth, growth_error: of an open loop, the share of requests that pile up, and its standard error; None where not known.
    """

    load: float
    excesses: Mapping[str, Excess]
    requests: int
    failed: int = 0
    grows: bool = False
    asked: float | None = None
    held: bool = True
    round: Hashable = None
    growth: float | None = None
    growth_error: float = 0.0

    @property
    def level(self) -> float:
        """The load as it was sent."""
        return self.load if self.asked is None else self.asked

    @property
    def of_slos(self) -> dict[str, Excess]:
        """Its excesses of SLOs, by their columns."""
        return {key: each for key, each in self.excesses.items() if key not in (FAILED, GROWTH)}

    @property
    def alike(self) -> float:
        """How many requests in a row show as much as a single independent one."""
        return max(each.alike for each in self.excesses.values())

    @property
    def error(self) -> float:
        """The largest standard error of the SLOs, and of failures if there are any."""
        return max(each.error for key, each in self.excesses.items() if key != GROWTH and (key != FAILED or self.failed))

    @property
    def slow(self) -> bool:
        """Whether an SLO is missed, by the estimate alone."""
        return any(each.value > 0 for each in self.of_slos.values())

    @property
    def carried(self) -> bool:
        """Whether every criterion is met, by the estimates alone."""
        failing = self.failed > 0 and self.excesses[FAILED].value > 0
        return not (self.slow or self.grows or failing)

    def at_usual_speed(self, speed: float) -> Observation:
        """What the run would have shown on a machine that is as fast as usual: a server at half the speed carries half the rate, and
        takes twice as long.

        Args:
            speed: of the machine during the run ÷ the usual one.
        """
        moved = {key: replace(each, value=each.value + math.log(speed)) for key, each in self.of_slos.items()}
        load = self.load if self.held else self.load / speed
        return replace(self, load=load, excesses={**self.excesses, **moved}, asked=self.level)


# standard deviation of ln time of one reference load, against its round's speed; measured: docs/explanation/search.md, 5 to 9 % of
# vLLM's CPU build on two cores
_REFERENCE_NOISE = 0.07
FEWEST_SPEEDS = 3  # fewest rounds that show which speed of a machine is usual; derived: of two nobody knows which one it is


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
        if len(rounds) < FEWEST_SPEEDS:
            continue
        references = [set(known.values()) for known in rounds.values()]  # several runs may have one
        logs = [fmean(each) for each in references]
        noises = [_REFERENCE_NOISE**2 / len(each) for each in references]
        of_all, by_noise, usual = variance(logs), fmean(noises), median(logs)
        real = max(0.0, of_all - by_noise * variance_by_chance(len(logs) - 1, 1 - CONFIDENCE))
        for known, log, noise in zip(rounds.values(), logs, noises, strict=True):
            relative = math.exp(real / max(of_all - by_noise + noise, 1e-12) * (log - usual)) if real else 1.0
            found = [relative if i in known else each for i, each in enumerate(found)]
    return found

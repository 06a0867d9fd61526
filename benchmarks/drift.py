"""How often a round is taken for one in which the machine drifted: made reference loads of known truth, through `drift_reasons`.

`python -m benchmarks.drift`: rates of false alarms (studies without drift in which any round is named) and of misses (studies with one
round that took longer in which that round is not named), by the number of rounds, their runs and the noise of a reference's times.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from tests.support.drift import NOISES, rates, rounds_of

from benchmarks.harness import Referee, print_table

ROUNDS = (2, 3, 4, 6, 11)
RUNS = (1, 3, 5)  # of a round


def rates_by_noise(case: tuple[bool, int, int, float], studies: int) -> list[float]:
    """Share of so many studies in which it is wrong. Args: case: whether there are hiccups, runs, rounds, and the drift."""
    hiccups, runs, count, drift = case
    kinds = (partial(rounds_of, count=count, noise=noise, drift=drift, runs=runs, hiccups=hiccups) for noise in NOISES)
    return [rates(studies, kind)["misses" if drift else "alarms"] for kind in kinds]


def main() -> None:
    """A row a number of rounds, without drift and with drifts of several sizes."""
    referee = Referee(__doc__, studies=2000)
    options = referee.options()
    cases = list(product((False, True), RUNS, ROUNDS, (0.0, 0.25, 0.4)))
    found = referee.spread(partial(rates_by_noise, studies=options.studies), cases)
    print_table(
        ["rounds", "runs", "drift", "hiccups", "rate", "mean", *(f"{noise:.0%}" for noise in NOISES)],
        (
            [count, runs, f"{drift:.0%}", "yes" if hiccups else "no", "misses" if drift else "alarms",
             *(f"{rate:.2%}" for rate in (sum(each) / len(each), *each))]
            for (hiccups, runs, count, drift), each in zip(cases, found, strict=True)
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""How often a comparison is right, on made studies: false verdicts of a baseline against itself, and planted effects found.

A study is measured as the workflow measures it: sessions of both sides in ABBA order, each with every level in a shuffled order,
`repeats` times. The machine's speed wanders (an Ornstein-Uhlenbeck process whose correlation lasts as long as six sessions), so that
sessions next to each other are alike; each start of a server is off by 1 % of its own; the noise of a run is 0.7 to 1.3 times its mean
from the lowest to the highest level, 1.5 and 3 times as large of TTFT P50 and P99, and half of its variance is common to all metrics.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.compare import LADDER, Study, any_verdict, delayed, halved, judged, planted, rate, status, worse

from bench.findings.comparison.effects import Noise, sessions_for
from benchmarks.harness import Referee, print_table

TOKENS, TPOT = "throughput_tokens_per_s", "tpot_p50_s"
_LIMIT = 10.0  # percent, of the gate


def false_verdicts(generator: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Studies of the baseline against itself with any verdict."""
    rows = []
    for k, (noise, speed) in itertools.product((1, 2, 4, 6, 8), ((0.03, 0.05), (0.06, 0.10))):
        study = Study(k, 2 if k == 1 else 1, noise, speed)
        of = {"sessions": k, "repeats": study.repeats, "noise": noise, "speed": speed}
        rows.append({**of, "false": rate(generator, draws, study, any_verdict)})
    return rows


def power(generator: np.random.Generator, draws: int, studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Of each study, what the plan says it sees, and how often that is found: over all levels, as a delay a token, as a halved top."""
    rows = []
    for study in studies:
        difference = study.visible
        evenly, top = planted(math.log1p(difference)), halved()
        rows.append(
            {
                "sessions": study.sessions,
                "repeats": study.repeats,
                "visible": difference,
                "found": rate(generator, draws, study, lambda one: worse(one, TPOT), evenly),
                "delay_found": rate(generator, draws, study, lambda one: worse(one, TPOT), delayed(difference)),
                "halved_found": rate(generator, draws, study, lambda one: worse(one, TOKENS), top),
            }
        )
    return rows


def gate(generator: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Planted pairs through `--fail-on-regression 10`, in two metrics, at 3 % noise and 5 % speed.

    Sides take turns, in the sessions that the plan says for 10 % and for 7 %; or the baseline is stored, and the machine is as fast
    later, or 40 % faster or slower, beside what it wanders. At the end of each a candidate whose throughput halves from 8 in flight on.
    """
    quiet = Study(1, 1, 0.03, 0.05)
    rows = []
    for stored, wanted in ((None, 0.10), (None, 0.07), (0.0, 0.10), (math.log(1.4), 0.10), (-math.log(1.4), 0.10)):
        sessions = sessions_for(wanted, Noise(quiet.noise, quiet.spread), len(LADDER), 1, 2) or 0
        changes = [(f"{each:+d} %", planted(math.log1p(each / 100))) for each in (-5, 0, 5, 10, 20, 30)]
        for name, effect in (*changes, ("halved top", halved())):
            comparisons = [
                judged(generator, replace(quiet, sessions=sessions), effect, stored=stored, names=(TOKENS, TPOT))
                for _ in range(draws)
            ]
            verdicts = [" ".join((*found.effects["verdict"], *found.overall["pooled"])) for found in comparisons]
            statuses = [status(found, _LIMIT) for found in comparisons]
            rows.append(
                {
                    "measured": "in turns" if stored is None else f"stored, machine {math.expm1(stored):+.0%}",
                    "sessions": sessions,
                    "planted": name,
                    **{side: sum(side in each for each in verdicts) / draws for side in ("better", "worse")},
                    **{f"exit {code}": statuses.count(code) / draws for code in (0, 1, 3)},
                }
            )
    return rows


def main() -> None:
    referee = Referee(__doc__, seed=0, draws=200)
    referee.option("--gate", action="store_true", help="only the exit status on planted pairs")
    options = referee.options()
    generator, draws = np.random.default_rng(options.seed), options.draws
    if options.gate:
        found = {"gate": gate(generator, draws)}
    else:
        studies = [Study(*shape) for shape in ((4, 1), (4, 2), (5, 2), (6, 1), (6, 2), (8, 1), (12, 1))]
        first = studies[0]
        found = {
            "false verdicts": false_verdicts(generator, draws),
            f"power at {first.noise:.1%} noise and {first.speed:.0%} speed": power(generator, draws, studies),
            "one session": [{"halved_found": rate(generator, draws, Study(1, 2), lambda one: worse(one, TOKENS), halved())}],
        }
    referee.keep(found)
    for name, rows in found.items():
        print(f"\n{name}, in % of {draws} studies\n")
        cells = ([x if isinstance(x, int | str) else f"{100 * x:.1f}" for x in row.values()] for row in rows)
        print_table(list(rows[0]), cells)


if __name__ == "__main__":
    main()

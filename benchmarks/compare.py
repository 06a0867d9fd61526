"""How often a comparison is right, on made studies: false verdicts of a baseline against itself, and planted effects found.

A study is measured as the workflow measures it: sessions of both sides in ABBA order, each with every level in a shuffled order,
`repeats` times. The machine's speed wanders (an Ornstein-Uhlenbeck process whose correlation lasts as long as six sessions), so that
sessions next to each other are alike; each start of a server is off by 1 % of its own; the noise of a run is 0.7 to 1.3 times its mean
from the lowest to the highest level, 1.5 and 3 times as large of TTFT P50 and P99, and half of its variance is common to all metrics.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.support.compare import Study, any_verdict, delayed, halved, planted, rate, worse

TOKENS, TPOT = "throughput_tokens_per_s", "tpot_p50_s"


def false_verdicts(generator: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Studies of the baseline against itself with any verdict."""
    rows = []
    for k, (noise, speed) in itertools.product((1, 2, 4, 6, 8), ((0.03, 0.05), (0.06, 0.10))):
        study = Study(k, 2 if k == 1 else 1, noise, speed)
        rows.append(
            {
                "sessions": k,
                "repeats": study.repeats,
                "noise": noise,
                "speed": speed,
                "false": rate(generator, draws, study, any_verdict),
            }
        )
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
                "noise": study.noise,
                "speed": study.speed,
                "spread": study.spread,
                "visible": difference,
                "found": rate(generator, draws, study, lambda one: worse(one, TPOT), evenly),
                "delay_found": rate(generator, draws, study, lambda one: worse(one, TPOT), delayed(difference)),
                "halved_found": rate(generator, draws, study, lambda one: worse(one, TOKENS), top),
            }
        )
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200, help="studies a cell (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    studies = [Study(*shape) for shape in ((4, 1), (4, 2), (5, 2), (6, 1), (6, 2), (8, 1), (12, 1))]
    result = {
        "false": false_verdicts(generator, options.draws),
        "power": power(generator, options.draws, studies),
        "one_session": {
            "halved_found": rate(generator, options.draws, Study(1, 2), lambda one: worse(one, TOKENS), halved()),
        },
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, rows in (
        ("false verdicts", result["false"]),
        ("power", result["power"]),
        ("one session", [result["one_session"]]),
    ):
        print(f"\n{name}, in % of {options.draws} studies")
        _print_table(rows)


def _print_table(rows: Any) -> None:
    """A table in Markdown; shares and noises in percent."""
    print("| " + " | ".join(rows[0]) + " |\n|" + "--:|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(str(x) if isinstance(x, int) else f"{100 * x:.1f}" for x in row.values()) + " |")


if __name__ == "__main__":
    main()

"""How often a round is taken for one in which the machine drifted: made reference loads of known truth, through `drift_reasons`.

`python -m benchmarks.drift`: rates of false alarms (studies without drift in which any round is named) and of misses (studies with one
round that took longer in which that round is not named), by the number of rounds, their runs and the noise of a reference's times.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import product

from tests.support.drift import NOISES, rates, rounds_of

__all__ = ["NOISES", "ROUNDS", "RUNS", "rates", "rounds_of"]

ROUNDS = (2, 3, 4, 6, 11)
RUNS = (1, 3, 5)  # of a round


def main() -> None:
    """A row a number of rounds, without drift and with drifts of several sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000, help="made studies of each kind (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    rows = []
    for hiccups, runs, count, drift in product((False, True), RUNS, ROUNDS, (0.0, 0.25, 0.4)):
        key = "alarms" if drift == 0 else "misses"
        each = [
            rates(options.studies, partial(rounds_of, count=count, noise=noise, drift=drift, runs=runs, hiccups=hiccups))[key]
            for noise in NOISES
        ]
        rows.append(
            {"rounds": count, "runs": runs, "drift": drift, "hiccups": hiccups, "rate": key, "mean": sum(each) / len(each),
             **{f"{noise:.0%}": rate for noise, rate in zip(NOISES, each, strict=True)}}
        )  # fmt: skip
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print("rounds  runs  drift  hiccups  rate      mean  " + "  ".join(f"{noise:>6.0%}" for noise in NOISES))
    for row in rows:
        print(
            f"{row['rounds']:>6}  {row['runs']:>4}  {row['drift']:>5.0%}  "
            f"{'yes' if row['hiccups'] else 'no':>7}  {row['rate']}  {row['mean']:>6.2%}  "
            + "  ".join(f"{row[f'{noise:.0%}']:>6.2%}" for noise in NOISES)
        )


if __name__ == "__main__":
    main()

"""Hold what a study's outputs say against its own tables.

python -m benchmarks.said results/                     # of a finished study
python -m benchmarks.said --studies 300 --seed 1       # of planted studies of all kinds
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

from benchmarks.harness import Referee, print_table
from benchmarks.said.check import KINDS, Checked, check
from benchmarks.said.studies import KINDS as STUDIES
from benchmarks.said.studies import make


def planted(number: int, seed: int) -> tuple[str, Checked]:
    """The nth study and what is found in it."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        kind = make(number, seed, Path(place))
        return f"{number} {kind}", check(Path(place))


def main() -> int:
    referee = Referee(__doc__, seed=0, studies=0)
    referee.option("folders", nargs="*", type=Path, help="results folders of finished studies")
    referee.option("--from", type=int, default=0, dest="first", metavar="I", help="number of the first planted study")
    options = referee.options()
    checked = [(str(folder), check(folder)) for folder in options.folders]
    checked += referee.spread(partial(planted, seed=options.seed), range(options.first, options.first + options.studies))
    for name, found in checked:
        for each in found.findings:
            print(f"{name} | {each}")
    claims = sum((found.claims for _, found in checked), Counter[str]())
    findings = Counter(each.kind for _, found in checked for each in found.findings)
    print()
    print_table(["kind", "claims recognised", "contradicted"], [[kind, f"{claims[kind]:,}", findings[kind]] for kind in KINDS])
    silent = [kind for kind in KINDS if not claims[kind]] if options.studies >= len(STUDIES) else []
    if silent:
        print(
            f"\nNo claim was recognised of: {', '.join(silent)}. Were sentences written anew? Their patterns are in check.py."
        )
    return 1 if findings or silent else 0


if __name__ == "__main__":
    sys.exit(main())

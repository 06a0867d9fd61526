"""Hold what a study's outputs say against its own tables.

python -m benchmarks.said results/                     # of a finished study
python -m benchmarks.said --studies 300 --seed 1       # of planted studies of all kinds
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from benchmarks.said.check import KINDS, check
from benchmarks.said.studies import KINDS as STUDIES
from benchmarks.said.studies import make


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.said", description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="results folders of finished studies")
    parser.add_argument("--studies", type=int, default=0, metavar="N", help="planted studies")
    parser.add_argument("--seed", type=int, default=0, help="of the planted studies")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="I", help="number of the first planted study")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    claims: Counter[str] = Counter()
    findings: Counter[str] = Counter()

    def told(folder: Path, name: str) -> None:
        found = check(folder)
        claims.update(found.claims)
        findings.update(each.kind for each in found.findings)
        for each in found.findings:
            print(f"{name} | {each}", flush=True)

    for folder in options.folders:
        told(folder, str(folder))
    for number in range(options.first, options.first + options.studies):
        with tempfile.TemporaryDirectory() as place:
            kind = make(number, options.seed, Path(place))
            told(Path(place), f"{number} {kind}")
    print("\n| kind | claims recognised | contradicted |\n|---|--:|--:|")
    for kind in KINDS:
        print(f"| {kind} | {claims[kind]:,} | {findings[kind]:,} |")
    silent = [kind for kind in KINDS if not claims[kind]] if options.studies >= len(STUDIES) else []
    if silent:
        print(
            f"\nNo claim was recognised of: {', '.join(silent)}. Were sentences written anew? Their patterns are in check.py."
        )
    return 1 if findings or silent else 0


if __name__ == "__main__":
    sys.exit(main())

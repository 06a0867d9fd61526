"""How often each check is wrong: sound runs of many kinds, and runs with one planted fault, through the real parse and verdict.

python -m benchmarks.verdicts                          # about a minute
python -m benchmarks.verdicts --sound 2000 --planted 400
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from bench.parse.validity import reason_text, verdict
from bench.study.config import Thresholds
from benchmarks.verdicts.runs import FAULTS, SOUND, sound, summary

_THRESHOLDS = Thresholds()


def false_alarms(runs: int) -> None:
    """Print how many sound runs of each kind are said to have a fault, and which; kinds with none in one row."""
    print("| sound runs | n | said to be at fault | share |\n|---|--:|--:|--:|")
    reasons: Counter[str] = Counter()
    alarms = right = 0
    for number, kind in enumerate(SOUND):
        wrong = 0
        for draw in range(runs // len(SOUND)):
            generator = np.random.default_rng([0, number, draw])
            found = verdict(summary(sound(kind, generator), generator), _THRESHOLDS).found
            wrong += bool(found)
            reasons.update(f"{reason.part}: {reason_text(reason)}" for reason in found)
        alarms += wrong
        right += not wrong
        if wrong:
            print(f"| {kind} | {runs // len(SOUND)} | {wrong} | {wrong / (runs // len(SOUND)):.1%} |", flush=True)
    whole = runs // len(SOUND) * len(SOUND)
    print(f"| {right} kinds of {len(SOUND)} | {right * (runs // len(SOUND))} | 0 | 0.0% |")
    print(f"| all | {whole} | {alarms} | {alarms / whole:.2%} |")
    for reason, count in reasons.most_common(10):
        print(f"    {count} × {reason}")


def misses(runs: int) -> None:
    """Print of each planted fault how many runs pass the check that is for it, and in how many a part that is sound is blamed; faults
    that are always found, and alone, in one row.
    """
    found_always = 0
    print("\n| planted | part | n | missed | share | other parts blamed |\n|---|---|--:|--:|--:|--:|")
    for number, (fault, (part, text, plant)) in enumerate(FAULTS.items()):
        missed = blamed = 0
        for draw in range(runs):
            generator = np.random.default_rng([1, number, draw])
            found = verdict(summary(plant(generator), generator), _THRESHOLDS).found
            missed += not any(reason.part == part and text in reason_text(reason) for reason in found)
            blamed += any(reason.part != part for reason in found)
        found_always += not (missed or blamed)
        if missed or blamed:
            print(f"| {fault} | {part} | {runs} | {missed} | {missed / runs:.1%} | {blamed} |", flush=True)
    print(f"| {found_always} kinds of {len(FAULTS)} | | {found_always * runs} | 0 | 0.0% | 0 |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__.splitlines()[0])
    parser.add_argument("--sound", type=int, default=800, metavar="N", help="sound runs (default: 800)")
    parser.add_argument("--planted", type=int, default=60, metavar="N", help="runs with each fault (default: 60)")
    options = parser.parse_args()
    false_alarms(options.sound)
    misses(options.planted)


if __name__ == "__main__":
    main()

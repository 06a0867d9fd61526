"""How often each check is wrong: sound runs of many kinds, and runs with one planted fault, through the real parse and verdict.

python -m benchmarks.verdicts                          # about a minute
python -m benchmarks.verdicts --sound 2000 --planted 400
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from bench.parse.validity import Reason, reason_text, verdict
from bench.study.config import Thresholds
from benchmarks.harness import Referee, print_table
from benchmarks.verdicts.runs import FAULTS, SOUND, Case, sound, summary


def found(case: Case, generator: np.random.Generator) -> list[Reason]:
    """What a run is said to have wrong."""
    return list(verdict(summary(case, generator), Thresholds()).found)


def false_alarms(job: tuple[int, int]) -> tuple[int, Counter[str]]:
    """Of so many sound runs of a kind, how many are said to have a fault, and which. Args: job: the kind's number, and how many."""
    number, draws = job
    wrong, reasons = 0, Counter[str]()
    for draw in range(draws):
        generator = np.random.default_rng([0, number, draw])
        said = found(sound(SOUND[number], generator), generator)
        wrong += bool(said)
        reasons.update(f"{reason.part}: {reason_text(reason)}" for reason in said)
    return wrong, reasons


def misses(job: tuple[int, int]) -> tuple[int, int]:
    """Of so many runs with a planted fault, how many pass the check that is for it, and in how many a part that is sound is blamed."""
    number, draws = job
    part, text, plant = list(FAULTS.values())[number]
    missed = blamed = 0
    for draw in range(draws):
        generator = np.random.default_rng([1, number, draw])
        said = found(plant(generator), generator)
        missed += not any(reason.part == part and text in reason_text(reason) for reason in said)
        blamed += any(reason.part != part for reason in said)
    return missed, blamed


def main() -> None:
    """Print both; kinds of which nothing is wrong in one row."""
    referee = Referee(__doc__, sound=800, planted=60)
    options = referee.options()
    each, planted = options.sound // len(SOUND), options.planted
    alarms = referee.spread(false_alarms, [(number, each) for number in range(len(SOUND))])
    lines = [[kind, each, wrong, f"{wrong / each:.1%}"] for kind, (wrong, _) in zip(SOUND, alarms, strict=True) if wrong]
    right, whole, wrong = len(SOUND) - len(lines), each * len(SOUND), sum(wrong for wrong, _ in alarms)
    lines += [[f"{right} kinds of {len(SOUND)}", right * each, 0, "0.0%"], ["all", whole, wrong, f"{wrong / whole:.2%}"]]
    print_table(["sound runs", "n", "said to be at fault", "share"], lines)
    reasons = sum((said for _, said in alarms), Counter[str]())
    for reason, count in reasons.most_common(10):
        print(f"    {count} × {reason}")
    print()
    results = dict(zip(FAULTS, referee.spread(misses, [(number, planted) for number in range(len(FAULTS))]), strict=True))
    lines = [[fault, FAULTS[fault][0], planted, missed, f"{missed / planted:.1%}", blamed]
             for fault, (missed, blamed) in results.items() if missed or blamed]  # fmt: skip
    referee.keep({"sound": dict(zip(SOUND, alarms, strict=True)), "planted": results})
    always = len(FAULTS) - len(lines)
    lines.append([f"{always} kinds of {len(FAULTS)}", "", always * planted, 0, "0.0%", 0])
    print_table(["planted", "part", "n", "missed", "share", "other parts blamed"], lines, texts=2)


if __name__ == "__main__":
    main()

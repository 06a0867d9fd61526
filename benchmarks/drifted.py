"""How often `bench drifted` is right: planted studies and planted production, whose difference is known.

    python -m benchmarks.drifted --times 50

A planted server steps through its batch (8 ms + 1 ms a request), lets prompts stall it, has sixteen slots, and is 3 % faster or slower
from start to start (standard deviation). The study holds 1 to 32 requests, for two minutes each, in one start. Production gets
requests at random for an hour; rate and lengths drift over minutes, so that neighbouring requests are alike. The verdicts are those of
`find_drift` on the samples that Prometheus would have kept.
"""

from __future__ import annotations

from collections import Counter

from tests.support.production import CASES, tried

from benchmarks.harness import Referee


def judged(job: tuple[str, int]) -> tuple[dict[str, str], str]:
    """The verdicts on one study with an hour of production. Args: job: its case, and the seed."""
    return tried(*job)


def _right(verdicts: dict[str, str], wanted: set[str] | None) -> bool:
    """Whether one of the planted differences was found, or none where nothing is planted."""
    differing = {name for name, verdict in verdicts.items() if verdict == "differs"}
    return bool(differing & wanted) if wanted else not differing


def main() -> None:
    referee = Referee(__doc__, times=100)
    referee.option("--case", action="append", choices=list(CASES), help="only this one")
    options = referee.options()
    times, names = options.times, options.case or list(CASES)
    results = iter(referee.spread(judged, [(name, seed) for name in names for seed in range(times)]))
    right_alone = 0
    for name in names:
        _, wanted = CASES[name]
        found = [next(results) for _ in range(times)]
        unknown = sum(verdict == "not known" for _, verdict in found)
        by = Counter(each for verdicts, _ in found for each, verdict in verdicts.items() if verdict == "differs")
        right = sum(_right(each, wanted) for each, _ in found)
        said = [f"{'silent' if wanted is None else 'found'} {right} of {times}"]
        said += [f"not known {unknown}"] * bool(unknown)
        said += [f"{each} differs {count}" for each, count in by.items()]
        if right == times and not unknown:
            right_alone += 1
        else:
            print(f"- {name}: {'; '.join(said)}", flush=True)
    print(f"- {right_alone} other cases: right in all {times}")


if __name__ == "__main__":
    main()

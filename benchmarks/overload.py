"""How often the rule that stops overloaded runs is right: planted servers, each run once whole and once as far as the rule lets it.

    python -m benchmarks.overload                     # 3,000 runs; some ten minutes on two cores
    python -m benchmarks.overload --runs 300 --seed 2

The servers are the open loops of `benchmarks.capacity` (an engine step by step), one that all requests share, a single queue, and
latencies that do not depend on the load. Their machine stalls, drifts, starts slowly or is slow for a while. A stop is false where the
whole run does not end as `grows`, unless that is too short to tell and the load is known to be more than the server carries.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.overload import judged

from benchmarks.harness import Referee, print_table

PLAIN = 0.4  # of the rate that is offered, piled up in a whole run: from there on it is plainly overloaded


def _plain(run: Mapping[str, Any]) -> bool:
    return run["why"] == "grows" and run["growth"] >= PLAIN


def _untold(run: Mapping[str, Any]) -> bool:
    """Whether it was stopped, and the whole run is too short to tell that its load, more than what is carried, is so."""
    return run["stopped"] is not None and run["why"] in ("short", "unsure") and run["share"] > 1


def _false(run: Mapping[str, Any]) -> bool:
    return run["stopped"] is not None and run["why"] != "grows" and not _untold(run)


def report(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the result."""
    groups = {"all": list(results)}
    for key in ("kind", "machine"):
        for name in dict.fromkeys(each[key] for each in results):
            groups[name] = [each for each in results if each[key] == name]
    heads = ("runs", "n", "plainly overloaded", "of these stopped", "their time, of whole runs'", "others stopped", "false stops",
             "whole run too short to tell")  # fmt: skip
    lines = []
    for name, mine in groups.items():
        plain = [each for each in mine if _plain(each)]
        ended = sum(each["stopped"] is not None for each in plain)
        shares = ["–", "–"]
        if plain:
            taken = sum(each.get("part_seconds", each["seconds"]) for each in plain) / sum(each["seconds"] for each in plain)
            shares = [f"{100 * share:.0f} %" for share in (ended / len(plain), taken)]
        others = sum(each["stopped"] is not None for each in mine) - ended
        lines.append([name, len(mine), len(plain), *shares, others, sum(map(_false, mine)), sum(map(_untold, mine))])
    print_table(heads, lines)
    if sent := [each["stopped"] / each["count"] for each in results if each["stopped"] is not None]:
        print(f"\nA run that is stopped has sent {100 * statistics.median(sent):.0f} % of its requests, in the median.")
    for each in filter(_false, results):
        print(f"false stop: {json.dumps(each)}")


def main() -> None:
    referee = Referee(__doc__, seed=22, runs=3000)
    options = referee.options()
    report(referee.spread(judged, [(number, options.seed) for number in range(options.runs)]))


if __name__ == "__main__":
    main()

"""How often the rule that stops overloaded runs is right: planted servers, each run once whole and once as far as the rule lets it.

    python -m benchmarks.overload                     # 3,000 runs; some ten minutes on two cores
    python -m benchmarks.overload --runs 300 --seed 2

The servers are the open loops of `benchmarks.capacity` (an engine step by step), one that all requests share, a single queue, and
latencies that do not depend on the load. Their machine stalls, drifts, starts slowly or is slow for a while. A stop is false where the
whole run does not end as `grows`, unless that is too short to tell and the load is known to be more than the server carries.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.overload import judged

PLAIN = 0.4  # of the rate that is offered, piled up in a whole run: from there on it is plainly overloaded


def _plain(run: Mapping[str, Any]) -> bool:
    return run["why"] == "grows" and run["growth"] >= PLAIN


def _untold(run: Mapping[str, Any]) -> bool:
    """Whether it was stopped, and the whole run is too short to tell that its load, more than what is carried, is so."""
    return run["stopped"] is not None and run["why"] in ("short", "unsure") and run["share"] > 1


def _false(run: Mapping[str, Any]) -> bool:
    return run["stopped"] is not None and run["why"] != "grows" and not _untold(run)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The result, to read."""
    lines = [
        "| runs | n | plainly overloaded | of these stopped | their time, of whole runs' | others stopped | false stops | "
        "whole run too short to tell |",
        "|---|" + "--:|" * 7,
    ]
    groups: dict[str, Sequence[Mapping[str, Any]]] = {"all": results}
    for key in ("kind", "machine"):
        for name in dict.fromkeys(each[key] for each in results):
            groups[f"{name}"] = [each for each in results if each[key] == name]
    for name, mine in groups.items():
        plain = [each for each in mine if _plain(each)]
        ended = [each for each in plain if each["stopped"] is not None]
        taken = sum(each.get("part_seconds", each["seconds"]) for each in plain) / (sum(each["seconds"] for each in plain) or 1)
        cells = [
            name,
            str(len(mine)),
            str(len(plain)),
            f"{100 * len(ended) / len(plain):.0f} %" if plain else "–",
            f"{100 * taken:.0f} %" if plain else "–",
            str(sum(each["stopped"] is not None for each in mine) - len(ended)),
            str(sum(map(_false, mine))),
            str(sum(map(_untold, mine))),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Judge the runs, and print how often the rule was right."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write everything, run by run")
    options = parser.parse_args()
    began, results = time.monotonic(), []
    with ProcessPoolExecutor(options.jobs) as pool:
        for result in pool.map(judged, [(n, options.seed) for n in range(options.runs)], chunksize=4):
            results.append(result)
            if len(results) % 500 == 0:
                print(f"{len(results)} after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    mean = [each["stopped"] / each["count"] for each in results if each["stopped"] is not None]
    if mean:
        print(f"\nA run that is stopped has sent {100 * statistics.median(mean):.0f} % of its requests, in the median.")
    for each in filter(_false, results):
        print(f"false stop: {json.dumps(each)}")


if __name__ == "__main__":
    main()

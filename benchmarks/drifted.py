"""How often `bench drifted` is right: planted studies and planted production, whose difference is known.

    python -m benchmarks.drifted --times 50
    python -m benchmarks.drifted --results results --minutes 4

A planted server steps through its batch (8 ms + 1 ms a request), lets prompts stall it, has sixteen slots, and is 3 % faster or slower
from start to start (standard deviation). The study holds 1 to 32 requests, for two minutes each, in one start. Production gets
requests at random for an hour; rate and lengths drift over minutes, so that neighbouring requests are alike. The verdicts are those of
`find_drift` on the samples that Prometheus would have kept.

With `--results` the server of that study is started, and a real Prometheus (apt-get install prometheus) scrapes it: under the study's
lengths, and under half as long answers again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support.production import CASES, tried

from bench.beside.production.curve import read_curve
from bench.beside.production.drifted import conclusion, find_drift, rows
from bench.beside.production.drifted.served import Window
from bench.beside.production.guard.measured import read_measured
from bench.cli.output import print_table
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.servers.server import Server
from benchmarks import guard

_BEGINS_S = 20.0  # until a load stands


def real(results: Path, minutes: float) -> None:
    """What is said of the study's own server."""
    measured, curve = read_measured(results), read_curve(results)
    launch = read(Launch, results / "deployments" / measured.deployment / "launch.json")
    held, _ = guard.loads(measured)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        server = Server(launch, cores=1, workers=1, log=folder / "server.log", ready_timeout_s=300.0, say=print)
        with server, guard.prometheus(measured, server.base_url, folder) as address:
            for longer in (1.0, 1.5):
                load = guard.load(server.base_url, launch, measured, held, 60 * minutes, folder / f"load{longer}", longer)
                with load:
                    time.sleep(_BEGINS_S)
                    begin = time.time()
                    time.sleep(60 * minutes - _BEGINS_S)
                    end = time.time()
                found = find_drift(curve, Window(address, {"job": measured.deployment}, begin, end))
                print(f"\n{held} in flight, output × {longer:g}: {found.verdict}", flush=True)
                print_table(rows(found), "<<<<<")
                print("\n".join(conclusion(found)), flush=True)


def _right(verdicts: dict[str, str], wanted: set[str] | None) -> bool:
    """Whether one of the planted differences was found, or none where nothing is planted."""
    differing = {name for name, verdict in verdicts.items() if verdict == "differs"}
    return bool(differing & wanted) if wanted else not differing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="studies with an hour of production, of each case")
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one")
    parser.add_argument("--json", type=Path, help="file for the result")
    parser.add_argument("--results", type=Path, help="in place of planted servers, start that of a study")
    parser.add_argument("--minutes", type=float, default=4.0, help="of each load then")
    options = parser.parse_args()
    if options.results:
        real(options.results, options.minutes)
        return
    result, right_alone = {}, 0
    for name in options.case or CASES:
        _, wanted = CASES[name]
        found = [tried(name, seed) for seed in range(options.times)]
        verdicts = Counter(verdict for _, verdict in found)
        by = Counter(each for verdicts, _ in found for each, verdict in verdicts.items() if verdict == "differs")
        right = sum(_right(each, wanted) for each, _ in found)
        result[name] = {"right": right, "of": options.times, "verdicts": dict(verdicts), "differs": dict(by)}
        said = [f"{'silent' if wanted is None else 'found'} {right} of {options.times}"]
        said += [f"not known {verdicts['not known']}"] * ("not known" in verdicts)
        said += [f"{each} differs {times}" for each, times in by.items()]
        if right == options.times and "not known" not in verdicts:
            right_alone += 1
        else:
            print(f"- {name}: {'; '.join(said)}", flush=True)
    print(f"- {right_alone} other cases: right in all {options.times}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

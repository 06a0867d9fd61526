"""A search that is killed at random moments, again and again: what was lost, and whether it ends the same.

    python -m benchmarks.killed_search --kills 10 --seed 1

The server refuses from seven requests in flight on, so that the limits of both searches are known: 6. The workflow's whole process
group is killed (SIGKILL), then started again, until it ends by itself. Then the same study once more in a new folder, with nothing
killed.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

from tests.conftest import CONTENT
from tests.fake_server import fake_server
from tests.test_auto import MOST, SEARCH, Folder, searching

from bench.records.searches import read_searches

_LONGEST_S = 120.0


def killed(folder: Folder, kills: int, draws: random.Random) -> tuple[int, int]:
    """Kill the workflow so often, then let it end; how many kills met a search that had begun, and runs that were lost or changed."""
    met = lost = 0
    for number in range(1, kills + 1):
        before = folder.stored()
        workflow = folder.start(group=True)
        end = time.monotonic() + _LONGEST_S
        # From the moment that something more is measured on; up to three runs later.
        while len(folder.stored()) <= len(before) and workflow.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(draws.uniform(0, 2))
        if workflow.poll() is None:
            met += 1
            kept = folder.stored()
            os.killpg(workflow.pid, signal.SIGKILL)
            workflow.communicate(timeout=60)
            shutil.rmtree(folder.path / ".snakemake/locks", ignore_errors=True)
            lost += sum(folder.stored().get(key) != moment for key, moment in (before | kept).items())
        print(f"kill {number}: {len(folder.stored())} runs", flush=True)
    folder.run()
    return met, lost


def main() -> None:
    """Kill, count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draws = random.Random(options.seed)  # noqa: S311 - no secret
    with fake_server(first_s=0.05, gap_s=0.01, pages={"/v1/models": '{"data": [{"id": "m"}]}'}) as server:
        server.refuse = lambda _: (503, {}) if server.in_flight > MOST else None
        ends = []
        for kills in (options.kills, 0):
            with tempfile.TemporaryDirectory() as name:
                content = searching(copy.deepcopy(CONTENT), server.base_url)
                content["workloads"]["longer"] = {**content["workloads"]["w"], "output_tokens": 8}
                content["study"]["ladders"].append({**content["study"]["ladders"][0], "workload": "longer"})
                folder = Folder(Path(name), content)
                met, lost = killed(folder, kills, draws)
                print(f"{met} of {kills} kills met a search; {lost} runs lost or changed")
                ended = read_searches(folder.path / SEARCH)
                for each in ended.searches if ended else ():
                    print(
                        f"    {each.workload}: limit {each.limit:g} ({each.low:g} to {each.high}), {len(each.runs)} runs, {each.why}"
                    )
                ends.append([(x.limit, x.low, x.high, x.why) for x in ended.searches] if ended else [])
    print("the same end" if ends[0] == ends[1] else f"another end: {ends}")


if __name__ == "__main__":
    main()

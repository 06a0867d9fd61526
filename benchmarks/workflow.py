"""What Snakemake and the rules cost: dry runs of growing studies, a rerun in which nothing is left to do, a redraw for another peak.

In a copy of the project, with an engine that costs nothing: runs are made up, and put in place by the session as finished ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.stores import copy_project, fill_store, write_study

from bench.runs.paths import Paths
from bench.study.plan import Plan
from benchmarks.process import Cost, cost_of

# The same, and at its end it reports the CPU time that it took without its jobs.
_TELLING = """
import atexit, pathlib, resource, sys
from snakemake.cli import main
def report():
    used = resource.getrusage(resource.RUSAGE_SELF)
    pathlib.Path("snakemake.cpu").write_text(str(used.ru_utime + used.ru_stime))
atexit.register(report)
main(sys.argv[1:])
"""


def snakemake(folder: Path, *arguments: str, cores: int = 1) -> Cost:
    """One call, as `make figures` calls it; its output goes to a file, as no terminal's speed is meant.

    Raises:
        RuntimeError: it failed; the message has its last words.
    """
    command = [sys.executable, "-c", _TELLING, "--nolock", "--cores", str(cores), *arguments, Paths.MANIFEST]
    return cost_of(
        ["sh", "-c", 'exec "$@" > snakemake.out 2>&1 || { tail -c 3000 snakemake.out; exit 1; }', "sh", *command], cwd=folder
    )


def redraws(folder: Path, runs: int, repeats: int) -> list[Cost]:
    """Draw a made study like the default one, then again for `repeats` other peaks; what these took."""
    priced = {"slo": ["ttft_p99=10s"], "price_per_hour": 0.1, "price_per_million_tokens": 0.5}

    def study(peak: int) -> Plan:
        return write_study(folder, runs, 12, {**priced, "peak_rps": peak})

    fill_store(study(100), folder, series=100)
    snakemake(folder)
    costs = []
    for i in range(repeats):
        study(101 + i)
        costs.append(snakemake(folder))
    return costs


def median(costs: Iterable[Cost]) -> dict[str, float]:
    """Medians of what calls took, and the range of their seconds."""
    rows = [asdict(cost) for cost in costs]
    walls = [row["wall_s"] for row in rows]
    medians = {key: round(statistics.median(row[key] for row in rows), 2) for key in ("wall_s", "cpu_s", "peak_mib")}
    return {**medians, "fastest_s": round(min(walls), 2), "slowest_s": round(max(walls), 2)}


def growth(rows: list[dict[str, Any]]) -> None:
    """Add to each row but the first how it grew from the one before: the exponent of CPU time, and its CPU ms for each run more."""
    for before, row in itertools.pairwise(rows):
        row["exponent"] = round(math.log(row["cpu_s"] / before["cpu_s"]) / math.log(row["runs"] / before["runs"]), 2)
        row["ms_a_run"] = round(1000 * (row["cpu_s"] - before["cpu_s"]) / (row["runs"] - before["runs"]), 2)
        row["kib_a_run"] = round(1024 * (row["peak_mib"] - before["peak_mib"]) / (row["runs"] - before["runs"]), 1)


def main() -> None:
    """Dry runs of each size, then the rerun and the redraw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, nargs="*", default=[150, 1500, 5000], help="dry runs of so many runs (default: 150 1500 5000)"
    )
    parser.add_argument("--rerun", type=int, default=150, help="runs of the rerun; 0: none (default: %(default)s)")
    parser.add_argument(
        "--redraw",
        type=int,
        default=36,
        help="runs of the study that is drawn for another peak; 0: none (default: %(default)s)",
    )
    parser.add_argument("--a-deployment", type=int, default=50, help="runs of each deployment (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="calls of each (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="cores of the call that parses and draws (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if (
        any(n % 2 or n < 0 for n in (*options.runs, options.rerun, options.redraw, options.a_deployment))
        or options.a_deployment < 2
    ):
        parser.error("--runs, --rerun, --redraw and --a-deployment are even numbers: each level has two repeats")

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    result: dict[str, Any] = {"dry_runs": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_project(folder)
        for runs in sorted(options.runs):
            write_study(folder, runs, options.a_deployment)
            say(f"dry runs of {runs}")
            medians = median(snakemake(folder, "--dry-run") for _ in range(options.repeats))
            result["dry_runs"].append({"runs": runs, **medians})
        growth(result["dry_runs"])
        if options.rerun:
            plan = write_study(folder, options.rerun, options.a_deployment)
            say(f"making {options.rerun} runs")
            fill_store(plan, folder, series=350)
            say("placing, parsing and drawing them once")
            first = snakemake(folder, cores=options.cores)
            own_s = float((folder / "snakemake.cpu").read_text())
            say("again, with nothing to do")
            again = median(snakemake(folder) for _ in range(options.repeats))
            if "Nothing to be done" not in (folder / "snakemake.out").read_text():
                raise RuntimeError(f"the rerun found something to do:\n{(folder / 'snakemake.out').read_text()[-3000:]}")
            result["rerun"] = {"runs": options.rerun, **again}
            result["first"] = {
                "cores": options.cores,
                "wall_s": round(first.wall_s, 1),
                "cpu_s": round(first.cpu_s, 1),
                "own_cpu_s": round(own_s, 1),
            }
    if options.redraw:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            copy_project(folder)
            say(f"making {options.redraw} runs, and drawing them for other peaks")
            result["redraw"] = {"runs": options.redraw, **median(redraws(folder, options.redraw, options.repeats))}
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(table(result))


def table(result: dict[str, Any]) -> str:
    """The result to read."""
    lines = [
        "| | seconds (range) | CPU s | peak MiB | exponent | CPU ms a run more | KiB a run more |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    rows = [(f"dry run of {row['runs']:,}", row) for row in result["dry_runs"]]
    if rerun := result.get("rerun"):
        rows.append((f"rerun of {rerun['runs']:,}, nothing to do", rerun))
    if redraw := result.get("redraw"):
        rows.append((f"{redraw['runs']:,} drawn for another peak", redraw))
    for what, row in rows:
        grown = " | ".join(str(row.get(key, "–")) for key in ("exponent", "ms_a_run", "kib_a_run"))
        lines.append(
            f"| {what} | {row['wall_s']} ({row['fastest_s']}–{row['slowest_s']}) | {row['cpu_s']} | {row['peak_mib']:.0f} | {grown} |"
        )
    if first := result.get("first"):
        lines.append(
            f"\nThe first call placed, parsed and drew them in {first['wall_s']} s on {first['cores']} cores, "
            f"with {first['cpu_s']} s of CPU, {first['own_cpu_s']} s of them Snakemake's own."
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

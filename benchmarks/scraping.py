"""What the scraper costs a real server: closed loops with and without it in turn, each as the workflow makes a run, on one server.

The server is started from a deployment's resolved launch: from the project's root, after `make figures`.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.load.client import Load
from bench.load.target import Target
from bench.measure.recording import Recording, record_run
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.runs.run import RunHeader
from bench.servers.server import Server
from bench.study.config import Measurement
from bench.study.read import load_workload

KINDS = ("without", "with")


def found_launch(path: Path | None) -> Launch:
    """The launch in `path`; without one, the first that the workflow resolved.

    Raises:
        BenchError: there is none, or it is of a server that is not ours.
    """
    path = path or min(Path().glob(Paths.LAUNCH.format(deployment="*")), default=None)
    if path is None or not path.is_file():
        raise BenchError(f"{path or 'results/deployments/*/launch.json'}: no such file; run `make figures` first.")
    launch = read(Launch, path)
    if launch.argv is None or launch.served_name is None:
        raise BenchError(f"{path}: not the launch of a server that is started here; run `make figures` first.")
    return launch


def measure(launch: Launch, options: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Output tokens/s of every run of each kind, in pairs; a run's records lie in `folder`, below its kind and pair.

    Raises:
        BenchError: the server would not start, or requests failed: what is left of such a run cannot be compared.
    """
    settings, begin = Measurement(), time.monotonic()
    tokens_per_s: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:5.0f} s  {text}", file=sys.stderr, flush=True)

    log, timeout_s = folder / "server.log", settings.ready_timeout_s
    server = Server(launch, cores=options.cores, workers=1, log=log, ready_timeout_s=timeout_s, say=say)
    shape = {"arrival": "closed", "num_requests": options.num_requests, "prompt_tokens": 128, "output_tokens": 64}
    workload = load_workload(shape, source="load")
    header = RunHeader(digest="", definition={"workload": "load", "axis": workload.axis, "level": options.concurrency})

    def run(kind: str, name: str) -> Recording:
        place = folder / kind / name
        place.mkdir(parents=True)
        load = Load(workload, options.concurrency, seed=f"{kind}/{name}", vocabulary=launch.vocabulary or Load.vocabulary)
        interval_s = settings.scrape_interval_s if kind == "with" else None  # None: no scraper
        done = record_run(target, load, place, header=header, scrape_interval_s=interval_s)
        if done.failed:
            raise BenchError(f"{done.failed} of {len(done.requests)} requests failed. {server.last_words()}")
        return done

    say(f"starting {launch.deployment}")
    with server:
        target = Target(server.base_url, launch.served_name or launch.deployment)
        say(f"ready after {server.ready_s:.0f} s; a run to warm up, then runs with the scraper and without it")
        run("with", "warm-up")
        for pair in range(options.pairs):
            # ABBA: what drifts in a line favours each kind in turn.
            for kind in KINDS if pair % 2 == 0 else KINDS[::-1]:
                done = run(kind, str(pair))
                tokens_per_s[kind].append(done.tokens_per_s)
                say(f"pair {pair + 1}/{options.pairs}, {kind:>7} it: {done.tokens_per_s:.1f} tokens/s, {done.duration_s:.1f} s")
    return tokens_per_s


def compare(without: Sequence[float], scraped: Sequence[float]) -> dict[str, Any]:
    """Throughputs (tokens/s) of paired runs beside each other; differences are those of a pair, in % of its run without."""
    from bench.statistics.textbook import student_t  # noqa: PLC0415 - Polars' threads are no business of the measurement

    ratios = [b / a for a, b in zip(without, scraped, strict=True)]
    differences = [100 * (ratio - 1) for ratio in ratios]
    mean = statistics.mean(differences)
    half = student_t(len(ratios) - 1) * statistics.stdev(differences) / len(ratios) ** 0.5
    middle = statistics.median(without)
    return {
        "tokens_per_s_without": round(middle, 2),
        "tokens_per_s_with": round(statistics.median(scraped), 2),
        "ratio_median": round(statistics.median(ratios), 4),
        "difference_percent": round(mean, 2),
        "difference_interval_percent": [round(mean - half, 2), round(mean + half, 2)],
        "spread_without_percent": round(100 * (max(without) - min(without)) / middle, 2),
        "inside_noise": abs(mean) <= half,
    }


def count_scrapes(folder: Path) -> dict[str, int]:
    """Scrapes of all measured runs, and how many failed: a scraper that got nothing would cost nothing."""
    from bench.parse.scrapes import read_scrapes  # noqa: PLC0415 - as above

    lines = [line for path in folder.glob("with/[0-9]*/telemetry.jsonl.gz") for line in read_scrapes(path)]
    return {"scrapes": len(lines), "scrapes_failed": sum("error" in line for line in lines)}


def main() -> None:
    """Pairs of runs, and whether what they differ by is more than noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launch", type=Path, metavar="FILE", help="a launch.json (default: the first of results/deployments)")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of runs, an even number (default: %(default)s)")
    # Half of what the default study's smallest KV cache holds, so that no preemption adds noise; whole waves of 8.
    parser.add_argument("--concurrency", type=int, default=8, help="requests in flight (default: %(default)s)")
    parser.add_argument("--num-requests", type=int, default=40, help="requests of a run: some 8 s (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=1, help="cores of a CPU engine's worker (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if options.pairs < 2 or options.pairs % 2 or not 1 <= options.concurrency <= options.num_requests:
        parser.error("--pairs is even, 2 or more; --concurrency is 1 or more, and --num-requests at least as many")
    for number in (signal.SIGTERM, signal.SIGINT):  # in order: the server is ended, the folder removed
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with tempfile.TemporaryDirectory() as name:
            runs = measure(found_launch(options.launch), options, Path(name))
            result = {**compare(*(runs[kind] for kind in KINDS)), **count_scrapes(Path(name)), "runs_tokens_per_s": runs}
    except BenchError as error:
        sys.exit(f"scraping: {error}")
    if options.json:
        print(json.dumps(result, indent=2))
        return
    low, high = result["difference_interval_percent"]
    verdict = "inside the noise: the interval holds 0" if result["inside_noise"] else "more than noise: the interval lacks 0"
    print(
        f"medians: {result['tokens_per_s_without']} tokens/s without the scraper, {result['tokens_per_s_with']} with it; "
        f"with ÷ without, median of {options.pairs} pairs: {result['ratio_median']}\n"
        f"mean difference: {result['difference_percent']:+} %, 95 % interval {low:+} to {high:+} %: {verdict}\n"
        f"spread of the runs without: {result['spread_without_percent']} %; "
        f"{result['scrapes']} scrapes, {result['scrapes_failed']} failed"
    )


if __name__ == "__main__":
    main()

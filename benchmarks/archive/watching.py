"""What `bench watch` costs a measurement: the same load on a server of known truth, with and without somebody who watches, in turn.

The server answers exactly as planned (benchmarks/client), the scraper scrapes as many series as a vLLM exposes, and `bench watch` draws
in a terminal of its own, once a second, nothing pinned: where cores are few, all compete.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pty
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from bench.load.client import Load, PreparedLoad
from bench.load.target import Target
from bench.records.files import write_record
from bench.records.progress import RunUnderWay, SessionProgress
from bench.records.request import RequestRecord
from bench.records.run import TELEMETRY
from bench.study import Paths, load_workload
from bench.telemetry.scraper import scraping
from benchmarks.client.server import MODEL
from benchmarks.client.trial import serving
from benchmarks.scraper import serve

KINDS = ("without", "with")
_SERIES, _INTERVAL_S = 350, 0.2


def session(folder: Path, load: Load) -> SessionProgress:
    """A session of this process that measures a run in `folder`."""
    now = time.time()
    run = RunUnderWay(
        run="paced", number=1, workload="paced", axis="request_rate", level=load.level, round=1, requests=1, output_tokens=16,
        since=now, expected_s=load.workload.duration_s, folder=str(folder),
    )  # fmt: skip
    return SessionProgress(
        study="What watching costs", deployment="truth", engine="truth", session=1, place=1, sessions=1, host=os.uname().nodename,
        pid=os.getpid(), process_started=psutil.Process().create_time(), state="measuring", since=now, began=now, written=now, runs=1,
        study_runs=1, study_done=0, run=run, left_s=load.workload.duration_s,
    )  # fmt: skip


@contextmanager
def watching(root: Path) -> Iterator[list[float]]:
    """`bench watch` in a terminal of its own while the context is open; afterwards what it took: CPU s to start, and share of a core
    from then on.
    """
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).parent / "bench"), "watch"]
    process = subprocess.Popen(command, cwd=root, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    shown = bytearray()
    drawn = threading.Event()

    def read() -> None:
        while True:
            try:
                shown.extend(os.read(ours, 65536))
            except OSError:
                return
            if b"measuring run" in shown:
                drawn.set()

    threading.Thread(target=read, daemon=True).start()
    took: list[float] = []
    try:
        if not drawn.wait(120):
            sys.exit(f"watching: bench watch showed no session within 120 s: {shown.decode(errors='replace')[-500:]}")
        watcher = psutil.Process(process.pid)
        start, begin = sum(watcher.cpu_times()[:2]), time.monotonic()
        yield took
        took += [start, (sum(watcher.cpu_times()[:2]) - start) / (time.monotonic() - begin)]
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def delays(records: Sequence[RequestRecord]) -> dict[str, float]:
    """What the client measured (ms).

    Raises:
        SystemExit: a request failed.
    """
    if failed := sum(record.outcome != "ok" for record in records):
        sys.exit(f"watching: {failed} of {len(records)} requests failed")
    values = {
        "TTFT": [record.ttft_s for record in records if record.ttft_s is not None],
        "ITL": [b - a for record in records for a, b in zip(record.token_times_s, record.token_times_s[1:], strict=False)],
        "sent late": [r.sent_s - r.scheduled_s for r in records if r.sent_s is not None and r.scheduled_s is not None],
    }
    told = {}
    for name, each in values.items():
        centiles = statistics.quantiles(each, n=100, method="inclusive")
        told |= {f"{name} P50": 1000 * centiles[49], f"{name} P99": 1000 * centiles[98]}
    return told


def measure(pairs: int, rate: float, duration_s: float) -> tuple[dict[str, list[dict[str, float]]], list[list[float]]]:
    """Each run's numbers by kind, in pairs; and what each watcher took."""
    shape = {"arrival": "constant", "duration_s": duration_s, "prompt_tokens": 64, "output_tokens": 16}
    load = Load(load_workload(shape, source="load"), rate, seed="")
    ours, theirs = multiprocessing.Pipe()
    exposing = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, _SERIES), daemon=True)
    exposing.start()
    url = f"http://127.0.0.1:{ours.recv()}/busy"
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    took = []

    def run(target: Target, root: Path, seed: str) -> dict[str, float]:
        folder = root / seed
        folder.mkdir()
        write_record(session(folder, load), root / Paths.PROGRESS.format(deployment="truth"))
        with PreparedLoad(target, replace(load, seed=seed)).waiting() as send, scraping([url], _INTERVAL_S, folder / TELEMETRY):
            return delays(send().records)

    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    with tempfile.TemporaryDirectory() as name, serving(cores) as server:
        root, target = Path(name), Target(server.url, MODEL)
        (root / Paths.PROGRESS.format(deployment="truth")).parent.mkdir(parents=True)
        run(target, root, "warm-up")
        for pair in range(pairs):
            # ABBA: what drifts in a line favours each kind in turn.
            for kind in KINDS if pair % 2 == 0 else KINDS[::-1]:
                if kind == "with":
                    with watching(root) as its:
                        found[kind].append(run(target, root, f"{pair}-{kind}"))
                    took.append(its)
                else:
                    found[kind].append(run(target, root, f"{pair}-{kind}"))
                last = found[kind][-1]
                print(
                    f"pair {pair + 1}/{pairs}, {kind:>7}: "
                    + ", ".join(f"{name} {value:.3f} ms" for name, value in last.items()),
                    file=sys.stderr,
                    flush=True,
                )
    exposing.terminate()
    return found, took


def compare(found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Each number's mean difference over pairs (ms) with its 95 % interval."""
    from bench.statistics import student_t  # noqa: PLC0415 - SciPy's threads are no business of the measurement

    result = {}
    for name in found["with"][0]:
        pairs = [(a[name], b[name]) for a, b in zip(*(found[kind] for kind in KINDS), strict=True)]
        differences = [b - a for a, b in pairs]
        mean = statistics.mean(differences)
        half = student_t(len(pairs) - 1) * statistics.stdev(differences) / len(pairs) ** 0.5
        result[name] = {
            "without_ms": round(statistics.median(a for a, _ in pairs), 4),
            "with_ms": round(statistics.median(b for _, b in pairs), 4),
            "difference_ms": round(mean, 4),
            "interval_ms": [round(mean - half, 4), round(mean + half, 4)],
            "inside_noise": abs(mean) <= half,
        }
    return result


def main() -> None:
    """Pairs of runs, and what they differ by."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10, help="pairs of runs, an even number (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=40.0, help="requests a second (default: %(default)s)")
    parser.add_argument("--duration", type=float, default=10.0, help="seconds of a run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if options.pairs < 2 or options.pairs % 2:
        parser.error("--pairs is even, 2 or more")
    for number in (signal.SIGTERM, signal.SIGINT):  # in order: servers are ended, the folder removed
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    found, took = measure(options.pairs, options.rate, options.duration)
    watcher = {
        "start_cpu_s": round(statistics.median(start for start, _ in took), 3),
        "core_share": round(statistics.median(share for _, share in took), 4),
    }
    result = {"differences": compare(found), "watcher": watcher, "runs": found}
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print("| ms | without | with | mean difference | 95 % interval | |\n|---|--:|--:|--:|--:|---|")
    for name, one in result["differences"].items():
        low, high = one["interval_ms"]
        noise = "inside the noise" if one["inside_noise"] else "more than noise"
        print(
            f"| {name} | {one['without_ms']:.3f} | {one['with_ms']:.3f} | {one['difference_ms']:+.3f} "
            f"| {low:+.3f} to {high:+.3f} | {noise} |"
        )
    print(f"\nbench watch: {watcher['start_cpu_s']} s of CPU to start, then {watcher['core_share']:.1%} of a core")


if __name__ == "__main__":
    main()

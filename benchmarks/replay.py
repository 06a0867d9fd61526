"""How long a replay takes and what memory it needs, as traffic grows.

    python -m benchmarks.replay                        # 1,000 to 300,000 requests; a minute or two

A planted server gets Poisson traffic at 80 % and at 120 % of what it carries. Each size runs in a process of its own, so that its peak
memory is its own; times are medians of three.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from statistics import median

import numpy as np

from bench.predict.limits import Limits
from bench.predict.replay import replay
from bench.predict.step_time import StepTime
from bench.workloads.schedule import PlannedRequest

STEP = StepTime(0.0, 0.008, 3e-4, (64.0,), (2e-4, 1.5e-4), 4e-7, 2e-9)
LIMITS = Limits(tokens=2048, sequences=256, blocks=2000, block_size=16)
PROMPT, OUTPUT = (50, 450), (20, 180)


def traffic(count: int, rate: float) -> list[PlannedRequest]:
    """Poisson arrivals of requests of uniform lengths."""
    random = np.random.default_rng(1)
    due = np.cumsum(random.exponential(1 / rate, count))
    prompts, outputs = (random.integers(*lengths, count) for lengths in (PROMPT, OUTPUT))
    return [
        PlannedRequest(i, i, int(p), int(o), float(d)) for i, (p, o, d) in enumerate(zip(prompts, outputs, due, strict=True))
    ]


def carried() -> float:
    """Requests/s of the server where requests never lack."""
    requests = replay(traffic(2000, 1000.0), LIMITS, STEP).requests
    return requests.height / float(requests["end_s"].max())  # type: ignore[arg-type]


def timed(count: int, rate: float) -> tuple[float, float, float]:
    """Seconds of a replay, of traffic in it, and peak memory (MiB)."""
    requests = traffic(count, rate)
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        found = replay(requests, LIMITS, STEP)
        took.append(time.perf_counter() - begin)
    return median(took), float(found.requests["end_s"].max()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=300_000, help="requests of the largest replay")
    most = parser.parse_args().most
    rate = carried()
    print(f"The server carries {rate:.1f} requests/s.\n")
    print("| load | requests | traffic | replay | requests/s replayed | peak memory |\n|---|--:|--:|--:|--:|--:|")
    for share in (0.8, 1.2):
        for count in (1000, 10_000, 100_000, 300_000):
            if count > most:
                continue
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, span, memory = pool.apply(timed, (count, share * rate))
            row = (
                f"{100 * share:.0f} %",
                f"{count:,}",
                f"{span / 60:.1f} min",
                f"{seconds:.2f} s",
                f"{count / seconds:,.0f}",
                f"{memory:,.0f} MiB",
            )
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()

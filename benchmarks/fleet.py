"""How far the highest rate of an instance is off, as `bench fleet` predicts it.

    python -m benchmarks.fleet        # 40 engines whose truth is planted; a quarter of an hour on two cores

Of each planted engine a model is calibrated on bursts and closed loops. It is asked for the highest Poisson rate within an SLO that
half to nearly all of what the engine carries would meet; the truth is the same of its true step times over 20,000 requests.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median

import numpy as np

from bench.predict.calibrate import Calibrated, calibrate, members
from bench.predict.carried import carried, rates_carried, within
from bench.predict.fleet import replay
from bench.predict.study import self_judged
from bench.study.read import load_workload
from bench.study.slo import Slo
from bench.workloads.schedule import schedule
from bench.workloads.workload import Workload
from benchmarks.predict import Engine, drawn_engine, drawn_requests

_TRUTH_REQUESTS = 20_000


def workload_of(engine: Engine) -> Workload:
    """Its usual requests, at random moments."""
    lengths = [{"distribution": "uniform", "min": int(0.6 * n), "max": int(1.4 * n)} for n in (engine.prompt, engine.output)]
    content = {"arrival": "poisson", "num_requests": 1, "prompt_tokens": lengths[0], "output_tokens": lengths[1]}
    return load_workload(content, source="benchmarks.fleet")


def slos_of(engine: Engine, workload: Workload, share: float) -> list[Slo]:
    """A P95 of TTFT that a share of what it carries reaches."""
    many = workload.model_copy(update={"num_requests": 4000})
    way = {"overhead_s": engine.path_s, "wake_s": engine.wake_s}
    whole = replay(schedule(many, 1e6, "whole"), engine.limits, engine.step, **way).requests
    rate = share * many.num_requests / float(whole["end_s"].max())  # type: ignore[arg-type, operator]
    table = replay(schedule(many, rate, "limit"), engine.limits, engine.step, **way).requests
    reached = (table["first_token_s"] - table["sent_s"]).quantile(0.95)
    return [Slo("ttft", "p95", float(reached or 1.0))]


def truly_carried(engine: Engine, workload: Workload, slos: Sequence[Slo]) -> float:
    """The highest rate within the SLOs by its true step times, with the noise of its steps."""
    many = workload.model_copy(update={"num_requests": _TRUTH_REQUESTS})

    def meets(rate: float) -> bool:
        noise, way = engine.step_noise, {"overhead_s": engine.path_s, "wake_s": engine.wake_s}
        table = replay(schedule(many, rate, "truth"), engine.limits, engine.step, noise=noise, **way).requests.sort("sent_s")
        table = table.slice(_TRUTH_REQUESTS // 10)
        return all(float(within(table, slo).mean() or 0.0) >= slo.share for slo in slos)  # type: ignore[arg-type]

    low, high = 1e-3, 1e-3
    while meets(high):
        low, high = high, 2 * high
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def judge(seed: int) -> tuple[float, float, bool, float, bool] | None:
    """Share of what is carried at the SLO, error, whether the interval holds, its half width, whether it is refused."""
    engine = drawn_engine(seed)
    share = float(np.random.default_rng(seed + 1).uniform(0.5, 0.9))
    model = calibrated(engine, seed)
    if model is None:
        return None
    workload = workload_of(engine)
    slos = slos_of(engine, workload, share)
    found = carried(model, workload, slos, rates_carried(members(model, count=20), workload, slos), engine.limits)
    truth = truly_carried(engine, workload, slos)
    held = found.rate.low <= truth <= found.rate.high
    width = (found.rate.high - found.rate.low) / (found.rate.high + found.rate.low)
    return share, found.rate.value / truth - 1, held, width, bool(found.at.doubts)


def calibrated(engine: Engine, seed: int) -> Calibrated | None:
    """A model of an engine, of bursts and closed loops."""
    many = engine.limits.sequences
    sizes, loops = (1, many // 2, 2 * many), (max(2, many // 4), many)
    training = [
        engine.run(drawn_requests(engine, n, seed + n), held=None, seed=seed + n, workload="burst", level=n) for n in sizes
    ]
    training += [
        engine.run(drawn_requests(engine, 10 * n, seed + 100 + n), held=n, seed=seed + 100 + n, workload="chat", level=n)
        for n in loops
    ]
    fitted = calibrate(training, engine.limits)
    return None if fitted is None else self_judged(fitted, training)


def planted(engines: int, seed: int) -> None:
    """Judge engines and print a table."""
    seeds = [10_000 * seed + 17 * number for number in range(engines)]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        rows = [row for row in pool.map(judge, seeds) if row is not None]
    print("| SLO at a share of what is carried | error | 90 % interval holds | its half width, median | n | refused |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, low, high in (("all", 0.0, 1.0), ("50 to 70 %", 0.5, 0.7), ("70 to 90 %", 0.7, 0.9)):
        of = [row for row in rows if low <= row[0] < high and not row[4]]
        error, held = np.mean([abs(row[1]) for row in of]), np.mean([row[2] for row in of])
        refused = sum(row[4] for row in rows if low <= row[0] < high)
        print(f"| {name} | {error:.1%} | {held:.0%} | {median(row[3] for row in of):.1%} | {len(of)} | {refused} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    planted(options.engines, options.seed)


if __name__ == "__main__":
    main()

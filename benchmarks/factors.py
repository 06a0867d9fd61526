"""How often the factor analysis finds what was planted: `python -m benchmarks.factors`.

Made studies of 144 runs (three batch sizes × three input × two output lengths × two models × one and two devices, twice each) with
known effects: TTFT grows with batch size × input length, TTLT with output length above all, throughput with batch size, and the number
of devices does nothing. Errors are lognormal.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random

import polars as pl

from bench.analysis.factors import importances, with_metrics

FIRST = {"TTFT (s)": {"batch size", "input length"}, "TTLT (s)": {"output length"}, "throughput (tokens/s)": {"batch size"}}


def planted(seed: int, noise: float) -> pl.DataFrame:
    """A made study: summary rows, with errors of `noise` (standard deviation of the logarithm)."""
    draw = random.Random(seed)  # noqa: S311 - errors, no secret
    rows = []
    for size, batch, prompt, output, devices, repeat in itertools.product(
        (1e7, 6e7), (1, 4, 16), (32, 128, 512), (16, 64), (1, 2), (1, 2)
    ):
        ttft = 1e-5 * prompt * batch * math.sqrt(size / 1e7) * math.exp(draw.gauss(0, noise))
        step = 0.01 * (size / 1e7) ** 0.3 * (1 + 0.05 * batch)
        ttlt = (ttft + output * step) * math.exp(draw.gauss(0, noise))
        rows.append(
            {
                "valid": True,
                "axis": "concurrency",
                "family": "crossed",
                "workload": f"crossed-p{prompt}-o{output}",
                "model": f"m{size:.0e}",
                "parameters": int(size),
                "level": float(batch),
                "prompt_fixed": prompt,
                "output_fixed": output,
                "tensor_parallel": devices,
                "repeat": repeat,
                "duration_s": ttlt,
                "throughput_tokens_per_s": batch * output / ttlt,
                "ttft_mean_s": ttft,
            }
        )
    return pl.DataFrame(rows)


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10, help="made studies for each noise (default: %(default)s)")
    options = parser.parse_args()
    print("noise | first factor is the planted one | 0 lies in the interval of the factor without effect | mean R²")
    for noise in (0.02, 0.05, 0.1, 0.2):
        found, without, scores = [], [], []
        for seed in range(options.draws):
            told = importances(with_metrics(planted(seed, noise)))
            for metric, first in FIRST.items():
                rows = told.filter(pl.col("metric") == metric).sort("importance", descending=True)
                found.append(rows["factor"][0] in first)
                idle = rows.row(by_predicate=pl.col("factor") == "devices", named=True)
                without.append(idle["low"] <= 0 <= idle["high"])
                scores.append(idle["score"])
        n = len(found)
        print(f"{noise:.0%} | {sum(found)} of {n} | {sum(without)} of {n} | {sum(scores) / n:.3f}", flush=True)


if __name__ == "__main__":
    main()

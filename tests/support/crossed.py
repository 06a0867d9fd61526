"""A crossed study whose effects are planted."""

from __future__ import annotations

import itertools
import math
import random

import polars as pl

from bench.findings.factors import FACTORS
from bench.runs.summary import complete

BATCHES, PROMPTS, OUTPUTS = (1, 4, 16), (32, 128, 512), (16, 64)


def planted(
    seed: int,
    noise: float,
    *,
    batches: tuple[int, ...] = BATCHES,
    prompts: tuple[int, ...] = PROMPTS,
    outputs: tuple[int, ...] = OUTPUTS,
    repeats: int = 2,
) -> pl.DataFrame:
    """A made study: summary rows, with errors of `noise` (standard deviation of the logarithm)."""
    draw = random.Random(seed)
    rows = []
    for size, batch, prompt, output, devices, repeat in itertools.product(
        (1e7, 6e7), batches, prompts, outputs, (1, 2), range(1, repeats + 1)
    ):
        ttft = 1e-5 * prompt * batch * math.sqrt(size / 1e7) * math.exp(draw.gauss(0, noise))
        step = 0.01 * (size / 1e7) ** 0.3 * (1 + 0.05 * batch)
        ttlt = (ttft + output * step) * math.exp(draw.gauss(0, noise))
        rows.append(
            {
                "valid": True,
                "axis": "concurrency",
                "arrival": "burst",
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
    return complete(pl.DataFrame(rows))


def ttft_importances(runs: pl.DataFrame, noise: float) -> dict[str, float]:
    """What shuffling does to R² of log TTFT where it is known exactly: twice a factor's share of the variance, as it is their sum.

    Args:
        runs: of `planted`. noise: of one run; repeats are averaged.
    """
    parts = {
        "batch size": runs["level"].log(),
        "input length": runs["prompt_fixed"].log(),
        "model": runs["parameters"].log() / 2,
    }
    variances = {factor: float(values.var(ddof=0)) for factor, values in parts.items()}  # type: ignore[arg-type]
    whole = sum(variances.values()) + noise**2 / runs["repeat"].n_unique()
    return {factor: 2 * variances.get(factor, 0.0) / whole for factor in FACTORS.values()}

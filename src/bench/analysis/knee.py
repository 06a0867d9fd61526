"""The knee of a curve: where the tail of TTFT leaves the median while throughput flattens."""

from __future__ import annotations

import math

import polars as pl

from bench.analysis.level_values import level_values

# P99 ÷ P50 from which a latency's tail has left its median; convention: TTFT of a burst that is computed in order has 2
APART = 3.0
FLATTENS = 0.5  # share of proportional throughput below which added load flattens; convention
_COLUMNS = ("ttft_p50_s", "ttft_p99_s", "throughput_requests_per_s")


def knees(runs: pl.DataFrame) -> dict[tuple[str, str], float]:
    """The knee of each curve that has one, by deployment and workload (in the load's unit).

    It is the lowest level from which on TTFT's P99 is three times its P50 or more, and at which the load above that of the best lower
    level brought less than half of its share of requests/s: ln(throughput ratio) ÷ ln(load ratio) < 0.5, all by `level_values`. A
    percentile is infinite where that share of requests failed, and such a tail has left its median too.

    Args:
        runs: summary rows (`deployment`, `workload`, `level`, `valid`, `ttft_p50_s`, `ttft_p99_s`, `throughput_requests_per_s`).
    """
    levels = level_values(runs, _COLUMNS).filter(pl.all_horizontal(pl.col(_COLUMNS) > 0)).sort("level")
    found = {}
    for (deployment, workload), rows in levels.group_by("deployment", "workload"):
        load, rate = rows["level"].to_list(), rows["throughput_requests_per_s"].to_list()
        apart = (rows["ttft_p99_s"] >= APART * rows["ttft_p50_s"]).to_list()
        for i in range(1, len(load)):
            best = max(range(i), key=rate.__getitem__)
            flattens = math.log(rate[i] / rate[best]) < FLATTENS * math.log(load[i] / load[best])
            if all(apart[i:]) and flattens:
                found[str(deployment), str(workload)] = load[i]
                break
    return found

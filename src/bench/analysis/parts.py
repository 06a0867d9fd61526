"""What a comparison judges of a metric: each level, regions of loads, how the effect changes with the load, and all levels together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.analysis.regions import FEWEST_LEVELS
from bench.statistics import FEWEST_POINTS

Floats = npt.NDArray[np.float64]
REGIONS = ("low loads", "middle loads", "high loads")


@dataclass(frozen=True)
class Part:
    """What is judged: a level, a region, a trend or all together. Attributes: weights: of each configuration's effect."""

    scope: str
    weights: Floats
    workload: str | None = None
    axis: str | None = None
    region: str | None = None


def parts_of(configurations: pl.DataFrame, there: npt.NDArray[np.bool_]) -> list[Part]:
    """What is judged of a metric: only what it has a value of.

    Args:
        configurations: `at` (0 on), `workload`, `axis`, `level`. there: whether each has a value.
    """
    unit = np.eye(len(there))
    rows = configurations.rows(named=True)
    parts = [Part("level", unit[row["at"]], row["workload"], row["axis"]) for row in rows if there[row["at"]]]
    for (workload, axis), curve in configurations.group_by("workload", "axis", maintain_order=True):
        ordered = curve.sort("level")
        at, load = ordered["at"].to_numpy(), ordered["level"].to_numpy()
        if len(at) >= FEWEST_LEVELS:
            for region, mine in zip(REGIONS, np.array_split(at, len(REGIONS)), strict=True):
                if there[mine].any():
                    parts.append(Part("region", _mean(mine[there[mine]], len(there)), str(workload), str(axis), region))
        at, load = at[there[at]], load[there[at]]
        if len(at) >= FEWEST_POINTS and load[0] > 0:
            x = np.log2(load) - np.log2(load).mean()
            weights = np.zeros(len(there))
            weights[at] = x / (x**2).sum()
            parts.append(Part("trend", weights, str(workload), str(axis)))
    return [*parts, Part("all", _mean(np.flatnonzero(there), len(there)))]


def _mean(at: npt.NDArray[np.integer], levels: int) -> Floats:
    weights = np.zeros(levels)
    weights[at] = 1 / len(at)
    return weights

"""The way from the client to a busy engine, and the schedule, by the steps that prompts went into that came while it worked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.statistics.textbook import TAIL, rarer_by_chance

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

LEAST_PATH_S = (
    1e-4  # shortest way from the client to the engine and back (s); convention: a step that follows an answer has begun by then
)
_PATH_SLACK = 0.02  # share of the bounds that may be broken beyond the best value, plus one; tuned: benchmarks.predict


@dataclass(frozen=True)
class Against:
    """What stands against a schedule, or a budget of a step.

    Attributes:
        prompts: that went into another step than would follow from any one way to the engine. of: those that show one, whether it
            schedules ahead or not.
    """

    prompts: int
    of: int

    def fewer_than(self, other: Against) -> bool:
        """Whether its share is lower by more than chance, at 95 % (Fisher's exact test). Where either has no prompts it is not."""
        if self.prompts * other.of >= other.prompts * self.of:
            return False
        return rarer_by_chance(self.prompts, self.of, other.prompts, other.of) <= TAIL


def against(runs: Sequence[pl.DataFrame]) -> tuple[Against, Against]:
    """What stands against it that the engine schedules ahead as its limits say, and that it does the opposite. Args: runs: of
    `intervals`.
    """
    # The wrong schedule takes prompts that came early for some that waited, and would be rid of what contradicts it.
    shown = pl.col("path_most_s").is_not_nan() & pl.col("other_path_most_s").is_not_nan()
    both = [run.filter(shown) for run in runs]
    found = []
    for name in ("path", "other_path"):
        ways, broken, number = _ways(both, name)
        found.append(Against(int(broken[ways >= LEAST_PATH_S].min()), number))
    return found[0], found[1]


def way_to_engine(runs: Sequence[pl.DataFrame]) -> tuple[float, float] | None:
    """The ways to the engine (s), from and to, that break the fewest bounds, but for a few more; None without bounds."""
    ways, broken, number = _ways(runs, "path")
    if not number:
        return None
    good = ways[broken <= broken.min() + 1 + _PATH_SLACK * number]
    return float(good[0]), float(good[-1])


def _ways(runs: Sequence[pl.DataFrame], name: str) -> tuple[Floats, Counts, int]:
    """Possible ways to the engine (s), the ends of what bounds allow; how many bounds each breaks; and the number of bounds."""
    bounds = pl.concat([run.select(f"{name}_above_s", f"{name}_most_s").drop_nans() for run in runs])
    above, most = (np.sort(bounds[column].to_numpy()) for column in bounds.columns)
    ends = np.concatenate([[LEAST_PATH_S], np.nextafter(above, math.inf), most])
    ways = np.unique(np.maximum(0.0, ends))
    # As many as say "more than this" or "less than this" of each way.
    broken: Counts = bounds.height - np.searchsorted(above, ways) + np.searchsorted(most, ways)
    return ways, broken, bounds.height

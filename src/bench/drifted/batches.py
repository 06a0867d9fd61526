"""Ratios of what servers counted, with errors from blocks of the time.

Requests of one moment are alike, so that thousands of them are fewer observations than they seem: the time is cut into blocks, and the
error of a ratio of sums follows from how far the blocks lie apart (batch means; Law, Simulation Modeling and Analysis, 2015, 9.5.3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from bench.statistics import student_t

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

BLOCKS = 12  # blocks that a time is cut into; convention: Student's t is 2.2 for so many
FEWEST_BLOCKS = 4  # fewest blocks with a request that show how far they differ; derived: Student's t is 3.2 for four


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums, its standard error, and the degrees of freedom of that."""

    value: float
    error: float
    freedom: float

    @property
    def relative(self) -> float:
        """The standard error of its logarithm."""
        return self.error / self.value if self.value > 0 else math.inf


def in_blocks(between: pl.DataFrame, begin: float, seconds: float) -> pl.DataFrame:
    """The rows of `bench.drifted.served.served`, with their `block` and `held`, the time that requests were in flight (s)."""
    return between.filter(~pl.col("restarted")).with_columns(
        block=((pl.col("at_s") - begin) * BLOCKS / seconds).floor().clip(0, BLOCKS - 1).cast(pl.Int32),
        held=pl.col("in_flight") * pl.col("seconds"),
    )


def sums(blocks: pl.DataFrame, above: str, below: str) -> tuple[Floats, Floats]:
    """Both sums by block, where both are known."""
    whole = blocks.drop_nulls([above, below]).group_by("block").agg(pl.col(above, below).sum()).sort("block")
    return whole[above].to_numpy().astype(float), whole[below].to_numpy().astype(float)


def ratio(above: Floats, below: Floats) -> Ratio | None:
    """The ratio of two sums over blocks; None below four blocks that have any of what is counted.

    Neighbouring blocks may be alike still: pairs of them are looked at too, and the wider error counts.
    """
    there = below > 0
    above, below = above[there], below[there]
    if len(below) < FEWEST_BLOCKS:
        return None
    value = float(above.sum() / below.sum())
    off = above - value * below
    found = []
    for each in (off, off[: len(off) // 2 * 2].reshape(-1, 2).sum(axis=1)):
        if (count := len(each)) >= FEWEST_BLOCKS:
            error = math.sqrt(float(each @ each) * count / (count - 1)) / float(below.sum())
            found.append(Ratio(value, error, count - 1))
    return max(found, key=lambda each: each.error * student_t(int(each.freedom)))

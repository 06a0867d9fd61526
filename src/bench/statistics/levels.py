"""A line through levels of a load, and how far repeats of one level lie apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.statistics.textbook import CONFIDENCE, MEDIAN_DEVIATION, TAIL, f_below, student_t

Floats = npt.NDArray[np.float64]
LEAST_NOISE = 0.005  # lowest relative noise of a run: none repeats itself better, whatever a few of them say; convention
# share of the lowest level's throughput a request that is kept up to the equilibrium point; measured: docs/explanation/regions.md:
# with 5 % noise, 90 % is inside the error of one comparison
PROPORTIONAL = 0.8
FLAT = 0.9  # share of any higher level's throughput from which a curve is flat; convention
_DRAWS = 40_000  # draws of the studentized range; measured: docs/explanation/regions.md, within 3 % of scipy's integral


@dataclass(frozen=True)
class Levels:
    """The levels of one curve, and the noise of a run.

    Noise is relative, so all is in logarithms: a run's ln throughput is its level's, plus a normal error that is alike at all levels.

    Attributes:
        load: ascending (requests, requests/s or times). log: mean ln throughput of each level's runs. runs: their number.
        noise: standard deviation of a run's ln throughput, about its relative error. freedom: degrees of freedom behind it.
        noise_of: where it comes from, the first of these that there is: the curve's `repeats`, pooled with those of the workload's
            other curves that vary alike; `others`, the repeats of those curves alone; `neighbours`, how far levels lie off the line
            between the ones beside them.
    """

    load: Floats
    log: Floats
    runs: Floats
    noise: float
    freedom: int
    noise_of: str

    @classmethod
    def of(cls, runs: pl.DataFrame, column: str, others: Iterable[pl.DataFrame] = ()) -> Levels:
        """The levels of the valid runs of one curve.

        Args:
            runs: summary rows of one deployment and workload: `level`, `repeat`, `valid` and `column` (above 0; others are left out).
            others: the same of the workload's other curves.
        """
        known = _known(runs, column)
        levels = known.group_by("level", maintain_order=True).agg(pl.col("log").mean(), runs=pl.len())
        load, log = levels["level"].to_numpy(), levels["log"].to_numpy()
        count = levels["runs"].to_numpy().astype(float)
        neighbours = max(1, (len(load) - 2) // 2)
        squares, freedom, noise_of = *squares_within(known, "log", ("level",), ("repeat",)), "repeats"
        apart = [squares_within(_known(other, column), "log", ("level",), ("repeat",)) for other in others]
        if freedom < neighbours:
            squares, freedom, noise_of = sum(s for s, _ in apart), sum(f for _, f in apart), "others"
        else:
            alike = [each for each in apart if _alike((squares, freedom), each)]
            squares, freedom = squares + sum(s for s, _ in alike), freedom + sum(f for _, f in alike)
        if freedom < neighbours:
            squares, freedom, noise_of = neighbours * _from_neighbours(load, log, count), neighbours, "neighbours"
        return cls(load, log, count, max(LEAST_NOISE, (squares / freedom) ** 0.5), freedom, noise_of)

    def __len__(self) -> int:
        return len(self.load)

    @property
    def errors(self) -> Floats:
        """Standard error of ln throughput at level j less that at level i: [i, j]."""
        return self.noise * np.sqrt(1 / self.runs[:, None] + 1 / self.runs[None, :])

    def more(self, factor: float = 1.0) -> npt.NDArray[np.bool_]:
        """Whether level j gives significantly more than `factor` times the throughput of level i: [i, j].

        All pairs at once: on a flat curve none is in 95 of 100 cases (Tukey and Kramer's comparison).
        """
        sure = studentized_range(len(self), self.freedom) / 2**0.5
        more: npt.NDArray[np.bool_] = self.log[None, :] - self.log[:, None] - np.log(factor) > sure * self.errors
        return more

    @property
    def sure(self) -> float:
        """Standard errors from which one difference is significant (Student's t, two-sided)."""
        return student_t(self.freedom)


def _known(runs: pl.DataFrame, column: str) -> pl.DataFrame:
    return (
        runs.filter(pl.col("valid") & pl.col("level").is_not_null() & (pl.col(column) > 0))
        .select("level", "repeat", log=pl.col(column).cast(pl.Float64).log())
        .sort("level", "repeat")
    )


def squares_within(rows: pl.DataFrame, value: str, cell: Sequence[str], repeat: Sequence[str] = ()) -> tuple[float, int]:
    """Squares of a value about the mean of its cell, and their degrees of freedom: 0 where no cell has several.

    Args:
        cell: columns that tell cells apart. repeat: those that tell repeats apart. A load sweep is repeated as a whole, so what the
            runs of a repeat share (the machine was slower then) says nothing of how cells differ: where each cell has the same
            repeats, it is taken out.
    """
    off = rows.with_columns(off=pl.col(value) - pl.col(value).mean().over(cell))
    cells, repeats = rows.select(cell).n_unique(), rows.select(repeat).n_unique() if repeat else 0
    freedom = rows.height - cells
    if cells > 1 and rows.height == cells * repeats == rows.select(*cell, *repeat).n_unique():
        off = off.with_columns(pl.col("off") - pl.col("off").mean().over(repeat))
        freedom = (cells - 1) * (repeats - 1)
    return float((off["off"] ** 2).sum()), freedom


def _alike(own: tuple[float, int], other: tuple[float, int]) -> bool:
    """Whether two variances, each as squares and degrees of freedom, may be one: their ratio lies within the central 95 % of F."""
    if not (other[1] and own[0] and other[0]):
        return False
    return TAIL <= f_below(other[0] / other[1] * own[1] / own[0], other[1], own[1]) <= 1 - TAIL


def _from_neighbours(load: Floats, log: Floats, runs: Floats) -> float:
    """Variance of a run's ln throughput from how far levels lie off the line between their neighbours.

    The line is that of load ÷ throughput, the time that a token of one request takes: it rises about in line with the load, where
    throughput bends. The median passes over the few levels at which the curve does turn.
    """
    if len(load) < 3:
        return 0.0
    time = load / np.exp(log)
    left = (load[2:] - load[1:-1]) / (load[2:] - load[:-2])
    off = left * time[:-2] + (1 - left) * time[2:] - time[1:-1]
    scale = np.sqrt(
        (left * time[:-2]) ** 2 / runs[:-2] + ((1 - left) * time[2:]) ** 2 / runs[2:] + time[1:-1] ** 2 / runs[1:-1]
    )
    return float(np.median(np.abs(off / scale)) / MEDIAN_DEVIATION) ** 2


@lru_cache
def studentized_range(means: int, freedom: int) -> float:
    """What the range of `means` equal means, in standard deviations estimated with `freedom`, stays below 95 times in 100.

    By 40,000 draws of a fixed seed, within 3 %. scipy's integral is exact, but importing scipy.stats takes a second of CPU.
    """
    random = np.random.default_rng(0)
    ranges = np.ptp(random.standard_normal((_DRAWS, means)), axis=1)
    return float(np.quantile(ranges / np.sqrt(random.chisquare(freedom, _DRAWS) / freedom), CONFIDENCE))

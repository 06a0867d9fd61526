"""Throughput curves whose turning points are known, measured with noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.statistics.levels import FLAT, PROPORTIONAL

__all__ = ["CURVES", "Curve", "ladder", "measured"]

Floats = npt.NDArray[np.float64]
TOP = 96.0  # the highest level (requests)


@dataclass(frozen=True)
class Curve:
    """A curve from 1 to `TOP` requests.

    Attributes:
        throughput: of an array of loads (tokens/s). peak: the load from which it falls; None where it does not.
        flat: whether it has a flat top instead.
    """

    name: str
    throughput: Callable[[Floats], Floats]
    peak: float | None = None
    flat: bool = False

    @cached_property
    def equilibrium(self) -> float | None:
        """The lowest load at which a request gets less than 80 % of what it gets alone; None where that is beyond `TOP`."""
        load = np.linspace(1, TOP, 20_000)
        each = self.throughput(load) / load
        below = np.flatnonzero(each < PROPORTIONAL * each[0])
        return float(load[below[0]]) if len(below) else None

    @cached_property
    def saturation(self) -> float | None:
        """The peak, or the lowest load that has 90 % of a flat top; None where it rises to the end."""
        load = np.linspace(1, TOP, 20_000)
        heights = self.throughput(load)
        return self.peak if not self.flat else float(load[np.flatnonzero(heights >= FLAT * heights[-1])[0]])


def ladder(levels: int, *, even: bool) -> Floats:
    """So many levels from 1 to `TOP`, evenly spaced or by equal factors, whole numbers (a few less where they coincide)."""
    spaced = np.linspace(0, TOP, levels) if even else np.geomspace(1, TOP, levels)
    return np.unique(np.maximum(1.0, np.round(spaced)))


def measured(curve: Curve, levels: Floats, *, repeats: int, noise: float, random: np.random.Generator) -> pl.DataFrame:
    """Runs of the curve, as rows of a summary table: throughput times a lognormal error of deviation `noise`."""
    load = np.tile(levels, repeats)
    return pl.DataFrame(
        {
            "deployment": curve.name,
            "workload": "w",
            "axis": "concurrency",
            "level": load,
            "repeat": np.repeat(np.arange(repeats), len(levels)) + 1,
            "valid": True,
            "throughput_tokens_per_s": curve.throughput(load) * np.exp(noise * random.standard_normal(len(load))),
        }
    )


def _lines(bend: float, slope: float, peak: float = np.inf, fall: float = 0.0) -> Callable[[Floats], Floats]:
    """Proportional up to `bend`, then `slope` of that; from `peak` on falling, to 1 − `fall` of it at twice the peak."""

    def throughput(load: Floats) -> Floats:
        rising = np.minimum(load, bend) + slope * np.maximum(0.0, np.minimum(load, peak) - bend)
        return 50 * rising * (1 - fall * np.maximum(0.0, load - peak) / peak)

    return throughput


def _law(contention: float, coherence: float) -> Callable[[Floats], Floats]:
    """Gunther's universal scalability law: 50 N / (1 + σ (N − 1) + κ N (N − 1))."""
    return lambda load: 50 * load / (1 + contention * (load - 1) + coherence * load * (load - 1))


def _full(capacity: float, drop: float) -> Callable[[Floats], Floats]:
    """Steps that grow with what runs, until the cache is full; then `drop` less."""
    steps = _law(0.04, 0.0)
    return lambda load: np.where(load <= capacity, steps(load), (1 - drop) * steps(np.full_like(load, capacity)))


def _waves(capacity: int) -> Callable[[Floats], Floats]:
    """A burst of which `capacity` run at a time, and the rest after them, in steps that grow with what runs."""

    def throughput(load: Floats) -> Floats:
        whole, rest = np.divmod(load, capacity)
        return 50 * load / (whole * (1 + 0.04 * capacity) + np.where(rest > 0, 1 + 0.04 * rest, 0.0))

    return throughput


CURVES = (
    Curve("proportional throughout", _lines(np.inf, 1.0)),
    Curve("bend at 16, slope 0.3", _lines(16, 0.3)),
    Curve("scalability law, peak beyond", _law(0.02, 0.98 / 400**2)),
    Curve("flat from 20", _lines(20, 0.0), flat=True),
    Curve("exponential to a flat top", lambda load: 600 * (1 - np.exp(-load / 12)), flat=True),
    Curve("three lines, peak at 48", _lines(16, 0.3, 48, 0.5), 48),
    Curve("scalability law, peak at 40", _law(0.02, 0.98 / 40**2), 40),
    Curve("cache full at 48, 25 % less", _full(48, 0.25), 48),
    Curve("burst, waves of 64", _waves(64), 64),
    Curve("burst, waves of 40", _waves(40), 40),
)

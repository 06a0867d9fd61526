"""Methods to find a curve's turning points that were tried and not taken: `python -m benchmarks.regions` judges them beside ours."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from bench.findings.regions import Point
from bench.statistics.levels import PROPORTIONAL, Levels

__all__ = ["broken_line", "scalability_law"]

Floats = npt.NDArray[np.float64]
_DRAWS = 100
_FINE = 400  # points of a fitted curve


def scalability_law(levels: Levels, random: np.random.Generator) -> tuple[Point, Point]:
    """Gunther's law by least squares of load ÷ throughput = a + b N + c N² (each 0 or more), relative errors."""
    load = levels.load
    time = load / np.exp(levels.log)
    terms = np.stack([np.ones_like(load), load, load**2], axis=1)
    fine = np.linspace(load[0], load[-1], _FINE)

    def fit(observed: Floats) -> Floats:
        return nnls(terms / observed[:, None], np.ones_like(observed))[0]

    def curve(observed: Floats) -> Floats:
        return fine / (np.stack([np.ones_like(fine), fine, fine**2], axis=1) @ fit(observed))

    fitted = terms @ fit(time)
    off = np.log(time / fitted) * np.sqrt(len(load) / max(1, len(load) - 3))
    return _read(fine, curve(time), [curve(fitted * np.exp(random.choice(off, len(load)))) for _ in range(_DRAWS)])


def broken_line(levels: Levels, random: np.random.Generator) -> tuple[Point, Point]:
    """A continuous line of one to three straight parts by least squares of relative errors; the number by corrected AIC."""
    load, observed = levels.load, np.exp(levels.log)
    n = len(load)
    inner = np.linspace(load[0], load[-1], 26)[1:-1]
    fine = np.linspace(load[0], load[-1], _FINE)

    def terms(x: Floats, breaks: tuple[float, ...]) -> Floats:
        return np.stack([np.ones_like(x), x, *(np.maximum(0, x - b) for b in breaks)], axis=1)

    runs = float(levels.runs.sum())
    within = levels.noise**2 * (runs - n)  # squares between a level's runs, which no line explains
    most = min(2, (int(runs) - 4) // 2)  # a corrected AIC needs more runs than parameters
    models = [breaks for k in range(most + 1) for breaks in itertools.combinations(inner, k)]
    designs = np.stack([np.pad(terms(load, b) / observed[:, None], ((0, 0), (0, 2 - len(b)))) for b in models])
    inverses = np.linalg.pinv(designs)
    sizes = np.array([2 * len(b) + 3 for b in models])  # slopes, breaks, offset, variance

    def best(seen: Floats) -> tuple[int, Floats]:
        weights = inverses @ (seen / observed)
        off = (np.einsum("mij,mj->mi", designs, weights) - seen / observed) ** 2
        squares = within + (off * levels.runs).sum(axis=1)
        penalties = 2 * sizes * runs / np.maximum(1, runs - sizes - 1)
        scores = runs * np.log(np.maximum(squares, 1e-12) / runs) + penalties
        chosen = int(np.argmin(scores))
        return chosen, weights[chosen]

    def curve(seen: Floats, x: Floats) -> Floats:
        chosen, weights = best(seen)
        return np.maximum(1e-9, terms(x, models[chosen]) @ weights[: len(models[chosen]) + 2])

    fitted = curve(observed, load)
    off = np.log(observed / fitted) * np.sqrt(n / max(1, n - sizes[best(observed)[0]] + 1))
    return _read(fine, curve(observed, fine), [curve(fitted * np.exp(random.choice(off, n)), fine) for _ in range(_DRAWS)])


def _read(load: Floats, curve: Floats, drawn: list[Floats]) -> tuple[Point, Point]:
    """Both points of a fitted curve, with the middle 95 % of those of the curves fitted to resampled residuals."""

    def equilibrium(seen: Floats) -> float:
        below = np.flatnonzero(seen / load < PROPORTIONAL * seen[0] / load[0])
        return float(load[below[0]]) if len(below) else np.inf

    def peak(seen: Floats) -> float:
        highest = int(np.argmax(seen))
        return float(load[highest]) if highest < len(load) - 1 else np.inf

    return _point("left", equilibrium(curve), [equilibrium(d) for d in drawn]), _point(
        "peak", peak(curve), [peak(d) for d in drawn]
    )


def _point(kind: str, at: float, drawn: list[float]) -> Point:
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest").tolist()
    if np.isinf(at) or np.isinf(high):
        return Point("unknown")  # they know no flat top, so a bound of theirs would be held against another point
    return Point(kind, at, low, high)

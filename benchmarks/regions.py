"""How far a curve's turning points can be trusted: planted curves, measured with noise again and again, and what is found of them.

python -m benchmarks.regions                 # under a minute
python -m benchmarks.regions --draws 400
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from tests.support.limits import CURVES, Curve, ladder, measured

from bench.findings.regions import Point, equilibrium, saturation_point
from bench.statistics.levels import Levels
from benchmarks.harness import Referee, print_table

USUAL: dict[str, Any] = {"levels": 12, "even": True, "repeats": 2, "noise": 0.03}


@dataclass
class Score:
    """What was found of one kind of point, against the truth."""

    draws: int = 0
    possible: int = 0  # draws of curves that have such a point
    wrong: int = 0  # a point found on a curve that has none, or a wrong interval or "above N"
    covered: int = 0  # of those found, intervals that hold the true point
    ratios: list[float] = field(default_factory=list)  # found ÷ true
    factors: list[float] = field(default_factory=list)  # high ÷ low

    def add(self, point: Point, truth: float | None, kind: str | None) -> None:
        """Count one draw. truth, kind: the curve's own point; None where it has none."""
        self.draws += 1
        self.possible += kind is not None
        if point.kind == "flat" and kind == "peak":
            point = Point("unknown")  # a fall that was missed, and no false claim
        true = np.inf if truth is None else truth
        holds = (point.low is None or point.low <= true) and (point.high is None or true <= point.high)
        found = point.at is not None and point.kind == kind
        self.wrong += not holds or (point.at is not None and not found)
        if point.at is not None and found:
            self.covered += holds
            self.ratios.append(point.at / true)
            if point.low and point.high:
                self.factors.append(point.high / point.low)

    def cells(self) -> list[str]:
        """Found, bias, spread, width, covers, wrong: as the table's head names them."""
        cells = ["–"] * 5
        if self.ratios:
            low, middle, high = np.quantile(self.ratios, [0.25, 0.5, 0.75])
            width = f"{median(self.factors):.1f} ×" if self.factors else "open"
            cells = [_share(len(self.ratios), self.possible), f"{middle - 1:+.0%}", f"{high - low:.0%}", width]
            cells.append(_share(self.covered, len(self.ratios)))
        return [*cells, _share(self.wrong, self.draws)]


_HEADS = """A: the end of region A; B: that of region B.
found: of the curves that have such a point; bias: median of found ÷ true, less 1; spread: its interquartile range;
width: median of the interval's high ÷ low; covers: of those found, intervals that hold the true point;
wrong: of all draws, a point found where there is none, or any other wrong finding."""


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def judge(
    curves: Iterable[Curve], draws: int, *, levels: int, even: bool, repeats: int, noise: float, lent: float | None = None
) -> list[str]:
    """The cells of both points over `draws` of each curve. Args: lent: noise of a curve that stands beside each, measured twice."""
    first, second = Score(), Score()
    for curve in curves:
        random = np.random.default_rng([levels, even, repeats, round(1000 * noise), *curve.name.encode()])
        for _ in range(draws):
            loads = ladder(levels, even=even)
            others = [measured(CURVES[0], loads, repeats=2, noise=lent, random=random)] if lent else []
            runs = measured(curve, loads, repeats=repeats, noise=noise, random=random)
            known = Levels.of(runs, "throughput_tokens_per_s", others)
            first.add(equilibrium(known, whole=True), curve.equilibrium, curve.equilibrium and "left")
            second.add(saturation_point(known), curve.saturation, "flat" if curve.flat else curve.peak and "peak")
    return [*first.cells(), *second.cells()]


def judged(job: tuple[str, slice, int, dict[str, Any]]) -> list[str]:
    """A row of a table. Args: job: its name, which of the curves are measured, how often, and how."""
    name, which, draws, setting = job
    return [name, *judge(CURVES[which], draws, **setting)]


def _setting(levels: int, even: bool, repeats: int, noise: float) -> str:
    return f"{levels} {'even' if even else 'log'}, {repeats} × {noise:.0%}"


def main() -> None:
    referee = Referee(__doc__, draws=60)
    draws = referee.options().draws
    settings = [
        {"levels": levels, "even": even, "repeats": repeats, "noise": noise}
        for levels, even in ((4, False), (9, False), (12, True), (20, True))
        for repeats, noise in ((1, 0.02), (1, 0.05), (2, 0.02), (2, 0.05), (5, 0.05), (5, 0.1))
    ]
    waves, others = slice(-1, None), slice(-1)
    single = {**USUAL, "repeats": 1}
    tables = {
        "12 even levels, 2 repeats, 3 % noise": [
            (curve.name, slice(i, i + 1), draws, USUAL) for i, curve in enumerate(CURVES)],
        "all but the burst in waves of 40": [(_setting(**each), others, draws // 4, each) for each in settings],
        "the burst in waves of 40": [(_setting(**each), waves, draws, each) for each in settings[2::6]],
        "one run a level, 12 even levels, 3 % noise, beside another curve with two, whose noise is": [
            (f"{lent:.1%}", others, draws // 2, {**single, "lent": lent}) for lent in (0.03, 0.02, 0.015)],
    }  # fmt: skip
    rows = iter(referee.spread(judged, [job for jobs in tables.values() for job in jobs]))
    print(_HEADS)
    heads = [f"{side} {head}" for side in "AB" for head in ("found", "bias", "spread", "width", "covers", "wrong")]
    for title, jobs in tables.items():
        print(f"\n{title}\n")
        print_table(["", *heads], [next(rows) for _ in jobs])


if __name__ == "__main__":
    main()

"""How far a curve's turning points can be trusted: planted curves, measured with noise again and again, and what is found of them.

python -m benchmarks.regions                 # under a minute
python -m benchmarks.regions --draws 400
python -m benchmarks.regions --study config/config.yaml    # by the levels and repeats of a study's own ladders
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tests.support.limits import CURVES, Curve, Floats, curves_up_to, ladder, measured

from bench.findings.regions import FEWEST_LEVELS, Point, equilibrium, saturation_point
from bench.statistics.levels import Levels
from bench.study.read import load_file
from benchmarks.rivals import broken_line, scalability_law

Method = Callable[[Levels, np.random.Generator], tuple[Point, Point]]
# With the share of the draws that each gets: the others resample a hundred times.
METHODS: dict[str, tuple[Method, int]] = {
    "ours": (lambda levels, _: (equilibrium(levels, whole=True), saturation_point(levels)), 1),
    "scalability law": (scalability_law, 3),
    "broken line, AICc": (broken_line, 3),
}
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
    method: Method,
    curves: Iterable[Curve],
    draws: int,
    *,
    levels: int,
    even: bool,
    repeats: int,
    noise: float,
    lent: float | None = None,
    beside: tuple[int, ...] = (2,),
    at: Floats | None = None,
) -> list[str]:
    """The cells of both points over `draws` of each curve.

    Args:
        lent: noise of the curves that stand beside each, measured as often as `beside` says.
        at: the levels, in place of evenly spaced ones.
    """
    first, second = Score(), Score()
    for curve in curves:
        random = np.random.default_rng([levels, even, repeats, round(1000 * noise), *curve.name.encode()])
        for _ in range(draws):
            loads = ladder(levels, even=even) if at is None else at
            others = [measured(CURVES[0], loads, repeats=n, noise=lent, random=random) for n in beside] if lent else []
            runs = measured(curve, loads, repeats=repeats, noise=noise, random=random)
            left, top = method(Levels.of(runs, "throughput_tokens_per_s", others), random)
            first.add(left, curve.equilibrium, curve.equilibrium and "left")
            second.add(top, curve.saturation, "flat" if curve.flat else curve.peak and "peak")
    return [*first.cells(), *second.cells()]


def _print(title: str, rows: Iterable[tuple[str, list[str]]]) -> None:
    print(f"\n{title}\n")
    heads = ("found", "bias", "spread", "width", "covers", "wrong")
    print("| |" + "|".join(f" {side} {head} " for side in ("A", "B") for head in heads) + "|")
    print("|---|" + "--:|" * 12)
    for name, cells in rows:
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=60, help="of each curve")
    parser.add_argument("--study", type=Path, help="a study, whose ladders are judged in place of the usual ones")
    options = parser.parse_args()
    draws = options.draws
    print(_HEADS)
    if options.study:
        _judge_study(options.study, draws)
        return
    for name, (method, share) in METHODS.items():
        usual = ((curve.name, judge(method, [curve], draws // share, **USUAL)) for curve in CURVES)
        _print(f"{name}: 12 even levels, 2 repeats, 3 % noise", usual)
    ours = METHODS["ours"][0]
    settings = [
        {"levels": levels, "even": even, "repeats": repeats, "noise": noise}
        for levels, even in ((4, False), (9, False), (12, True), (20, True))
        for repeats, noise in ((1, 0.02), (1, 0.05), (2, 0.02), (2, 0.05), (5, 0.05), (5, 0.1))
    ]
    _print(
        "ours: all but the burst in waves of 40",
        ((_setting(**setting), judge(ours, CURVES[:-1], draws // 4, **setting)) for setting in settings),
    )
    _print(
        "ours: the burst in waves of 40",
        ((_setting(**setting), judge(ours, CURVES[-1:], draws, **setting)) for setting in settings[2::6]),
    )
    single = {**USUAL, "repeats": 1}
    _print(
        "ours: one run a level, 12 even levels, 3 % noise, beside another curve with two, whose noise is",
        ((f"{lent:.1%}", judge(ours, CURVES[:-1], draws // 2, **single, lent=lent)) for lent in (0.03, 0.02, 0.015)),
    )


def _judge_study(file: Path, draws: int) -> None:
    """Each ladder of bursts or closed loops by its own levels and repeats, beside the others, whose noise may be another one."""
    ladders = [
        each
        for each in load_file(file).study.ladders
        if isinstance(each.concurrency, list) and len(each.concurrency) >= FEWEST_LEVELS
    ]
    for noise, times in ((0.03, 1.0), (0.05, 1.0), (0.05, 0.5), (0.05, 0.7), (0.03, 2.0)):
        rows = []
        for each in ladders:
            at = np.array(sorted(each.concurrency), dtype=float)
            beside = tuple(other.repeats for other in ladders if other is not each)
            design: dict[str, Any] = {"levels": len(at), "even": False, "repeats": each.repeats, "noise": noise, "at": at}
            curves = curves_up_to(float(at[-1]))[:-1]
            cells = judge(METHODS["ours"][0], curves, draws, **design, lent=times * noise, beside=beside)
            rows.append((f"{each.deployment}, {len(at)} levels to {at[-1]:g}, {each.repeats} ×", cells))
        _print(f"{file}, all but the burst in waves of 40, noise {noise:.0%}, that of the other curves × {times:g}", rows)


def _setting(levels: int, even: bool, repeats: int, noise: float) -> str:
    return f"{levels} {'even' if even else 'log'}, {repeats} × {noise:.0%}"


if __name__ == "__main__":
    main()

"""How often the factor analysis finds what was planted: `python -m benchmarks.factors`.

Made studies with known effects: TTFT is batch size × input length × √(model size), makespan grows with output length above all,
throughput with batch size, and the number of devices does nothing. Errors are lognormal. The largest has 144 runs: three batch sizes ×
three input × two output lengths × two models × one and two devices, twice each; the smaller ones lack the middle batch size, and the
middle input length as well.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import polars as pl
from tests.support.crossed import BATCHES, PROMPTS, planted, ttft_importances

from bench.findings.factors import correlations, importances, with_metrics
from benchmarks.harness import Referee, print_table

FIRST = {"TTFT (s)": {"batch size", "input length"}, "makespan (s)": {"output length"}, "throughput (tokens/s)": {"batch size"}}
# Factors that move a metric by more than a hundredth of its variance.
REAL = {
    "TTFT (s)": {"batch size", "input length", "model"},
    "makespan (s)": {"output length", "batch size", "model"},
    "throughput (tokens/s)": {"batch size", "model"},
}
DESIGNS = {72: (BATCHES, PROMPTS), 48: ((1, 16), PROMPTS), 32: ((1, 16), (32, 512))}


@dataclass
class Rates:
    """What was found of made studies of one size and noise."""

    scores: list[float] = field(default_factory=list)
    given: list[bool] = field(default_factory=list)
    first: list[bool] = field(default_factory=list)
    found: list[bool] = field(default_factory=list)
    invented: list[bool] = field(default_factory=list)
    holds_zero: list[bool] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def add(self, runs: pl.DataFrame, noise: float) -> None:
        """Judge one study."""
        truth = ttft_importances(runs, noise)
        for (metric,), rows in importances(with_metrics(runs)).group_by("metric", maintain_order=True):
            by_factor = {row["factor"]: row for row in rows.to_dicts()}
            self.scores.append(rows["score"][0])
            self.given.append(rows["importance"].is_not_null().all())
            if not self.given[-1]:
                continue
            self.first.append(max(by_factor, key=lambda name: by_factor[name]["importance"]) in FIRST[str(metric)])
            self.found += [by_factor[name]["low"] > 0 for name in REAL[str(metric)]]
            idle = by_factor["devices"]
            self.invented.append(idle["low"] > 0)
            self.holds_zero.append(idle["low"] <= 0 <= idle["high"])
            if metric == "TTFT (s)":
                self.errors += [abs(by_factor[name]["importance"] - truth[name]) for name in truth]

    def cells(self) -> list[str]:
        """Of a row of the table."""
        shares = [_share(values) for values in (self.given, self.first, self.found, self.invented, self.holds_zero)]
        return [f"{statistics.mean(self.scores):.2f}", *shares, f"{max(self.errors):.2f}" if self.errors else "–"]


def _share(values: list[bool]) -> str:
    return f"{sum(values)} of {len(values)}" if values else "–"


def rates_of(case: tuple[int, float], draws: int) -> list[str]:
    """A row of the table. Args: case: configurations, and noise."""
    (cells, noise), rates = case, Rates()
    batches, prompts = DESIGNS[cells]
    for seed in range(draws):
        rates.add(planted(seed, noise, batches=batches, prompts=prompts), noise)
    return [f"{cells}", f"{noise:.0%}", *rates.cells()]


def coverage(configurations: int, draws: int) -> list[str]:
    """How often the interval of r over configurations drawn at random holds r over the whole grid they are drawn from."""
    lengths = (16, 32, 64, 128, 256, 512)
    grid = with_metrics(planted(0, 0.05, batches=(1, 2, 4, 8, 16, 32, 64), prompts=lengths, outputs=lengths, repeats=1))
    grid = grid.filter(pl.col("model") == grid["model"][0])
    keys = ("factor", "metric")
    truth = {row[:2]: row[2] for row in correlations(grid).select(*keys, "r").rows()}
    inside: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(draws):
        rows = correlations(grid.sample(configurations, seed=seed)).select(*keys, "low", "high").rows()
        for factor, metric, low, high in rows:
            r = truth[factor, metric]
            inside[abs(r) >= 0.1].append(low <= r <= high)
    return [f"{configurations}", f"{np.mean(inside[True]):.1%}", f"{np.mean(inside[False]):.1%}"]


def main() -> None:
    referee = Referee(__doc__, draws=4)
    options = referee.options()
    cases = list(itertools.product(DESIGNS, (0.05, 0.2, 1.0)))
    heads = ("configurations", "noise", "mean R²", "importances given", "first is the planted one", "real effects found", "invented",
             "0 in the idle factor's interval", "largest error (TTFT)")  # fmt: skip
    rates = referee.spread(partial(rates_of, draws=options.draws), cases)
    found = referee.spread(partial(coverage, draws=50 * options.draws), (20, 60))
    referee.keep({"rates": rates, "coverage": found})
    print_table(heads, rates)
    print()
    print_table(["configurations", "95 % interval of r holds it, where it is 0.1 or more", "where it is less"], found)


if __name__ == "__main__":
    main()

"""How well a tuning finds the best settings: planted servers whose every combination has a known highest rate within an SLO.

    python -m benchmarks.tuning --servers 100 --json tuning.json   # beside a full grid by point estimates
    python -m benchmarks.tuning --servers 1000 --drawn             # visits drawn from their errors: the race alone, in minutes
    python -m benchmarks.tuning --drawn --effect 0.8               # settings that change the rate by a factor of two
    python -m benchmarks.tuning --servers 1000 --drawn --fail .1   # a tenth of the starts dies, or shows nothing or too little

Two or three settings of two to four values each, whose effects are a fifth (standard deviation of the logarithm; `--effect`), and
interact by half of that. A third of the servers has no effects at all, and a third has one bad value that looks good in short runs.
Starts differ by 4 %, and the machine drifts by 1 % within a minute. A start takes 30 seconds. What is judged is the rate itself: how
far the chosen settings are from the best, and how often settings that are no better than the default are called winners.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.runs.searches import Visit
from bench.search.placing import Aim
from bench.search.race import START, Ask, race
from bench.search.search import Budget, Measured, search
from bench.search.tuning import ends_of, visit_of
from bench.study.slo import parse_slo
from benchmarks.capacity.ladder import answered_row
from benchmarks.harness import Referee, print_table

_KINDS = ("effects", "flat", "good in short runs")
_EFFECT, _DRIFT = 0.2, 0.01
_TOGETHER = 0.5  # effect of a combination ÷ that of a value
_START_S = 30.0
_BUDGET = Budget(12, 600.0)
_LOOKS_BETTER, _SHORT = 0.3, 150  # by how much a short run flatters the bad value, and its requests
_SLO = parse_slo("ttft_p90=1s")
_Z = float(statistics.NormalDist().inv_cdf(0.9))
_NEAR = 0.05  # of the best: what counts as found


@dataclass(frozen=True)
class How:
    """How servers are planted and tuned.

    Attributes:
        drawn: visits, in place of searches. fail: share of the starts. effect: of a value (ln rate).
    """

    drawn: bool = False
    fail: float = 0.0
    effect: float = _EFFECT


@dataclass
class Planted:
    """Candidates whose highest rates are known.

    Attributes:
        rates: of each (requests/s). flattered: those that look better in short runs. seed: of all that is drawn.
    """

    kind: str
    settings: list[dict[str, Any]]
    rates: np.ndarray
    flattered: np.ndarray
    seed: int

    @classmethod
    def of(cls, number: int, seed: int, effect: float = _EFFECT) -> Planted:
        """The nth server. Args: effect: of a value of a setting (standard deviation of ln rate)."""
        random = np.random.default_rng([seed, number, 5])
        kind = _KINDS[number % len(_KINDS)]
        sizes = random.integers(2, 5, random.integers(2, 4)).tolist()
        cells = list(itertools.product(*map(range, sizes)))
        logs = np.zeros(len(cells))
        if kind != "flat":
            effects = [random.normal(0, effect, size) for size in sizes]
            logs = np.array([sum(effects[i][value] for i, value in enumerate(cell)) for cell in cells])
            logs += random.normal(0, _TOGETHER * effect, len(cells))
        bad = np.array([kind == _KINDS[2] and cell[0] == sizes[0] - 1 for cell in cells])
        logs -= _LOOKS_BETTER * bad
        rate = math.exp(random.uniform(0, 3))
        settings = [{f"setting{i}": value for i, value in enumerate(cell)} for cell in cells]
        return cls(kind, settings, rate * np.exp(logs - logs[0]), bad, int(random.integers(2**31)))

    @property
    def names(self) -> list[str]:
        """Of the candidates; the first is the default."""
        return ["-".join(map(str, each.values())) for each in self.settings]


class Machine:
    """Makes visits to planted servers while its speed drifts.

    Attributes:
        fail: share of the starts that die, show nothing, or show so little that only a wide error is known, as often each.
        now_s: since it began.
    """

    def __init__(self, planted: Planted, seed: int, *, drawn: bool, fail: float = 0.0) -> None:
        self.planted, self.drawn, self.random = planted, drawn, np.random.default_rng([planted.seed, seed])
        self.fail, self.failures = fail, np.random.default_rng([planted.seed, seed, 9])
        self.now_s, self.speed, self.visits, self.load_s = 0.0, 0.0, 0, 0.0

    def visit(self, ask: Ask) -> Visit:
        """Start the candidate, search, and stop it."""
        candidate = self.planted.names.index(ask.candidate)
        start = self.random.normal(0, START)
        began, self.visits = self.now_s, self.visits + 1
        self._passes(_START_S)
        made = self._drawn(ask, candidate, start) if self.drawn else self._searched(ask, candidate, start)
        if self.visits > 1 and self.failures.random() < self.fail:
            made = self._failed(made)
        return Visit(**{**vars(made), "began": began, "seconds": self.now_s - began})

    def _failed(self, made: Visit) -> Visit:
        """A visit as a server that dies, runs without telemetry, or a search that ends on invalid runs leave it."""
        kind = self.failures.integers(3)
        if kind < 2 or made.middle is None:
            return Visit(**{**vars(made), "middle": None, "error": None, "why": "died" if kind == 0 else "invalid"})
        wide = 0.5
        middle = made.middle + self.failures.normal(0, wide)
        return Visit(**{**vars(made), "middle": middle, "error": wide, "why": "invalid"})

    def _passes(self, seconds: float) -> None:
        self.speed += self.random.normal(0, _DRIFT * math.sqrt(seconds / 60))
        self.now_s += seconds

    def _drawn(self, ask: Ask, candidate: int, start: float) -> Visit:
        """A visit whose search is a draw of its error."""
        log = math.log(self.planted.rates[candidate]) + start + self.speed
        lost = ask.rival is not None and log < math.log(ask.rival.rate) - 2 * ask.rival.error
        error = 0.15 if lost else 0.05
        seconds = 60.0 if lost else 240.0
        self._passes(seconds)
        self.load_s += seconds
        middle = log + self.random.normal(0, error)
        low, high = (math.exp(middle + side * 2 * error) for side in (-1, 1))
        return Visit(deployment=ask.candidate, phase=ask.phase, round=ask.round, middle=middle, error=error, low=low, high=high,
                     why="lost" if lost else "found", runs=2 if lost else 8, load_s=seconds, began=0.0, seconds=0.0)  # fmt: skip

    def _searched(self, ask: Ask, candidate: int, start: float) -> Visit:
        """A visit with a real search of runs that are drawn request by request."""
        limit = float(self.planted.rates[candidate])
        shape = np.random.default_rng([self.planted.seed, candidate])
        slope, low, sigma = shape.uniform(1.5, 4), shape.uniform(-1.5, -0.4), shape.uniform(0.1, 0.4)

        def measure(load: float, count: int, _: int) -> Measured:
            x = math.log(load / limit) - start - self.speed
            flattered = _LOOKS_BETTER if self.planted.flattered[candidate] and count < _SHORT else 0.0
            middle = max(low, slope * (x - flattered)) + self.random.normal(0, 0.02)
            values = np.exp(middle + sigma * (self.random.standard_normal(count) - _Z))
            self._passes(count / load)
            return Measured(answered_row(values.tolist(), load, "poisson"))

        first = ask.start or float(f"{limit * math.exp(self.random.normal(-0.35, 0.15)):.3g}")
        aim = Aim([_SLO], 0.01, False, 0.1, first, 4096.0, ends=ends_of(ask))
        found = search(aim, _BUDGET, measure)
        self.load_s += found.seconds
        return visit_of(ask, found, 0.0, 0.0)


def by_race(planted: Planted, seed: int, minutes: float, how: How) -> dict[str, Any]:
    """What our race chooses, and whether it names a false winner."""
    machine = Machine(planted, seed, drawn=how.drawn, fail=how.fail)
    settings = dict(zip(planted.names, planted.settings, strict=True))
    found = race(settings, dict.fromkeys(planted.names, 1.0), 60 * minutes, machine.visit)
    confirmed = found.confirmed
    shown = confirmed is not None and confirmed.low is not None and confirmed.low > 1
    chosen = planted.names.index(found.leader) if shown and found.leader else 0
    ends = (confirmed.low, confirmed.high) if confirmed and confirmed.low and confirmed.high else None
    truth = planted.rates[planted.names.index(found.leader or planted.names[0])] / planted.rates[0]
    return {
        **_judged(planted, chosen, machine),
        "leader": float(planted.rates[planted.names.index(found.leader or planted.names[0])] / planted.rates.max()),
        "claimed": shown,
        "false": bool(shown and truth <= 1),
        "holds": None if not ends else bool(ends[0] <= truth <= ends[1]),
        "width": None if not ends else math.log(ends[1] / ends[0]),
        "pairs": confirmed.pairs if confirmed else 0,
        "untried": len(found.untried),
    }


def by_grid(planted: Planted, seed: int, *, drawn: bool) -> dict[str, Any]:
    """Every candidate once; the best by point estimates."""
    machine = Machine(planted, seed, drawn=drawn)
    shown = [machine.visit(Ask(name, "first look", 1, None, None)).middle for name in planted.names]
    return _judged(planted, int(np.argmax([-math.inf if each is None else each for each in shown])), machine)


def _judged(planted: Planted, chosen: int, machine: Machine) -> dict[str, Any]:
    return {
        "of_best": float(planted.rates[chosen] / planted.rates.max()),
        "over_default": float(planted.rates[chosen] / planted.rates[0]),
        "better_chosen": bool(planted.rates[chosen] > planted.rates[0]),
        "minutes": machine.now_s / 60,
        "starts": machine.visits,
    }


def one(number: int, seed: int, minutes: float, how: How) -> dict[str, Any]:
    """Both ways on one server."""
    planted = Planted.of(number, seed, how.effect)
    ways = {"race": by_race(planted, number, minutes, how), "grid": by_grid(planted, number, drawn=how.drawn)}
    gain = float(planted.rates.max() / planted.rates[0])
    return {"kind": planted.kind, "candidates": len(planted.names), "gain": gain, **ways}


def main() -> None:
    referee = Referee(__doc__, seed=1, servers=100)
    referee.option("--minutes", type=float, default=60.0, help="of each race")
    referee.option("--drawn", action="store_true", help="draw visits from their errors, in place of searching")
    referee.option("--fail", type=float, default=0.0, help="share of the starts that fail")
    referee.option("--effect", type=float, default=_EFFECT, help="of a value of a setting (standard deviation of ln rate)")
    options = referee.options()
    how = How(options.drawn, options.fail, options.effect)
    report(referee.spread(partial(one, seed=options.seed, minutes=options.minutes, how=how), range(options.servers)))


def report(found: list[dict[str, Any]]) -> None:
    """Print the rates, by kind of server and in all."""
    mean: Callable[[list[float]], float] = statistics.fmean
    lines = []
    for kind in (*_KINDS, "all"):
        rows = [each for each in found if kind in (each["kind"], "all")]
        for way, known in ((way, [each[way] for each in rows]) for way in ("race", "grid") if rows):
            minutes, starts = (statistics.median(x[name] for x in known) for name in ("minutes", "starts"))
            near, lost = mean([x["of_best"] >= 1 - _NEAR for x in known]), mean([1 - x["of_best"] for x in known])
            lines.append([kind, len(known), way, f"{near:.0%}", f"{lost:.1%}", f"{minutes:.0f}", f"{starts:g}"])
    print_table(["servers", "n", "way", f"within {_NEAR:.0%} of the best", "mean loss", "minutes", "starts"], lines)
    races = [each["race"] for each in found]
    held = [each["holds"] for each in races if each["holds"] is not None]
    print(f"\nleader within {_NEAR:.0%} of the best: {mean([each['leader'] >= 1 - _NEAR for each in races]):.0%}")
    print(f"winners claimed: {sum(x['claimed'] for x in races)}, false: {sum(x['false'] for x in races)} of {len(races)}")
    if held:
        print(f"intervals of the gain hold: {sum(held)} of {len(held)}, median ln width "
              f"{statistics.median([x['width'] for x in races if x['width'] is not None]):.3f}")  # fmt: skip
    ratios = [each["race"]["minutes"] / each["grid"]["minutes"] for each in found]
    print(f"minutes ÷ those of the grid, median: {statistics.median(ratios):.2f}; candidates, median: "
          f"{statistics.median([each['candidates'] for each in found]):g}")  # fmt: skip


if __name__ == "__main__":
    main()

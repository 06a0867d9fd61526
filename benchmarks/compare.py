"""How often a comparison is right, on made studies: false verdicts of a baseline against itself, and planted effects found.

A study is measured as the workflow measures it: sessions of both sides in ABBA order, each with every level in a shuffled order,
`repeats` times. The machine's speed wanders (an Ornstein-Uhlenbeck process whose correlation lasts as long as six sessions), so that
sessions next to each other are alike; each start of a server is off by 1 % of its own; the noise of a run is 0.7 to 1.3 times its mean
from the lowest to the highest level, 1.5 and 3 times as large of TTFT P50 and P99, and half of its variance is common to all metrics.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from bench.analysis import Noise, visible
from bench.analysis.effects import effects
from bench.records.columns import METRICS

LADDER = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0)
NAMES = [name for name, metric in METRICS.items() if metric.source != "gpus"]  # what there is without a GPU
TOKENS, TPOT = "throughput_tokens_per_s", "tpot_p50_s"
_SIGNS = np.array([1.0 if METRICS[name].higher_is_better else -1.0 for name in NAMES])
_NOISIER = {"ttft_p50_s": 1.5, "ttft_p99_s": 3.0, "e2e_p50_s": 1.2}
_SCALES = np.array([_NOISIER.get(name, 1.0) for name in NAMES])
_MEMORY = 6.0  # sessions over which the machine's speed is correlated (1 / e)
_START = 0.01
_TPOT_S = 0.008 + 0.0014 * np.array(LADDER)  # of the made server: a step's cost, and what each sequence adds
_COLUMNS = ["deployment", "workload", "axis", "level", "session", "repeat", "nth", "metric", "log_ratio"]
Effect = np.ndarray[Any, Any]  # [metric, level] ln ratio


@dataclass(frozen=True)
class Study:
    """What is measured: sessions of each side, runs of a level in a session; noise of a run, and of the machine's speed (relative)."""

    sessions: int
    repeats: int
    noise: float = 0.045
    speed: float = 0.07

    @property
    def spread(self) -> float:
        """True standard deviation of the ln ratio of two sessions next to each other: of the process, and of the starts."""
        a = 1 / _MEMORY
        within = 2 * (a - 1 + math.exp(-a)) / a**2  # mean correlation inside a session
        across = (1 - math.exp(-a)) ** 2 / a**2  # of one with the next
        return math.sqrt(2 * self.speed**2 * (within - across) + 2 * _START**2)

    @property
    def visible(self) -> float:
        """The difference over all levels that the plan says it finds in 8 of 10 cases."""
        return visible(Noise(self.noise, self.spread), self.sessions, len(LADDER), self.repeats, len(NAMES))


def draw(generator: np.random.Generator, study: Study, effect: Effect | None = None) -> pl.DataFrame:
    """The pairs of one study, as `effects` takes them; the candidate is off by `effect`."""
    levels, k, r = len(LADDER), study.sessions, study.repeats
    runs = 2 * k * r * levels
    speed = _wander(generator, runs, study.speed, math.exp(-1 / (_MEMORY * r * levels)))
    logs = np.zeros((2, k, r, levels, len(NAMES)))
    run = 0
    for pair in range(k):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            start = generator.normal(0, _START)
            for repeat in range(r):
                for level in generator.permutation(levels):
                    logs[side, pair, repeat, level] = _SIGNS * (speed[run] + start)
                    run += 1
    rise = np.linspace(0.7, 1.3, levels)[:, None] * study.noise * _SCALES
    common = generator.standard_normal((*logs.shape[:-1], 1)) * _SIGNS
    own = generator.standard_normal(logs.shape)
    own[..., 1] = own[..., 0]  # requests/s are tokens/s where answers are as long
    logs += rise * math.sqrt(0.5) * (common + own)
    ratios = logs[1] - logs[0] + (0.0 if effect is None else effect.T)
    s, n, lvl, m = (axis.ravel() for axis in np.indices(ratios.shape))
    return pl.DataFrame(
        {
            "deployment": "candidate", "workload": "mixed", "axis": "concurrency", "level": np.array(LADDER)[lvl], "session": s + 1,
            "repeat": n + 1, "nth": 0, "metric": np.array(NAMES)[m], "log_ratio": ratios.ravel(),
        }
    ).select(_COLUMNS)  # fmt: skip


def _wander(generator: np.random.Generator, steps: int, deviation: float, kept: float) -> Effect:
    speed = np.empty(steps)
    speed[0] = generator.normal(0, deviation)
    pushes = generator.normal(0, deviation * math.sqrt(1 - kept**2), steps)
    for i in range(1, steps):
        speed[i] = kept * speed[i - 1] + pushes[i]
    return speed


def planted(change: Effect | float, *names: str) -> Effect:
    """An effect by level on the `names`, worse in each by ln ratio `change`."""
    effect = np.zeros((len(NAMES), len(LADDER)))
    for i, name in enumerate(NAMES):
        if name in (names or NAMES):
            effect[i] = -_SIGNS[i] * np.asarray(change)
    return effect


def halved() -> Effect:
    """Throughput halves from the middle of the ladder on, and with it the others but for TTFT."""
    step = np.where(np.array(LADDER) > LADDER[2], math.log(2), 0.0)
    return planted(step, *(name for name in NAMES if not name.startswith("ttft")))


def delayed(difference: float) -> Effect:
    """A fixed delay a token, such that the mean ln ratio of TPOT is ln (1 + difference): the more at low loads."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.log1p(middle / _TPOT_S).mean() < math.log1p(difference) else (low, middle)
    return planted(np.log1p(high / _TPOT_S), *(name for name in NAMES if not name.startswith("ttft")))


def worse(judged: pl.DataFrame, metric: str) -> bool:
    """Whether the metric's verdict is worse, everywhere or somewhere."""
    return str(judged.filter(scope="all", metric=metric)["verdict"][0]).startswith("worse")


def any_verdict(judged: pl.DataFrame) -> bool:
    """Whether anything but a lack of evidence is said."""
    return bool((judged["verdict"] != "no evidence").any())


def rate(
    generator: np.random.Generator, draws: int, study: Study, said: Callable[[pl.DataFrame], bool], effect: Effect | None = None
) -> float:
    """Share of `draws` studies of which `said` holds."""
    return sum(said(effects(draw(generator, study, effect))) for _ in range(draws)) / draws


def false_verdicts(generator: np.random.Generator, draws: int) -> list[dict[str, Any]]:
    """Studies of the baseline against itself with any verdict."""
    rows = []
    for k, (noise, speed) in itertools.product((1, 2, 4, 6, 8), ((0.03, 0.05), (0.06, 0.10))):
        study = Study(k, 2 if k == 1 else 1, noise, speed)
        rows.append(
            {
                "sessions": k,
                "repeats": study.repeats,
                "noise": noise,
                "speed": speed,
                "false": rate(generator, draws, study, any_verdict),
            }
        )
    return rows


def power(generator: np.random.Generator, draws: int, studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Of each study, what the plan says it sees, and how often that is found: over all levels, as a delay a token, as a halved top."""
    rows = []
    for study in studies:
        difference = study.visible
        evenly, top = planted(math.log1p(difference)), halved()
        rows.append(
            {
                "sessions": study.sessions,
                "repeats": study.repeats,
                "noise": study.noise,
                "speed": study.speed,
                "spread": study.spread,
                "visible": difference,
                "found": rate(generator, draws, study, lambda one: worse(one, TPOT), evenly),
                "delay_found": rate(generator, draws, study, lambda one: worse(one, TPOT), delayed(difference)),
                "halved_found": rate(generator, draws, study, lambda one: worse(one, TOKENS), top),
            }
        )
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200, help="studies a cell (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    studies = [Study(*shape) for shape in ((4, 1), (4, 2), (5, 2), (6, 1), (6, 2), (8, 1), (12, 1))]
    result = {
        "false": false_verdicts(generator, options.draws),
        "power": power(generator, options.draws, studies),
        "one_session": {
            "halved_found": rate(generator, options.draws, Study(1, 2), lambda one: worse(one, TOKENS), halved()),
        },
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, rows in (
        ("false verdicts", result["false"]),
        ("power", result["power"]),
        ("one session", [result["one_session"]]),
    ):
        print(f"\n{name}, in % of {options.draws} studies")
        _print_table(rows)


def _print_table(rows: Any) -> None:
    """A table in Markdown; shares and noises in percent."""
    print("| " + " | ".join(rows[0]) + " |\n|" + "--:|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(str(x) if isinstance(x, int) else f"{100 * x:.1f}" for x in row.values()) + " |")


if __name__ == "__main__":
    main()

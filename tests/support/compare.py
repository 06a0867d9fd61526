"""Two sets of runs, and what differs between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from bench.findings.comparison.compare import Comparison, change_of_machine
from bench.findings.comparison.effects import Noise, but_for_the_machine, effects, visible
from bench.findings.comparison.gate import blind, regressions, unproven
from bench.parse.table import summary_frame
from bench.runs.columns import METRICS
from bench.study.config import Thresholds
from tests.support import records

TOKENS = "throughput_tokens_per_s"


def runs(summary, values, *, deployment="a", workload="short", metric=TOKENS, facts=None, **changes):
    """Summary rows: `values` has a list of repeats a level; `changes` hold for all."""
    rows = [
        {**summary, "deployment": deployment, "workload": workload, "run": f"{workload}_{level}_{i}", "level": float(level),
         "concurrency": level, "repeat": i, metric: value, **changes}
        for level, repeats in values.items() for i, value in enumerate(repeats, 1)
    ]  # fmt: skip
    launch, fact = facts or (records.launch(), records.facts(engine_version="1"))
    return summary_frame(rows, {deployment: launch}, {deployment: fact}, Thresholds())


def failing(summary, levels, share, *, valid=True, factor=1.0):
    """Runs of 64 requests of which a share (by level) failed."""
    frame = runs(summary, {level: [10.0 * level * factor] * 2 for level in levels}, requests=64, ok=64)
    failed = pl.col("level").replace_strict({float(level): round(64 * share.get(level, 0)) for level in levels})
    return frame.with_columns(failed=failed, ok=64 - failed, valid=(failed == 0) | pl.lit(valid))


LADDER = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0)
NAMES = [name for name, metric in METRICS.items() if metric.source != "gpus"]  # what there is without a GPU
_SIGNS = np.array([1.0 if METRICS[name].higher_is_better else -1.0 for name in NAMES])
_NOISIER = {"ttft_p50_s": 1.5, "ttft_p99_s": 3.0, "e2e_p50_s": 1.2}
_SCALES = np.array([_NOISIER.get(name, 1.0) for name in NAMES])
_MEMORY = 6.0  # sessions over which the machine's speed is correlated (1 / e)
_START = 0.01
_REFERENCE = 0.05  # noise of a reference load
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


def draw(
    generator: np.random.Generator, study: Study, effect: Effect | None = None, *, stored: float | None = None
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The pairs of one study, as `effects` takes them, and each side's reference loads; the candidate is off by `effect`.

    Args:
        stored: the candidate is measured after the baseline, long after: the machine is faster by this ln ratio, and by chance.
    """
    levels, k, r = len(LADDER), study.sessions, study.repeats
    runs = 2 * k * r * levels
    kept = math.exp(-1 / (_MEMORY * r * levels))
    speed = _wander(generator, runs, study.speed, kept)
    if stored is not None:
        speed[runs // 2 :] = _wander(generator, runs // 2, study.speed, kept) + stored
    logs, at = np.zeros((2, k, r, levels, len(NAMES))), np.zeros((2, k, r * levels))
    places = [(side, pair) for pair in range(k) for side in ((0, 1) if pair % 2 == 0 else (1, 0))]
    for i, (side, pair) in enumerate(sorted(places) if stored is not None else places):
        start = generator.normal(0, _START)
        at[side, pair] = speed[i * r * levels :][: r * levels] + start
        for repeat, speeds in enumerate(at[side, pair].reshape(r, levels)):
            for one, level in zip(speeds, generator.permutation(levels), strict=True):
                logs[side, pair, repeat, level] = _SIGNS * one
    rise = np.linspace(0.7, 1.3, levels)[:, None] * study.noise * _SCALES
    common = generator.standard_normal((*logs.shape[:-1], 1)) * _SIGNS
    own = generator.standard_normal(logs.shape)
    own[..., 1] = own[..., 0]  # requests/s are tokens/s where answers are as long
    logs += rise * math.sqrt(0.5) * (common + own)
    effect = np.zeros((len(NAMES), levels)) if effect is None else effect
    ratios = logs[1] - logs[0] + effect.T
    s, n, lvl, m = (axis.ravel() for axis in np.indices(ratios.shape))
    pairs = pl.DataFrame(
        {
            "deployment": "candidate", "workload": "mixed", "axis": "concurrency", "level": np.array(LADDER)[lvl], "session": s + 1,
            "repeat": n + 1, "nth": 0, "metric": np.array(NAMES)[m], "log_ratio": ratios.ravel(),
        }
    ).select(_COLUMNS)  # fmt: skip
    at[1] -= effect[NAMES.index("tpot_p50_s"), 0]  # a server that is slower at a low load is so for the reference loads too
    seconds = np.exp(generator.normal(0, _REFERENCE, at.shape) - at)
    ours, theirs = (
        pl.DataFrame({"session": np.repeat(np.arange(k), r * levels), "reference_started": np.arange(each.size),
                      "reference_load": "alike", "reference_s": each.ravel()})
        for each in seconds
    )  # fmt: skip
    return pairs, ours, theirs


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


def judged(
    generator: np.random.Generator,
    study: Study,
    effect: Effect | None = None,
    *,
    stored: float | None = None,
    names: Sequence[str] = (),
) -> Comparison:
    """One study's comparison in `names` (else all). Args: as of `draw`."""
    pairs, ours, theirs = draw(generator, study, effect, stored=stored)
    pairs = pairs.filter(pl.col("metric").is_in(list(names or NAMES)))
    machine = None if stored is None else change_of_machine(ours, theirs)
    verdicts = effects(pairs, stored=stored is not None)
    verdicts = but_for_the_machine(verdicts, machine) if machine else verdicts
    return Comparison(
        matched=len(pairs), effects=verdicts, failures=(), runs=(0, 0), invalid=(0, 0), alone=(), uncompared=(),
        absent=(), estimates=(), differences=(), stored=stored is not None, machine=machine,
    )  # fmt: skip


def status(found: Comparison, percent: float) -> int:
    """The exit status of a gate at `percent`."""
    if len(regressions(found.effects, percent)):
        return 1
    return 3 if len(unproven(found, percent)) or blind(found, percent) else 0


def rate(
    generator: np.random.Generator, draws: int, study: Study, said: Callable[[pl.DataFrame], bool], effect: Effect | None = None
) -> float:
    """Share of `draws` studies of which `said` holds."""
    return sum(said(judged(generator, study, effect).effects) for _ in range(draws)) / draws

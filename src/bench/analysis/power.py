"""What a comparison can see, and how many sessions a wanted difference takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.analysis import blocks
from bench.analysis.parts import parts_of
from bench.runs.columns import METRICS
from bench.statistics import least

# probability with which a planned comparison finds its effect; source: Cohen, Statistical Power Analysis for the Behavioral Sciences,
# 1988
POWER = 0.8
CORRELATION = 0.5  # assumed correlation of metrics, before any is measured: all follow the machine's speed; convention
_MOST_SESSIONS = 100  # most sessions that a plan asks for; convention
EXPECTED = sum(metric.source != "gpus" for metric in METRICS.values())  # that a study without GPUs has
_DRAWS = 1000  # simulated studies behind a plan; convention
# factor on the error for what the model leaves out: successive pairs of sessions are somewhat alike; measured:
# docs/explanation/comparing.md, without it 66 to 78 % of planned effects were found
_MARGIN = 1.1
FAR = 10.0  # factor beyond which the noise is too large to say anything; convention
# threshold of Student's t beyond which the limit of large thresholds stands for the exact power; derived: 0.1 % apart, and the exact
# one takes minutes for a threshold of a million
_FAR_T = 1000.0
_MANY = 200  # degrees of freedom from which Student's t is a normal one; convention


@dataclass(frozen=True)
class Noise:
    """How far results differ without an effect, relative.

    Attributes:
        run: standard deviation of one run. spread: of the ratio between two sessions that were measured next to each other.
    """

    run: float
    spread: float

    @classmethod
    def of(cls, fit: blocks.Fit) -> Noise:
        """The noise that `fit` found."""
        return cls(fit.run_noise, fit.spread)


def smallest_difference(error: float, freedom: float, alpha: float, power: float = POWER) -> float:
    """The smallest relative difference that a test finds with `power`: e^(1.1 · error · ν) − 1.

    ν is the noncentrality at which Student's t passes its threshold with that power.

    Args:
        error: standard error of the mean ln ratio. alpha: the p-value below which there is a verdict.
    """
    from scipy.special import chdtri, nctdtrinc, stdtrit  # noqa: PLC0415 - 0.4 s, which jobs without a comparison need not pay

    bar = float(stdtrit(freedom, 1 - alpha / 2))
    if freedom >= _MANY:
        away = bar + float(stdtrit(freedom, power))
    elif bar > _FAR_T:
        away = bar * math.sqrt(float(chdtri(freedom, 1 - power)) / freedom)
    else:
        away = float(nctdtrinc(freedom, 1 - power, bar))
    return math.expm1(min(50.0, _MARGIN * error * away))


def visible(noise: Noise, sessions: int, levels: int, repeats: float, metrics: int = EXPECTED) -> float:
    """The smallest relative difference over all levels that so many sessions find in 8 of 10 cases.

    Args:
        sessions: of each side, `blocks.FEWEST_SESSIONS` or more. levels, repeats: of each session, each level twice the one before.
            metrics: that are judged.
    """
    cell = 2 * noise.run**2 / repeats
    one = blocks.Fit(
        effects=np.zeros(levels),
        share=np.ones(levels),
        excess=np.ones(levels),
        between=(noise.spread**2 + cell / levels) / sessions,
        between_freedom=sessions - 1.0,
        within=cell / sessions,
        within_freedom=(sessions - 1.0) * (levels - 1),
        assumed=False,
        sessions=sessions,
        repeats=repeats,
    )
    numbers = np.arange(levels)
    sweep = pl.DataFrame({"at": numbers, "workload": "", "axis": "", "level": 2.0**numbers})
    parts = parts_of(sweep, np.full(levels, fill_value=True))
    tests = np.array([part.weights for part in parts])
    weights = np.array([blocks.WEIGHTS[part.scope] for part in parts])
    together = np.full((metrics, metrics), CORRELATION) + (1 - CORRELATION) * np.eye(metrics)
    alpha = blocks.critical([one] * metrics, [tests] * metrics, [weights] * metrics, together, draws=_DRAWS)
    _, error, freedom = blocks.judge(one, tests[-1:])
    return smallest_difference(float(error[0]), float(freedom[0]), alpha)


def sessions_for(difference: float, noise: Noise, levels: int, repeats: float, metrics: int = EXPECTED) -> int | None:
    """The fewest sessions of each side that find a relative `difference` over all levels in 8 of 10 cases; None above 100.

    It is found between doublings, since more sessions always see more.
    """
    fewest = blocks.FEWEST_SESSIONS
    return least(
        lambda sessions: visible(noise, sessions, levels, repeats, metrics) <= difference, fewest, fewest, _MOST_SESSIONS
    )

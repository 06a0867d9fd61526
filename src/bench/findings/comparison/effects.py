"""From pairs of runs to verdicts, at each level and over all of them together; what a comparison can see, and how many sessions a
wanted difference takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from bench.errors import BenchError
from bench.runs.columns import COLUMNS, METRICS, Column, schema_of
from bench.statistics.levels import LEAST_NOISE, Floats, squares_within
from bench.statistics.textbook import FEWEST_POINTS, least, student_t
from bench.study.slo import Slo

#: Probability of a false verdict on a deployment, over all metrics: of all loads together, and of any level; convention: 5 % in all,
#: most of it for what is hardest to show.
WRONG = {"all": 0.03, "level": 0.02}
# probability with which a planned comparison finds its effect; source: Cohen, Statistical Power Analysis for the Behavioral Sciences,
# 1988
POWER = 0.8
_MOST_SESSIONS = 100  # most sessions that a plan asks for; convention
EXPECTED = sum(metric.source != "gpus" for metric in METRICS.values())  # that a study without GPUs has
# factor on the error for what the model leaves out: successive pairs of sessions are somewhat alike; measured:
# docs/explanation/comparing.md, without it 66 to 78 % of planned effects were found
_MARGIN = 1.1
FAR = 10.0  # factor beyond which the noise is too large to say anything; convention
# threshold of Student's t beyond which the limit of large thresholds stands for the exact power; derived: 0.1 % apart, and the exact
# one takes minutes for a threshold of a million
_FAR_T = 1000.0


@dataclass(frozen=True)
class Error:
    """What a mean ln ratio may be off by: its standard deviation, and the degrees of freedom behind it."""

    deviation: float
    freedom: float

    def and_also(self, other: Error) -> Error:
        """Both together; degrees of freedom as Satterthwaite has them."""
        one, two = self.deviation**2, other.deviation**2
        if not two:
            return self
        return Error(math.sqrt(one + two), (one + two) ** 2 / (one**2 / self.freedom + two**2 / max(other.freedom, 1.0)))

    def half_width(self, wrong: float) -> float:
        """What it stays within but for a share `wrong` of cases, by Student's t."""
        return self.deviation * student_t(self.freedom, 1 - wrong)


@dataclass(frozen=True)
class Noise:
    """How far results differ without an effect, relative.

    Attributes:
        run: standard deviation of one run. spread: of the ratio between two sessions that were measured next to each other.
    """

    run: float
    spread: float


def smallest_difference(error: Error, wrong: float) -> float:
    """The smallest relative difference that a test finds in 8 of 10 cases: e^(1.1 · error · ν) − 1.

    ν is the noncentrality at which Student's t passes its threshold with that power. Args: wrong: the p-value below which there is a
    verdict.
    """
    return math.expm1(min(50.0, _MARGIN * error.deviation * _away(error.freedom, wrong)))


@lru_cache
def _away(freedom: float, wrong: float) -> float:
    from scipy.special import chdtri, nctdtrinc  # noqa: PLC0415 - 0.4 s, which jobs without a comparison need not pay

    bar = student_t(freedom, 1 - wrong)
    if bar > _FAR_T:
        return bar * math.sqrt(float(chdtri(freedom, 1 - POWER)) / freedom)
    return float(nctdtrinc(freedom, 1 - POWER, bar))


def visible(noise: Noise, sessions: int, levels: int, repeats: float, metrics: int = EXPECTED) -> float:
    """The smallest relative difference over all levels that so many sessions find in 8 of 10 cases.

    Args:
        sessions: of each side, four or more. levels, repeats: of each session. metrics: that are judged.
    """
    deviation = math.sqrt((noise.spread**2 + 2 * noise.run**2 / (repeats * levels)) / sessions)
    return smallest_difference(Error(deviation, sessions - 1.0), WRONG["all"] / metrics)


def sessions_for(difference: float, noise: Noise, levels: int, repeats: float, metrics: int = EXPECTED) -> int | None:
    """The fewest sessions of each side that find a relative `difference` over all levels in 8 of 10 cases; None above 100.

    It is found between doublings, since more sessions always see more.
    """
    return least(lambda sessions: visible(noise, sessions, levels, repeats, metrics) <= difference, 4, 4, _MOST_SESSIONS)


# What repeats have in common. A workload's name holds the lengths that a sweep gives it.
CONFIGURATION = ("deployment", "workload", "axis", "level")
FEWEST_SESSIONS = 4  # fewest sessions that show how far sessions differ; derived: Student's t is 3.2 for four and 12.7 for two
# standard deviation of ln ratio between two sessions of one deployment, where fewer were measured; convention: a baseline against
# itself was 11 % off once (docs/explanation/decisions.md)
ASSUMED_SPREAD = 0.10
_SHARED = 0.5  # what repeats of a level share within a session, as a multiple of their noise; convention
_PASSES = 50  # of the fit of levels and sessions, each to what the other leaves; convention
_KNOWN = 1e6  # degrees of freedom of what is assumed; derived: Student's t is a normal one
_FAR = 700.0  # largest exponent of e; derived: floating-point numbers end at e to the power of 709


@dataclass(frozen=True)
class Ratio:
    """A ratio with its interval, of 95 % or of a family that holds together at 95 %; None where the noise is not known."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, log: float, half: float | None) -> Ratio:
        """The ratio whose logarithm is `log` ± `half`."""
        value = float(np.exp(log))
        if half is None:
            return cls(value, None, None)
        return cls(value, math.exp(log - half), math.exp(min(_FAR, log + half)))


@dataclass(frozen=True)
class Effect:
    """The ln ratio of a metric at a level, or over all levels, and what it may be off by."""

    log: float
    error: Error | None
    told: Mapping[str, Any]

    def beyond(self, wrong: float) -> bool:
        """Whether noise alone is as far from 0 in fewer than so many cases."""
        return self.error is not None and abs(self.log) > self.error.half_width(wrong)


def metric_of(name: str) -> Column:
    """What a comparison may look at: a column of `METRICS`, or any percentile that an SLO may limit, of a class too.

    Raises:
        BenchError: `name` is neither.
    """
    if name in METRICS:
        return METRICS[name]
    if slo := Slo.named(name):
        return replace(COLUMNS[f"{slo.metric}_{slo.percentile}_s"], name=name, title=slo.name)
    raise BenchError(
        f"{name} is not compared. Name one of {', '.join(METRICS)}, or any percentile that an SLO may limit, such as ttft_p95_s, or "
        "class_chat_ttft_p95_s of a class."
    )


def effects(pairs: pl.DataFrame, *, spread: float = ASSUMED_SPREAD, stored: bool = False) -> pl.DataFrame:
    """Every verdict on `pairs`; those of a deployment are one family, and several deployments share its 5 %.

    Args:
        pairs: `CONFIGURATION`, `session`, `repeat`, `nth`, `metric`, `log_ratio`. spread: standard deviation of the ln ratio between
            two sessions, where there are fewer than `FEWEST_SESSIONS`. stored: one side was measured after the other, so that all
            sessions share what the machine changed by between them: they count as one.

    Returns:
        One row a deployment, metric and part. `scope` is `level` or `all`; `ratio`, `low` and `high` candidate ÷ baseline (null where
        the noise is not known) at `confidence`; `verdict`; `could_see`, the smallest relative difference that such a comparison finds
        in 8 of 10 cases. Rows of `all`, each the last of its metric, have the pooled verdict in `pooled`, what all levels show in
        `verdict`, and the `noise` of a run and the `spread` of sessions (relative).
    """
    deployments = pairs["deployment"].unique(maintain_order=True).to_list()
    rows: list[dict[str, Any]] = []
    for name in deployments:
        parts = pairs.filter(deployment=name).partition_by("metric", maintain_order=True)
        found = [each for part in parts for each in _effects(part, spread, stored=stored)]
        wrong = {
            scope: _wrong([each for each in found if each.told["scope"] == scope], WRONG[scope] / len(deployments))
            for scope in WRONG
        }
        judged = [_judged(each, wrong[each.told["scope"]]) for each in found]
        for row in judged:
            if row["scope"] == "all":
                row["pooled"] = row["verdict"]
                row["verdict"] = _overall([each for each in judged if each["metric"] == row["metric"]], row["pooled"])
        rows += judged
    return pl.DataFrame(rows, schema=schema_of("comparisons"))


def shared_by_machine(machine: Ratio | None) -> str | None:
    """`better` or `worse`, as the machine became between the sides; None where no more than chance is seen.

    Args:
        machine: the candidate's time of the reference loads ÷ the baseline's.
    """
    if machine is None or machine.low is None or machine.high is None:
        return None
    return "worse" if machine.low > 1 else "better" if machine.high < 1 else None


def but_for_the_machine(effects: pl.DataFrame, machine: Ratio) -> pl.DataFrame:
    """The effects without the verdicts that the machine shares; what it may have hidden is added to `could_see`."""
    shared = shared_by_machine(machine)
    if not shared:
        return effects
    left = {"mixed": f"{'worse' if shared == 'better' else 'better'} at some loads"}
    left |= dict.fromkeys((shared, f"{shared} at some loads"), "no evidence")
    return effects.with_columns(
        pl.col("verdict", "pooled").replace(left),
        could_see=(1 + pl.col("could_see")) * max(machine.value, 1 / machine.value) - 1,
    )


def _effects(pairs: pl.DataFrame, spread: float, *, stored: bool) -> list[Effect]:
    """The effects of one deployment and metric: of each level, and of all, which comes last."""
    at = pairs.select("workload", "axis", "level").unique(maintain_order=True)
    cells = np.full((pairs["session"].n_unique(), at.height), np.nan)
    known = pairs.join(at.with_row_index("at"), on=at.columns, maintain_order="left")
    known = known.with_columns(row=pl.col("session").rank("dense") - 1)
    for row, column, mean in known.group_by("row", "at").agg(pl.col("log_ratio").mean()).iter_rows():
        cells[int(row), column] = mean
    sessions, levels = cells.shape
    logs, off, left = _fitted(cells)
    counts = np.isfinite(cells).sum(axis=0)
    repeats = pairs.height / counts.sum()
    freedom = float(max(0, counts.sum() - levels - sessions + 1))
    variance, freedom = (float(np.nansum(left**2)) / freedom, freedom) if freedom else _within_session(known, repeats)
    variance = max(variance, 2 * LEAST_NOISE**2 / repeats)
    measured = sessions >= FEWEST_SESSIONS
    enough = measured and not stored
    of_levels = (
        np.nansum(left**2, axis=0) / np.maximum(counts - 1, 1) * levels / max(1, levels - 1)
    )  # noise may grow with the load
    own = (np.maximum(variance, of_levels) if enough else variance) / counts  # of the means of levels
    apart = float(np.var(off, ddof=1)) if sessions > 1 else 0.0
    if enough:
        shared = Error(math.sqrt(max(apart, 2 * LEAST_NOISE**2 / repeats / levels) / sessions), sessions - 1.0)
        own, whole = np.maximum(own - own.mean() / levels, 0.0), 0.0  # the sessions' means have their share of it
    else:
        shared = Error(max(spread, math.sqrt(apart)) / math.sqrt(1 if stored else sessions), _KNOWN)
        whole = float(own.mean()) / levels
    common = {"deployment": pairs["deployment"][0], "metric": pairs["metric"][0]}
    runs = known.group_by("at").len().sort("at")["len"].to_list()

    def effect(log: float, variance: float, told: dict[str, Any]) -> Effect:
        error = shared.and_also(Error(math.sqrt(variance), freedom)) if freedom or enough else None
        return Effect(log, error, {**common, **told})

    found = [
        effect(float(logs[i]), float(own[i]), {"scope": "level", **place, "levels": 1, "pairs": runs[i]})
        for i, place in enumerate(at.iter_rows(named=True))
    ]
    told = {
        "scope": "all",
        "levels": levels,
        "pairs": pairs.height,
        "sessions": sessions,
        "repeats": float(repeats),
        "noise": math.sqrt(variance * repeats / 2) if freedom or enough else None,
        "spread": math.sqrt(max(0.0, apart - variance / levels)) if measured else max(spread, math.sqrt(apart)),
        "spread_assumed": bool(freedom) and not enough,
    }
    return [*found, effect(float(logs.mean()), whole, told)]


def _fitted(cells: Floats) -> tuple[Floats, Floats, Floats]:
    """The effects of levels, what sessions are off by, and what is left. Args: cells: [session, level]; NaN where there is none."""
    off = np.zeros(len(cells))
    for _ in range(_PASSES):
        logs = np.nanmean(cells - off[:, None], axis=0)
        off = np.nanmean(cells - logs, axis=1)
        off -= off.mean()
    return logs, off, cells - off[:, None] - logs


def _within_session(mine: pl.DataFrame, repeats: float) -> tuple[float, float]:
    """Variance of a cell by its repeats, which share something within a session, and its degrees of freedom; 0 where nothing shows it.

    Of one session without repeats by how far levels lie off a straight line over the log of the load, which is too much where the
    effect bends, and never too little.
    """
    alone = mine["session"].n_unique() == 1
    squares, freedom = squares_within(mine, "log_ratio", ("session", "at"), ("repeat", "nth") if alone else ())
    if freedom > 0:
        return squares / freedom * (1 / repeats + _SHARED**2), float(freedom)
    for _, curve in mine.group_by("workload", "axis") if alone else ():
        if curve.height >= FEWEST_POINTS and curve["level"].min() > 0:  # type: ignore[operator]
            line = np.polyfit(np.log(curve["level"].to_numpy()), curve["log_ratio"].to_numpy(), 1, full=True)
            squares, freedom = squares + float(sum(line[1])), freedom + curve.height - 2
    return (squares / freedom, float(freedom)) if freedom else (0.0, 0.0)


def _wrong(found: Sequence[Effect], wrong: float) -> float:
    """The probability of chance below which each is significant, so that all together are wrong in so many cases (Holm 1979)."""
    left = len(found)
    while left:
        still = max(1, len(found) - sum(each.beyond(wrong / left) for each in found))
        if still >= left:
            break
        left = still
    return wrong / max(1, left)


def _judged(effect: Effect, wrong: float) -> dict[str, Any]:
    """The row of an effect with its interval and its verdict."""
    half = effect.error.half_width(wrong) if effect.error else None
    ratio = Ratio.of(effect.log, half)
    higher = (effect.log > 0) == metric_of(effect.told["metric"]).higher_is_better
    return {
        **effect.told,
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "confidence": None if half is None else 1 - wrong,
        "verdict": ("better" if higher else "worse") if effect.beyond(wrong) else "no evidence",
        "could_see": smallest_difference(effect.error, wrong) if effect.error else None,
    }


def _overall(rows: Sequence[Mapping[str, Any]], pooled: str) -> str:
    """What the levels of a metric show together: one that is significantly worse is never averaged away."""
    sides = {row["verdict"] for row in rows}
    if {"better", "worse"} <= sides:
        return "mixed"
    side = next((side for side in ("worse", "better") if side in sides), "no evidence")
    return side if side in (pooled, "no evidence") else f"{side} at some loads"

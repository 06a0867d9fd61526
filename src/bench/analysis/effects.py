"""From pairs of runs to verdicts: by level, by region of loads, over all levels, and whether the effect changes with the load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from bench.analysis import blocks
from bench.analysis.levels import squares_within
from bench.analysis.parts import Part, parts_of
from bench.analysis.power import Noise, smallest_difference
from bench.runs.columns import METRICS, schema_of
from bench.statistics import FEWEST_POINTS

# What repeats have in common. A workload's name holds the lengths that a sweep gives it.
CONFIGURATION = ("deployment", "workload", "axis", "level")
_FAR = 700.0  # largest exponent of e; derived: floating-point numbers end at e to the power of 709
Spreads = Mapping[str, tuple[float, float]]  # of a metric: how far sessions differ, and the degrees of freedom behind it


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


def effects(pairs: pl.DataFrame, *, spread: float = blocks.ASSUMED_SPREAD, spreads: Spreads | None = None) -> pl.DataFrame:
    """Every verdict on `pairs`; those of a deployment are one family, and several deployments share its 5 %.

    Args:
        pairs: `CONFIGURATION`, `session`, `repeat`, `nth`, `metric`, `log_ratio`. spread: see `blocks.fit`. spreads: the same of single
            metrics, where replicas of the baseline show it.

    Returns:
        One row a deployment, metric and part. `scope` is `level`, `region`, `all` or `trend`; `loads` are the levels in it; `ratio`,
        `low` and `high` candidate ÷ baseline (of a trend: its factor for each doubling of the load; null where the noise is not known)
        at `confidence`; `verdict`; `could_see`, the smallest relative difference that such a comparison finds in 8 of 10 cases.
        Rows of `all`, each the last of its metric, have the pooled verdict in `pooled`, what all parts together show in `verdict`,
        and the `noise` of a run and the `spread` of sessions (relative).
    """
    deployments = pairs["deployment"].unique(maintain_order=True).to_list()
    rows: list[dict[str, Any]] = []
    for name in deployments:
        rows += _of_deployment(pairs.filter(pl.col("deployment") == name), len(deployments), spread, spreads or {})
    return pl.DataFrame(rows, schema=schema_of("comparisons"))


def _of_deployment(pairs: pl.DataFrame, share: int, spread: float, spreads: Spreads) -> list[dict[str, Any]]:
    """The rows of one deployment; its tests get one `share`-th of the 5 %."""
    configurations = pairs.select("workload", "axis", "level").unique(maintain_order=True).with_row_index("at")
    metrics = pairs["metric"].unique(maintain_order=True).to_list()
    known = pairs.join(configurations, on=["workload", "axis", "level"], maintain_order="left")
    cubes = {name: _cells(known, configurations.height, name) for name in metrics}
    fits = [_fit(*cubes[name], *spreads.get(name, (spread, 0.0))) for name in metrics]
    parts = [parts_of(configurations, np.isfinite(one.effects)) for one in fits]
    weights = [np.array([part.weights for part in some]) for some in parts]
    together = _together([cubes[name][0] for name in metrics], fits)
    shares = [np.array([blocks.WEIGHTS[part.scope] for part in some]) for some in parts]
    alpha = blocks.critical(fits, weights, shares, together) / share
    rows: list[dict[str, Any]] = []
    for name, one, some, matrix in zip(metrics, fits, parts, weights, strict=True):
        counts = known.filter(pl.col("metric") == name).group_by("at").len()
        runs = dict(zip(counts["at"], counts["len"], strict=True))
        common = {"deployment": pairs["deployment"][0], "metric": name}
        judged = _judged(one, some, matrix, alpha, METRICS[name].higher_is_better)
        mine = [{**common, **_named(part, configurations, runs), **row} for part, row in zip(some, judged, strict=True)]
        rows += _summed(mine, one)
    return rows


def _cells(known: pl.DataFrame, levels: int, metric: str) -> tuple[blocks.Floats, pl.DataFrame]:
    """[session, level] means of the pairs of a metric, NaN where there is none; and the pairs."""
    mine = known.filter(pl.col("metric") == metric)
    sessions = known["session"].unique().sort()
    index = {session: i for i, session in enumerate(sessions)}
    cells = np.full((len(sessions), levels), np.nan)
    for session, at, mean in mine.group_by("session", "at").agg(pl.col("log_ratio").mean()).iter_rows():
        cells[index[session], at] = mean
    return cells[np.isfinite(cells).any(axis=1)], mine


def _fit(cells: blocks.Floats, mine: pl.DataFrame, spread: float, freedom: float) -> blocks.Fit:
    counts = np.isfinite(cells).sum(axis=0).astype(float)
    repeats = mine.height / max(1.0, float(counts.sum()))
    noise = _within_session(mine, repeats)
    return blocks.fit(cells, counts, repeats=repeats, noise=noise, spread=spread, spread_freedom=freedom)


def _within_session(mine: pl.DataFrame, repeats: float) -> tuple[float, float]:
    """Variance of a level's mean within a session, and its degrees of freedom; 0 where nothing shows it.

    By its repeats, which share something within a session; without repeats by how far levels lie off a straight line over the log of
    the load, which is too much where the effect bends, and never too little.
    """
    alone = mine["session"].n_unique() == 1
    squares, freedom = squares_within(mine, "log_ratio", ("session", "at"), ("repeat", "nth") if alone else ())
    if freedom > 0:
        return squares / freedom * (1 / repeats + blocks.SHARED**2), float(freedom)
    if not alone:
        return 0.0, 0.0
    squares, freedom = 0.0, 0
    for _, curve in mine.group_by("workload", "axis"):
        if curve.height >= FEWEST_POINTS and curve["level"].min() > 0:  # type: ignore[operator]
            line = np.polyfit(np.log(curve["level"].to_numpy()), curve["log_ratio"].to_numpy(), 1, full=True)
            squares, freedom = squares + float(sum(line[1])), freedom + curve.height - 2
    return (squares / freedom, float(freedom)) if freedom else (0.0, 0.0)


def _together(cells: Sequence[blocks.Floats], fits: Sequence[blocks.Fit]) -> blocks.Floats:
    """Correlation of the metrics' noise, from what is left of the cells without the levels' effects."""
    if len({one.shape for one in cells}) > 1 or len(cells[0]) == 1:
        return np.eye(len(fits))
    left = [np.nan_to_num(one - fit.effects).ravel() for one, fit in zip(cells, fits, strict=True)]
    return blocks.correlation(np.array(left).T, len(cells[0]) - 1.0)


def _judged(one: blocks.Fit, parts: Sequence[Part], weights: Any, alpha: float, higher_is_better: bool) -> list[dict[str, Any]]:
    from scipy.special import stdtrit  # noqa: PLC0415 - 0.4 s, which jobs without a comparison need not pay

    estimate, error, freedom = blocks.judge(one, weights)
    own = np.array([alpha * blocks.WEIGHTS[part.scope] for part in parts])
    half = stdtrit(freedom, 1 - own / 2) * error
    rows = []
    for i, part in enumerate(parts):
        log, width = float(estimate[i]), float(half[i])
        known = one.known and (part.scope != "trend" or one.within_freedom > 0)
        ratio = Ratio.of(log, width if known else None)
        up, down = known and log - width > 0, known and log + width < 0
        good, bad = (up, down) if higher_is_better else (down, up)
        verdict = "better" if good else "worse" if bad else "no evidence"
        if part.scope == "trend" and verdict != "no evidence":
            verdict = f"{verdict} as load grows"
        rows.append(
            {
                "ratio": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "confidence": 1 - float(own[i]) if known else None,
                "verdict": verdict,
                "could_see": smallest_difference(float(error[i]), float(freedom[i]), float(own[i])) if known else None,
            }
        )
    return rows


def _named(part: Part, configurations: pl.DataFrame, runs: Mapping[int, int]) -> dict[str, Any]:
    at = np.flatnonzero(part.weights)
    if part.scope == "trend":
        at = np.array([row for row in configurations.filter(workload=part.workload, axis=part.axis)["at"] if row in runs])
    loads = [configurations["level"][int(i)] for i in at]
    return {
        "scope": part.scope,
        "workload": part.workload,
        "axis": part.axis,
        "region": part.region,
        "level": loads[0] if part.scope == "level" else None,
        "loads": sorted(loads),
        "levels": len(at),
        "pairs": sum(runs.get(int(i), 0) for i in at),
    }


def _summed(rows: list[dict[str, Any]], one: blocks.Fit) -> list[dict[str, Any]]:
    """The rows of a metric, with the verdict of all of them in the row of all levels."""
    whole = rows[-1]
    noise = Noise.of(one)
    whole |= {
        "pooled": whole["verdict"],
        "sessions": one.sessions,
        "repeats": one.repeats,
        "noise": noise.run if one.known else None,
        "spread": noise.spread,
        "spread_assumed": one.assumed,
    }
    whole["verdict"] = _overall_verdict(rows)
    return rows


def _overall_verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the parts of a metric show together: a level that is significantly worse is never averaged away."""
    sides = {row["verdict"] for row in rows if row["scope"] != "trend"}
    pooled = rows[-1]["verdict"]
    if {"better", "worse"} <= sides:
        return "mixed"
    for side in ("worse", "better"):
        if side in sides:
            return side if pooled == side else f"{side} at some loads"
    changes = any(row["scope"] == "trend" and row["verdict"] != "no evidence" for row in rows)
    return "changes with load" if changes else "no evidence"

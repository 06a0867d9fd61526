"""The Pareto frontier: loads within the SLOs that no other one beats both in speed and in throughput per dollar or GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, variance
from typing import Any

import polars as pl

from bench.analysis.blocks import ASSUMED_SPREAD, FEWEST_SESSIONS
from bench.analysis.economics import Prices, economics
from bench.analysis.level_values import level_values
from bench.analysis.sizing import HOUR_S
from bench.statistics import TAIL, student_t

_LEVEL = ("deployment", "workload", "axis", "level")
_METRIC = "throughput_tokens_per_s"
#: By what throughput is counted, the first that is known of all levels.
THROUGHPUTS = ("a_dollar", "a_gpu", "an_instance")
_DIVISORS = {"a_dollar": "dollars", "a_gpu": "gpus"}  # by what an instance's tokens/s are divided


def trade_offs(
    runs: pl.DataFrame, latency: str, *, capacity: pl.DataFrame | None = None, prices: Prices | None = None
) -> pl.DataFrame:
    """What a user waits and what the hardware gives at each level (`level_values`), and which levels are on the frontier of both.

    Levels are left out at which either is not known or 0, or the latency is infinite because too many requests failed.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `session`, `valid`, the latency, `throughput_tokens_per_s`,
            `gpus`, and what `economics` reads). latency: column of what is to be short (s), such as `tpot_p50_s`.
        capacity: rows of `operating_points` under the SLOs; None without any. A curve that has no row has no limit.
        prices: what an hour costs; None: not known.

    Returns:
        One row a level: `deployment`, `workload`, `axis`, `level`, the latency (s), `an_instance` and `a_gpu` (output tokens/s),
        `a_dollar` (output tokens a USD), each null where not known; `within`, whether the level is sustained within the SLOs (null
        where not known, as its load was never steady); `unbeaten` among those of its workload that are, by `throughput_of`; and
        `established`: whether that is more than noise could have made of it, at 95 % for each level. Without repeats no level is
        established to beat another.
    """
    cost = None if prices is None else economics(runs, prices)["cost_per_h"] / HOUR_S
    priced = runs.with_columns(dollars=pl.lit(cost, dtype=pl.Float64))
    values = pl.col(latency, _METRIC)
    known = pl.all_horizontal(values.is_finite() & (values > 0))
    levels = level_values(priced, [latency, _METRIC, "gpus", "dollars"]).filter(known)
    divided = {
        name: pl.when(pl.col(divisor) > 0).then(pl.col(_METRIC) / pl.col(divisor)) for name, divisor in _DIVISORS.items()
    }
    levels = levels.with_columns(an_instance=pl.col(_METRIC), **divided)
    each = throughput_of(levels)
    divisor = _DIVISORS.get(each)
    noise = (
        priced.filter("valid", known, *([pl.col(divisor) > 0] if divisor else []))
        .group_by(_LEVEL, maintain_order=True)
        .agg(
            fast=-pl.col(latency).log(),
            cheap=pl.col(_METRIC).log() - (pl.col(divisor).log() if divisor else 0.0),
            sessions=pl.col("session").fill_null(1).n_unique(),
        )
    )
    limits = {(row["deployment"], row["workload"]): row for row in (capacity.to_dicts() if capacity is not None else ())}
    within = [_within(row, limits.get((row["deployment"], row["workload"]))) for row in levels.iter_rows(named=True)]
    levels = levels.with_columns(
        within=pl.Series([meets for meets, _ in within], dtype=pl.Boolean),
        shown=pl.Series([shown for _, shown in within], dtype=pl.Boolean),
    ).join(noise, on=_LEVEL, how="left", maintain_order="left")
    parts = [_judged(part, latency, each) for part in levels.partition_by("workload", maintain_order=True)]
    whole = pl.concat(parts) if parts else levels.with_columns(unbeaten=pl.lit(True), established=pl.lit(False))
    return whole.select(*_LEVEL, latency, *THROUGHPUTS[::-1], "within", "unbeaten", "established")


def throughput_of(levels: pl.DataFrame) -> str:
    """The first of `THROUGHPUTS` that all levels have. Args: levels: of `trade_offs`."""
    return next(name for name in THROUGHPUTS if not levels[name].null_count())


def _within(level: Mapping[str, Any], limit: Mapping[str, Any] | None) -> tuple[bool | None, bool]:
    """Whether a level is sustained within the SLOs, None where not known, and whether the limit's 95 % interval shows it.

    Args:
        limit: the curve's row of `operating_points`; None where nothing limits it.
    """
    if limit is None:
        return True, True
    load, low, high = level["level"], limit["low"], limit["high"]
    if limit["c_max"] is not None and load <= limit["c_max"]:
        return True, low is not None and load <= low
    if limit["missed_at"] is not None and load >= limit["missed_at"] and limit["kind"] in ("found", "below"):
        shown = high is not None and load >= high
        close = load == limit["missed_at"] and any(miss["close"] for miss in limit["missed"])  # too close to tell
        return None if close and not shown else False, shown
    return None, False


def _judged(part: pl.DataFrame, latency: str, each: str) -> pl.DataFrame:
    """The levels of one workload, with `unbeaten` and `established`. Args: each: of `THROUGHPUTS`."""
    rows = part.to_dicts()
    points = [(-row[latency], row[each]) for row in rows]
    front = [
        bool(row["within"])
        and not any(
            other["within"] and c >= a and d >= b and (c, d) != (a, b) for other, (c, d) in zip(rows, points, strict=True)
        )
        for row, (a, b) in zip(rows, points, strict=True)
    ]
    return part.with_columns(
        unbeaten=pl.Series(front, dtype=pl.Boolean), established=pl.Series(_established(rows, front), dtype=pl.Boolean)
    )


def _established(levels: Sequence[Mapping[str, Any]], front: Sequence[bool]) -> list[bool]:
    """Whether it is more than noise that each level is on the frontier, or that it is not.

    A run's noise is what the repeats of all levels show, in ln; of two deployments with fewer than four sessions, starts are held to
    differ by 10 % beside it. A level is off the frontier where it significantly misses an SLO, or where one other that significantly
    meets them is significantly better in both; it is on it where it significantly meets them, and each other that may meet them is
    significantly worse in one. Each is shown at 5 % ÷ the number of others (Bonferroni), by Student's t.

    Args:
        levels: of one workload, each with `fast` and `cheap`, the ln of its runs' values, null where no run has both; `within` and
            `shown`, as `_within` has them.
    """
    axes = [(level["fast"] or [], level["cheap"] or []) for level in levels]
    freedom = sum(len(fast) - 1 for fast, _ in axes if fast)
    noise = [sum((len(a[i]) - 1) * variance(a[i]) for a in axes if len(a[i]) > 1) / max(1, freedom) for i in (0, 1)]
    bar = student_t(freedom, 1 - 4 * TAIL / max(1, len(levels) - 1)) if freedom else math.inf

    def above(one: int, other: int, axis: int) -> bool:
        """Whether `one` is significantly higher; false where either has no run to tell."""
        mine, its = axes[one][axis], axes[other][axis]
        if not (mine and its and freedom):
            return False
        apart = levels[one]["deployment"] != levels[other]["deployment"]
        sessions = min(levels[one]["sessions"], levels[other]["sessions"])
        starts = ASSUMED_SPREAD**2 / sessions if apart and sessions < FEWEST_SESSIONS else 0.0
        return fmean(mine) - fmean(its) > bar * math.sqrt(noise[axis] * (1 / len(mine) + 1 / len(its)) + starts)

    every = range(len(levels))
    meets = [level["within"] and level["shown"] for level in levels]
    misses = [level["within"] is False and level["shown"] for level in levels]
    rivals = [sum(not misses[j] for j in every if j != i) for i in every]
    return [
        bool(freedom or not rivals[i])
        and meets[i]
        and all(above(i, j, 0) or above(i, j, 1) for j in every if j != i and not misses[j])
        if front[i]
        else misses[i] or any(meets[j] and above(j, i, 0) and above(j, i, 1) for j in every)
        for i in every
    ]

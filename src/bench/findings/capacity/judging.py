"""Whether a level of load is sustained: what its runs show of each criterion, by the limit that all runs together show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from threadpoolctl import threadpool_limits

from bench.axes import RATE
from bench.parse.drift import USUAL_WEIGHT
from bench.parse.observation import observations
from bench.runs.latencies import class_names
from bench.statistics.limit import Belief, beliefs, lowest
from bench.statistics.observation import SPEEDS_DIFFER
from bench.statistics.percentiles import RATE_BATCHES, Share, percentile
from bench.statistics.textbook import student_t
from bench.study.slo import Slo, applying

# probability that the limit lies below a level up to which the level counts as sustained; tuned: benchmarks.capacity: to claim too
# much is dearer than too little
DOUBT = 0.25


@dataclass(frozen=True)
class Miss:
    """A criterion that a level misses, and by what.

    Attributes:
        by: the SLO's column, `failed` or `growth`. limit_s: of an SLO. reached_s: its percentile; None where so many failed that it
            is not known. share: of the requests that fail or take longer (0–1). misses, requests: behind that share.
        below: the probability that the limit lies below the level, by all runs of the curve.
        growth: requests that pile up, as a share of those that come.
        close: whether what was measured at the level is within it, and all runs of the curve together leave it in doubt.
    """

    by: str
    limit_s: float | None = None
    reached_s: float | None = None
    share: float | None = None
    misses: int | None = None
    requests: int | None = None
    below: float | None = None
    growth: float | None = None
    close: bool = False


@dataclass(frozen=True)
class Verdict:
    """One level on one criterion.

    Attributes:
        key: the SLO's column, `failed` or `growth`. allowed: share of requests that may miss; of those that come, that may pile up.
        below: the probability that this criterion's limit lies below the level.
        share: of requests; None for growth. limit_s, reached_s: an SLO's limit, and its percentile, None where so many failed that it
            is not known. growth: the estimate of it. grows: whether every run of the level was seen to grow, if not by how much.
    """

    key: str
    allowed: float
    share: Share | None = None
    limit_s: float | None = None
    reached_s: float | None = None
    growth: float | None = None
    grows: bool = False
    below: float = 0.0

    @property
    def met(self) -> bool:
        """Whether it is met.

        Of failures the share that was seen decides: a refusal is certain, a percentile is an estimate. So it does where requests are
        too few to ever show that a percentile is met; the interval stays wide.
        """
        share = self.share
        if self.key == "failed" and share:
            return share.share <= self.allowed
        if share and share.requests / share.spread < math.log(DOUBT) / math.log1p(-self.allowed):
            return share.share <= self.allowed or self.below <= DOUBT
        return self.below <= DOUBT and not self.grows

    @property
    def over(self) -> bool:
        """Whether the requests that were judged exceed an SLO's limit."""
        return self.limit_s is not None and self.reached_s is not None and self.reached_s > self.limit_s

    @property
    def miss(self) -> Miss:
        """What the level misses of this criterion, and by how much."""
        if self.share is None:
            close = not self.grows and self.below < 1 - DOUBT
            return Miss(self.key, below=self.below, growth=self.growth, close=close)
        share = self.share
        close = share.share <= self.allowed and not self.over
        counts = (share.share, int(share.misses), int(share.requests))
        return Miss(self.key, self.limit_s, self.reached_s, *counts, self.below, close=close)


@dataclass
class Level:
    """The runs of one level that can be judged.

    Attributes:
        rows: those that can: with a steady window, or of a burst. unsettled: why none can, as columns of `capacity`; empty where
            some can.
        rate, error: requests/s, and half of its 95 % interval. offered: what was sent (requests/s); 0 of a closed loop.
    """

    load: float
    rows: list[dict[str, Any]]
    unsettled: Mapping[str, Any] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    rate: float = 0.0
    error: float = 0.0
    offered: float = 0.0

    @property
    def missed(self) -> list[Verdict]:
        """The criteria that are not met."""
        return [verdict for verdict in self.verdicts if not verdict.met]

    @property
    def misses(self) -> list[Miss]:
        """The criteria that the level misses, by how much; where what was measured is within all, those that are too close to tell."""
        found = [verdict.miss for verdict in self.missed]
        return [miss for miss in found if not miss.close] or found


def limits_of(curve: pl.DataFrame, slos: Sequence[Slo]) -> list[Slo]:
    """Those of the SLOs that limit a curve: of all requests, and of the classes that it has. Args: curve: its summary rows."""
    return applying(slos, class_names(curve["classes"][0] if "classes" in curve.columns else None))


def unmeasured(rows: Sequence[Mapping[str, Any]], slo: Slo) -> bool:
    """Whether no answer of a level has the SLO's latency: unstreamed ones have no TTFT, those of a single token, or that the server
    does not count, no TPOT.
    """
    sent = [x for row in rows for x in row["judged"] or ()]
    answers = [x for x in sent if x["ok"] and slo.request_class in (None, x.get("request_class"))]
    return bool(answers) and all(x[slo.metric] is None for x in answers)


def judged_levels(
    valid: Sequence[dict[str, Any]], slos: Sequence[Slo], failed_share: float
) -> tuple[list[Level], Belief | None]:
    """The levels of one curve, ascending, and the highest load within all criteria; None where none of them is ever in question.

    Args:
        valid: summary rows of the curve's valid runs. failed_share: of requests that may fail (0–1).
    """
    burst = valid[0]["arrival"] == "burst"
    rate = valid[0]["axis"] == RATE and not any((row["turns"] or 1) > 1 for row in valid)  # the level is what is offered
    levels = []
    for load in sorted({row["level"] for row in valid}):
        levels.append(_level([row for row in valid if row["level"] == load], load, slos, failed_share, burst))
    settled = [level for level in levels if not level.unsettled and not burst]
    noise = noise_of(settled)
    for level in settled:
        level.rate, level.error = rate_of(level.rows, level.load if rate else None, noise)
        level.offered = level.load if rate else 0.0
    runs = [row for level in levels if not level.unsettled for row in level.rows]
    seen = observations(runs, slos, failed_share)
    with threadpool_limits(limits=1, user_api="blas"):  # matrices are small: more threads take longer
        limits = beliefs(seen) if seen else {}
    for level in levels:
        level.verdicts = [
            replace(verdict, below=limits[verdict.key].lies_below(level.load)) if verdict.key in limits else verdict
            for verdict in level.verdicts
        ]
    return levels, lowest(limits.values()) if limits else None


def _level(rows: list[dict[str, Any]], load: float, slos: Sequence[Slo], failed_share: float, burst: bool) -> Level:
    if burst:
        judged = [row for row in rows if row["judged"]]
        level = Level(load, judged, {} if judged else {"unsettled": "empty"})
    else:
        judged = [row for row in rows if row["steady_why"] != "short" and row["steady_from_s"] is not None and row["judged"]]
        needs = math.ceil(max((row["steady_needs_s"] or 0 for row in rows), default=0)) or None
        level = Level(load, judged, {} if judged else {"unsettled": "short", "unsettled_needs_s": needs})
    sent = {each.get("request_class") for row in judged for each in row["judged"]}
    if absent := [slo.request_class for slo in slos if slo.request_class and slo.request_class not in sent]:
        level.unsettled = level.unsettled or {"unsettled": "absent", "unsettled_class": absent[0]}
    if level.unsettled:
        return level
    for slo in slos:
        latencies = np.concatenate([_latencies(row, slo) for row in judged])
        share = Share.of([_latencies(row, slo) > slo.limit_s for row in judged])
        reached = percentile(pl.Series(latencies, dtype=pl.Float64), slo.share)
        level.verdicts.append(
            Verdict(slo.column, 1 - slo.share, share, limit_s=slo.limit_s, reached_s=None if reached == math.inf else reached)
        )
    failed = [np.array([not x["ok"] for x in row["judged"]], dtype=bool) for row in judged]
    level.verdicts.append(Verdict("failed", failed_share, Share.of(failed)))
    if not burst and (known := [row["steady_growth"] for row in judged if row["steady_growth"] is not None]):
        grows = all(row["steady_why"] == "grows" for row in judged)
        level.verdicts.append(Verdict("growth", 0.0, growth=fmean(known), grows=grows))
    return level


def _latencies(row: Mapping[str, Any], slo: Slo) -> npt.NDArray[np.float64]:
    """The latencies (s) of the requests that the SLO limits, in the order of sending; infinite of those that failed."""
    mine = [x for x in row["judged"] if slo.request_class in (None, x.get("request_class"))]
    known = [x[slo.metric] if x["ok"] else math.inf for x in mine]
    return np.array([value for value in known if value is not None])


def noise_of(levels: Sequence[Level]) -> float:
    """Half of the 95 % interval of a run's rate, as a share of it, from how far the runs of each level are from their mean, of all
    levels together: two runs show no interval by themselves. 0 where no level has several.
    """
    squares, freedom = 0.0, 0
    for level in levels:
        rates = np.array([row["steady_requests_per_s"] for row in level.rows])
        if len(rates) > 1 and rates.mean() > 0:
            squares += float(np.sum((rates / rates.mean() - 1) ** 2))
            freedom += len(rates) - 1
    if freedom == 1:  # whose interval would be wider than anything that was measured: another pair differs as sessions do
        squares, freedom = squares + SPEEDS_DIFFER**2, 2
    return student_t(freedom) * math.sqrt(squares / freedom) if freedom else 0.0


def most_given(valid: Sequence[Mapping[str, Any]]) -> float:
    """The most that the server may have given at any load (requests/s): the highest upper end of a level's rate.

    Rates of windows that are too short for latencies count. Where a level has several runs, how far these differ tells a run's error.
    Else the batches do that vary least: those of a short run hold prompts and answers in turn, which even out over the run.

    Args:
        valid: summary rows of a curve's valid runs.
    """
    levels: dict[float, list[dict[str, Any]]] = {}
    for row in valid:
        if row["steady_from_s"] is not None and row["steady_requests_per_s"] is not None:
            levels.setdefault(row["level"], []).append(dict(row))
    if not levels:
        return math.inf
    batches = student_t(RATE_BATCHES - 1) * min(row["steady_error"] or 0.0 for rows in levels.values() for row in rows)
    error = noise_of([Level(load, rows) for load, rows in levels.items()]) or batches
    return max(sum(rate_of(rows, None, error, batches=False)) for rows in levels.values())


def rate_of(
    rows: Sequence[Mapping[str, Any]], offered: float | None, noise: float, *, batches: bool = True
) -> tuple[float, float]:
    """Requests/s of a level, the mean of its runs and no more than it offered, and half of its 95 % interval.

    Args:
        noise: of a run, as `noise_of` has it. batches: whether those within each run tell of its error.
    """
    rates = [row["steady_requests_per_s"] for row in rows]
    mean = float(np.mean(rates))
    within = [row["steady_error"] or 0.0 for row in rows]
    error = student_t(RATE_BATCHES - 1) * mean * math.sqrt(sum(e**2 for e in within)) / len(rates)
    if not batches:
        error = noise * mean / math.sqrt(len(rates))
    elif len(rates) > 1:
        error = max(error, noise * mean / math.sqrt(len(rates)))
    between = mean * _between_sessions(rows)
    # Runs of several sessions show how far sessions differ; those of one do not.
    several = len({row["session"] or 1 for row in rows}) > 1
    return (mean if offered is None else min(mean, offered)), max(error, between) if several else math.hypot(error, between)


def _between_sessions(rows: Sequence[Mapping[str, Any]]) -> float:
    """Half of the 95 % interval, as a share of the rate, by which starts of a server differ in speed.

    From the variance of the logarithms of the sessions' means, moderated by one that was measured (Smyth 2004): a single session shows
    none.
    """
    sessions: dict[int, list[float]] = {}
    for row in rows:
        sessions.setdefault(row["session"] or 1, []).append(row["steady_requests_per_s"])
    means = [float(np.mean(rates)) for rates in sessions.values()]
    logs = np.log([value for value in means if value > 0] or [1.0])
    freedom = USUAL_WEIGHT + len(logs) - 1
    variance = (USUAL_WEIGHT * SPEEDS_DIFFER**2 + float(np.sum((logs - logs.mean()) ** 2))) / freedom
    return student_t(freedom) * math.sqrt(variance / len(logs))

"""Whether a level of load is sustained: each criterion's estimate with its interval, and what neighbouring levels add to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.analysis.proportions import Share, lent, near
from bench.parse.percentiles import percentile
from bench.parse.steady import GROWS, RATE_BATCHES, SURE_GROWTH
from bench.records.columns import JUDGED_FIELDS
from bench.statistics import isotonic, student_t
from bench.study import Slo

__all__ = ["Level", "Miss", "Unsettled", "Verdict", "judged_levels"]

# confidence at which a level meets an SLO; measured: docs/explanation/decisions.md, "In doubt, slightly less" (82 servers)
_LIKELY = 0.6
_FEWEST_SPREAD = 5  # fewest requests beyond a limit that show over-dispersion; tuned: benchmarks.capacity
_COMPARABLE = 2.0  # miss share ÷ allowed share up to which a level shows over-dispersion; tuned: benchmarks.capacity
# standard deviation of ln rate from one session to the next, until several have shown it; measured: docs/explanation/decisions.md,
# 1.9 to 3.4 % in four measurements of the default study
_SESSIONS_DIFFER = 0.04
_SESSIONS_WEIGHT = 6  # degrees of freedom that this counts for (Smyth 2004, as in drift.py); convention


@dataclass(frozen=True)
class Unsettled:
    """Why no run of a level can be judged.

    Attributes:
        kind: `empty`, nothing was sent in a burst; `short`, no run lasted until its load was steady; `absent`, none was of a class
            that an SLO limits.
        needs_s: how long the load should last (whole seconds); None where that is not known. request_class: that is absent.
    """

    kind: Literal["empty", "short", "absent"]
    needs_s: int | None = None
    request_class: str | None = None


@dataclass(frozen=True)
class Miss:
    """A criterion that a level misses, and by what.

    Attributes:
        by: the SLO's column, `failed` or `growth`. limit_s: of an SLO. reached_s: its percentile, of the requests that were answered;
            None where none was. share: of the requests that fail or take longer (0–1). misses, requests: behind that share.
        smoothed: that share, smoothed over the levels about it. growth: requests that pile up, as a share of those that come.
    """

    by: str
    limit_s: float | None = None
    reached_s: float | None = None
    share: float | None = None
    misses: int | None = None
    requests: int | None = None
    smoothed: float | None = None
    growth: float | None = None


@dataclass(frozen=True)
class Verdict:
    """One level on one criterion: the estimate and its 95 % interval, against what is allowed.

    Attributes:
        key: the SLO's column, `failed` or `growth`.
        weight: requests behind it, of one spread over requests that resemble their neighbours. share: of requests; None of growth.
        limit_s, reached_s: an SLO's limit, and what its percentile is of the requests that were answered. growth: the estimate of it.
        smoothed: the value, smoothed over the levels about it; None before.
    """

    key: str
    value: float
    low: float
    high: float
    allowed: float
    weight: float
    share: Share | None = None
    limit_s: float | None = None
    reached_s: float | None = None
    growth: float | None = None
    smoothed: float | None = None

    @classmethod
    def of(
        cls, key: str, share: Share, allowed: float, *, limit_s: float | None = None, reached_s: float | None = None
    ) -> Verdict:
        """The verdict on a share of requests."""
        return cls(key, share.share, *share.interval(), allowed, share.requests / share.spread, share, limit_s, reached_s)

    @property
    def miss(self) -> Miss:
        """By what it is missed."""
        if self.share is None:
            return Miss(self.key, growth=self.growth)
        share = self.share
        return Miss(self.key, self.limit_s, self.reached_s, share.share, int(share.misses), int(share.requests), self.smoothed)

    @property
    def significantly_met(self) -> bool:
        return self.high <= self.allowed

    def likely(self, value: float) -> bool:
        """Whether it is met, with `value` in place of the estimate.

        A limit on a latency at 60 % confidence, as to claim too much is dearer than too little. With too few requests to ever show
        that, the value itself decides, and the interval stays wide. For failures the share decides: a refusal is certain, a percentile
        is an estimate.
        """
        if self.key == "failed":
            return value <= self.allowed * (1 + 1e-9)
        enough = self.weight >= math.log(1 - _LIKELY) / math.log1p(-self.allowed)
        if self.weight > 1 and enough:
            value = Share(value * self.weight, self.weight).interval(2 * _LIKELY - 1)[1]
        return value <= self.allowed * (1 + 1e-9)


@dataclass
class Level:
    """The runs of one level that can be judged.

    Attributes:
        rows: those that can: with a steady window, or of a burst. unsettled: why none can; None where some can.
        rate, error: requests/s, and half of its 95 % interval.
        failed: of each run's requests, in the order of sending: whether it failed.
        meets: by the smoothed estimates of all criteria. significantly_meets, significantly_misses: by their intervals.
    """

    load: float
    rows: list[dict[str, Any]]
    unsettled: Unsettled | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    rate: float = 0.0
    error: float = 0.0
    offered: float = 0.0
    failed: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    meets: bool = True
    missed: list[Verdict] = field(default_factory=list)

    @property
    def significantly_meets(self) -> bool:
        return self.unsettled is None and all(v.significantly_met for v in self.verdicts)

    @property
    def significantly_misses(self) -> bool:
        return any(v.low > v.allowed for v in self.verdicts)


def judged_levels(
    valid: Sequence[dict[str, Any]], slos: Sequence[Slo], failed_share: float, *, burst: bool, rate: bool
) -> list[Level]:
    """The levels of one curve, ascending, each judged by its own requests and by those of the levels about it.

    Args:
        valid: summary rows of the curve's valid runs. failed_share: of requests that may fail (0–1). rate: whether the level is what is
            offered, in requests/s.
    """
    levels = []
    for load in sorted({row["level"] for row in valid}):
        levels.append(_level([row for row in valid if row["level"] == load], load, slos, failed_share, burst, rate))
    settled = [level for level in levels if level.unsettled is None]
    _share_spreads(settled)
    _bound_failures(settled)
    _smooth(settled)
    return levels


def _level(rows: list[dict[str, Any]], load: float, slos: Sequence[Slo], failed_share: float, burst: bool, rate: bool) -> Level:
    if burst:
        judged = [row for row in rows if row["judged"]]
        level = Level(load, judged, None if judged else Unsettled("empty"))
    else:
        judged = [row for row in rows if row["steady_why"] != "short" and row["steady_from_s"] is not None and row["judged"]]
        level = Level(load, judged, None if judged else _too_short(rows))
    sent = {each.get("request_class") for row in judged for each in row["judged"]}
    if absent := [slo.request_class for slo in slos if slo.request_class and slo.request_class not in sent]:
        level.unsettled = level.unsettled or Unsettled("absent", request_class=absent[0])
    if level.unsettled is not None:
        return level
    requests = [pl.DataFrame(row["judged"], schema=JUDGED_FIELDS) for row in judged]
    level.verdicts = [_by_slo(requests, slo) for slo in slos]
    level.failed = [(~run["ok"]).to_numpy() for run in requests]
    level.verdicts.append(_by_failures(level.failed, failed_share))
    if not burst:
        level.verdicts += _by_growth(judged)
        level.rate, level.error = _rate(judged, load if rate else None)
        level.offered = load if rate else 0.0
    return level


def _by_slo(requests: Sequence[pl.DataFrame], slo: Slo) -> Verdict:
    value = pl.col(slo.metric)
    mine = pl.lit(value=True) if slo.request_class is None else pl.col("request_class").eq_missing(slo.request_class)
    known = [run.filter(mine & (~pl.col("ok") | value.is_not_null())) for run in requests]
    missed = [run.select(~pl.col("ok") | (value > slo.limit_s)).to_series().to_numpy() for run in known]
    share = Share.of(missed)
    values = pl.concat([run.filter("ok")[slo.metric] for run in known])
    return Verdict.of(slo.column, share, 1 - slo.share, limit_s=slo.limit_s, reached_s=percentile(values, slo.share))


def _by_failures(runs: Sequence[npt.NDArray[np.bool_]], allowed: float) -> Verdict:
    share = Share.of(runs)
    return Verdict.of("failed", share, allowed)


def _share_spreads(levels: Sequence[Level]) -> None:
    """Give each level the over-dispersion of those about it.

    A level whose misses happen to be few and not clustered would count for more than its neighbours, with an interval below the
    truth.
    """
    loads = np.log([level.load for level in levels])
    for k, verdict in enumerate(levels[0].verdicts if levels else ()):
        shares = [level.verdicts[k].share for level in levels]
        spreads = np.array([_own_spread(share, _COMPARABLE * verdict.allowed) for share in shares])
        known = np.isfinite(spreads)
        for level, load, share in zip(levels, loads, shares, strict=True):
            weights = near(loads[known], load)
            if share is not None and weights.sum():
                spread = max(share.spread, float(np.average(spreads[known], weights=weights)))
                own = level.verdicts[k]
                spread_share = replace(share, spread=spread)
                level.verdicts[k] = Verdict.of(own.key, spread_share, own.allowed, limit_s=own.limit_s, reached_s=own.reached_s)


def _own_spread(share: Share | None, most: float) -> float:
    """Over-dispersion that a level shows itself; NaN where too few requests miss to show it, or more than `most` do: those differ."""
    return share.within if share and share.misses >= _FEWEST_SPREAD and share.share <= most else math.nan


def _bound_failures(levels: Sequence[Level]) -> None:
    """Bound the failures of each level by those of the levels above it as well, where no fewer fail.

    Few requests show little of a rare failure: it takes 368 without one to bound the rate by 1 %. But a server that refuses at a load
    refuses more above it, so a level's failure rate is at most that pooled with any of the next levels. Where nothing fails from a
    level on, the SLOs, which a failed request misses too, are bound enough. Where no request may fail, no number of requests could
    show that: it is enough that none did.
    """
    for i, level in enumerate(levels):
        at = next(k for k, verdict in enumerate(level.verdicts) if verdict.key == "failed")
        verdict = level.verdicts[at]
        here = any(run.any() for run in level.failed)
        if not here and (not verdict.allowed or not any(run.any() for above in levels[i:] for run in above.failed)):
            level.verdicts[at] = replace(verdict, high=0.0)
            continue
        high, pooled = verdict.high, list(level.failed)
        for above in levels[i + 1 :]:
            if high <= verdict.allowed or above.verdicts[at].low > verdict.allowed:
                break
            pooled += above.failed
            high = min(high, Share.of(pooled).interval()[1])
        level.verdicts[at] = replace(verdict, high=high)


def _by_growth(rows: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Whether requests pile up; nothing for a closed loop, where they cannot."""
    known = [(row["steady_growth"], row["steady_growth_error"]) for row in rows if row["steady_growth"] is not None]
    if not known:
        return []
    growth = sum(value for value, _ in known) / len(known)
    error = math.sqrt(sum(error**2 for _, error in known)) / len(known)
    if len(known) > 1:
        error = max(error, float(np.std([value for value, _ in known], ddof=1)) / math.sqrt(len(known)))
    half = SURE_GROWTH * error
    # The estimate is one standard error lower: latencies and the rate show an overload too. Growth is significantly within the limit
    # where its upper end is below twice that: near its limit no queue shows less.
    return [Verdict("growth", growth - error, growth - half, (growth + half) / 2, GROWS, 1.0, growth=growth)]


def _rate(rows: Sequence[Mapping[str, Any]], offered: float | None) -> tuple[float, float]:
    """Requests/s of a level, the mean of its runs and no more than it offered, and half of its 95 % interval."""
    rates = [row["steady_requests_per_s"] for row in rows]
    mean = float(np.mean(rates))
    within = [row["steady_error"] or 0.0 for row in rows]
    error = student_t(RATE_BATCHES - 1) * mean * math.sqrt(sum(e**2 for e in within)) / len(rates)
    if len(rates) > 1:
        error = max(error, student_t(len(rates) - 1) * float(np.std(rates, ddof=1)) / math.sqrt(len(rates)))
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
    freedom = _SESSIONS_WEIGHT + len(logs) - 1
    variance = (_SESSIONS_WEIGHT * _SESSIONS_DIFFER**2 + float(np.sum((logs - logs.mean()) ** 2))) / freedom
    return student_t(freedom) * math.sqrt(variance / len(logs))


def _smooth(levels: Sequence[Level]) -> None:
    """Judge each level by shares that are smoothed over nearby loads (`lent`), and never fall as load rises."""
    loads = [level.load for level in levels]
    failures = [next(v for v in level.verdicts if v.key == "failed") for level in levels]
    serves = [i for i, failed in enumerate(failures) if failed.value <= failed.allowed]
    for verdicts in zip(*(level.verdicts for level in levels), strict=True):
        shares, weights = [v.value for v in verdicts], [v.weight for v in verdicts]
        # A refused request misses every SLO, so loads with refusals lend nothing to others. Under an open loop the share of refusals
        # rises smoothly with busy spells; a closed loop is refused from one load on.
        refusals = range(len(levels)) if levels[0].offered else ()
        lenders = {"growth": (), "failed": refusals}.get(verdicts[0].key, serves)
        given = lent(*([values[i] for i in lenders] for values in (loads, shares, weights)))
        for i, share, weight in zip(lenders, *given, strict=True):
            shares[i], weights[i] = share, weight
        smoothed = isotonic(shares, weights)
        for level, verdict, value, weight in zip(levels, verdicts, smoothed.tolist(), weights, strict=True):
            if verdict.high > verdict.allowed and not replace(verdict, weight=weight).likely(value):
                level.meets = False
                level.missed.append(replace(verdict, smoothed=value))
            elif verdict.low > verdict.allowed:
                level.missed.append(replace(verdict, smoothed=value))


def _too_short(rows: Sequence[Mapping[str, Any]]) -> Unsettled:
    needs = [row["steady_needs_s"] for row in rows if row["steady_needs_s"]]
    return Unsettled("short", math.ceil(max(needs)) if needs else None)

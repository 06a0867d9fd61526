"""What load a curve carries within its SLOs, between which bounds, and what would narrow them. Definitions: docs/sizing.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.analysis.proportions import Share, isotonic, lent, requests_needed
from bench.analysis.repeats import student_t
from bench.parse import GROWS
from bench.records.columns import JUDGED_FIELDS
from bench.study import Slo

__all__ = ["load_text", "operating_points"]

_LIKELY = 0.7
_SAME = 0.97  # of the highest rate: a lower load that carries this much is the better place to operate
_BATCHES = 10  # of a window, behind the error of its rate
_SURE_GROWTH = 2.1  # standard errors
# What a session is taken to be off from the next (standard deviation), until several have shown it, and the weight of that in degrees
# of freedom (Smyth 2004, as in drift.py). Of four measurements of the default study it was 1.9 to 3.4 %.
_SESSIONS_DIFFER, _SESSIONS_WEIGHT = 0.04, 6
_WORDS = (
    "deployment",
    "workload",
    "axis",
    "unit",
    "kind",
    "basis",
    "missed",
    "missed_by",
    "c_max_text",
    "low_needs",
    "high_needs",
)
_MEANS = {
    "goodput_rps": ("goodput_requests_per_s", "goodput_requests_per_s"),
    "tokens_per_s": ("steady_tokens_per_s", "throughput_tokens_per_s"),
    "latency_s": ("steady_e2e_mean_s", "e2e_mean_s"),
    "in_flight": ("steady_in_flight", "client_in_flight_mean"),
    "in_flight_peak": ("in_flight_peak", "in_flight_peak"),
    "prompt_tokens": ("prompt_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "output_tokens"),
}
_NUMBERS = ("c_max", "low", "high", "operate_at", "usable_rps", "usable_low", "usable_high", "missed_at", "highest", "runs",
            "requests", *_MEANS)  # fmt: skip


@dataclass(frozen=True)
class _Verdict:
    """One level on one criterion: the estimate and its 95 % interval, against what is allowed.

    Attributes:
        key: the SLO's column, `failed` or `growth`.
        weight: requests behind it, of one spread over requests that resemble their neighbours. missed: in words, of a level that
            misses.
    """

    key: str
    value: float
    low: float
    high: float
    allowed: float
    weight: float
    missed: str

    @property
    def surely_met(self) -> bool:
        return self.high <= self.allowed

    def likely(self, value: float) -> bool:
        """Whether it is met, with `value` in place of the estimate.

        A limit on a latency at 70 % confidence, as to claim too much is dearer than too little; of fewer requests than could ever show
        that, the value itself decides, and the interval stays wide. Of failures the share decides: a refusal is certain, a percentile
        is an estimate.
        """
        if self.key == "failed":
            return value <= self.allowed * (1 + 1e-9)
        enough = self.weight >= math.log(1 - _LIKELY) / math.log1p(-self.allowed)
        if self.weight > 1 and enough:
            value = Share(value * self.weight, self.weight).interval(2 * _LIKELY - 1)[1]
        return value <= self.allowed * (1 + 1e-9)


@dataclass
class _Level:
    """The runs of one level that can be judged.

    Attributes:
        rows: those that can: with a steady window, or of a burst. unsettled: why none can, in words; None where some can.
        rate, error: requests/s carried, and the half width of its 95 % interval.
        failed: of each run's requests, in the order of sending: whether it failed.
        meets: by the smoothed estimates of all criteria. surely_meets, surely_misses: by their intervals.
    """

    load: float
    rows: list[dict[str, Any]]
    unsettled: str | None = None
    verdicts: list[_Verdict] = field(default_factory=list)
    rate: float = 0.0
    error: float = 0.0
    offered: float = 0.0
    failed: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    meets: bool = True
    missed: list[_Verdict] = field(default_factory=list)

    @property
    def surely_meets(self) -> bool:
        return self.unsettled is None and all(v.surely_met for v in self.verdicts)

    @property
    def surely_misses(self) -> bool:
        return any(v.low > v.allowed for v in self.verdicts)


def load_text(level: float, unit: str) -> str:
    """A load in words, such as `1 request in flight`."""
    return f"{level:g} {unit.replace('s in flight', ' in flight') if level == 1 else unit}"


def operating_points(runs: pl.DataFrame, slos: Sequence[Slo], failed_share: float = 0.01) -> pl.DataFrame:
    """`C_max` of each curve: the highest level that is carried within the SLOs, and what is carried there, with its bounds.

    A level is judged by its steady runs, all requests of their windows together. It meets an SLO on a percentile where at most the
    share that the percentile leaves exceeds the limit; a request that failed exceeds every limit. At most `failed_share` may
    fail, and the requests in flight must not grow. More load never helps: the shares of all levels are smoothed to never fall
    (isotonic regression), and nothing above a level that surely misses counts.

    Nothing is concluded about loads between levels.

    A level surely meets, or misses, where the interval of each share says so (`Share`; Student's t for growth), at 95 %.

    An instance is operated at the lowest level up to `C_max` that carries 97 % of the most that any level up to there does:
    beyond it, load buys latency alone. A burst is judged as well, but a rate that lasts cannot be read off one: no `usable_rps`.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `turns`, `level`, `repeat`, `valid`, `arrival`, `judged`, the `steady`
            columns); invalid runs are left out. failed_share: of requests (0–1).

    Returns:
        One row a deployment and workload:

        - `unit` of the level; `basis`, `steady` or `burst`; `kind`: `found`; `above`, no level misses; `below`, the lowest misses;
          `unsettled`, no run was steady; `unknown`, no valid run; `unjudged`, an SLO's latency was not measured.
        - `c_max`, null unless found or above, and `c_max_text`; `low`, the highest level that surely meets, and `high`, the lowest that
          surely misses; null where not established, and `low_needs`, `high_needs` are what would establish them.
        - `missed_at`, `missed`, `missed_by`: the first level that misses, and what (in words, and as columns of SLOs, `failed`,
          `growth`); `highest` level; `runs` and `requests` at C_max.
        - `operate_at`, and of its runs the means: `usable_rps` (requests/s; of an open loop never more than was offered),
          `goodput_rps`, `tokens_per_s`, `latency_s` (E2E, s), `in_flight`, `in_flight_peak` (requests), `prompt_tokens`,
          `output_tokens`.
        - `usable_low`, `usable_high`: the rate that is carried lies between them at 95 % confidence: the lower end of the rate at
          `low`, and the upper end of that at `high`; null where that end is not established.
    """
    rows = []
    for (deployment, workload), group in runs.group_by("deployment", "workload", maintain_order=True):
        axis, turns = group["axis"][0], bool((group["turns"] > 1).any())
        unit = _unit(axis, turns)
        burst = group["arrival"][0] == "burst"
        row = _point(
            group.filter("valid").to_dicts(), slos, failed_share, burst=burst, rate=axis == "request_rate" and not turns
        )
        row = {**dict.fromkeys((*_WORDS, *_NUMBERS)), **row, "basis": "burst" if burst else "steady"}
        row |= {"deployment": deployment, "workload": workload, "axis": axis, "unit": unit}
        rows.append({**row, "c_max_text": _in_words(row)})
    schema = {**dict.fromkeys(_WORDS, pl.String), **dict.fromkeys(_NUMBERS, pl.Float64)}
    return pl.DataFrame(rows, schema=schema)


def _unit(axis: str, conversations: bool) -> str:
    what = "conversations" if conversations else "requests"
    return {"concurrency": f"{what} in flight", "request_rate": f"{what}/s"}.get(axis, "times the trace's speed")


def _point(valid: list[dict[str, Any]], slos: Sequence[Slo], failed_share: float, *, burst: bool, rate: bool) -> dict[str, Any]:
    """One curve. Args: rate: whether its level is what it offers, in requests/s."""
    if not valid:
        return {"kind": "unknown"}
    loads = sorted({row["level"] for row in valid})
    for slo in slos:
        if (at := _without(valid, loads, slo)) is not None:
            return {"kind": "unjudged", "missed_at": at, "missed": f"{slo} cannot be judged"}
    levels = [_level([row for row in valid if row["level"] == load], load, slos, failed_share, burst, rate) for load in loads]
    settled = [level for level in levels if level.unsettled is None]
    if not settled:
        return {"kind": "unsettled", "highest": loads[-1], "missed": levels[0].unsettled, "missed_at": loads[0]}
    _bound_failures(settled)
    _smooth(settled)
    first = next((i for i, level in enumerate(settled) if not level.meets or level.surely_misses), len(settled))
    miss = next((level for level in settled if level.surely_misses), None)
    below = [level for level in settled if miss is None or level.load < miss.load]
    low = next((level for level in reversed(below) if level.surely_meets), None)
    if low is not None:  # what surely meets at a higher load meets at a lower one
        first = max(first, settled.index(low) + 1)
    meeting = settled[:first]
    found = {
        "kind": "above" if first == len(settled) else "found" if first else "below",
        "low": low.load if low else None,
        "high": miss.load if miss else None,
        "highest": loads[-1],
        "missed_at": settled[first].load if first < len(settled) else None,
        "missed": ", ".join(v.missed for v in settled[first].missed) if first < len(settled) else None,
        "missed_by": ",".join(v.key for v in settled[first].missed) if first < len(settled) else None,
        "low_needs": _low_needs(meeting, low),
        "high_needs": _high_needs(settled, first, miss, levels),
    }
    if meeting:
        found |= _carried(meeting, low, miss, settled, burst=burst)
    return found


def _carried(
    meeting: Sequence[_Level], low: _Level | None, miss: _Level | None, settled: Sequence[_Level], *, burst: bool
) -> dict[str, Any]:
    """What is carried at the operating point."""
    top = meeting[-1]
    most = max(level.rate for level in meeting)
    there = next(level for level in meeting if level.rate >= _SAME * most)
    counts = {"c_max": top.load, "operate_at": there.load, "runs": len(top.rows),
              "requests": sum(len(row["judged"]) for row in top.rows)}  # fmt: skip
    means = {name: _mean(there.rows, burst_column if burst else column) for name, (column, burst_column) in _MEANS.items()}
    if burst:
        return {**counts, **means}
    ends: dict[str, float | None] = {"usable_low": None, "usable_high": None}
    if low is not None:
        ends["usable_low"] = max(
            0.0, min(there.rate, max(level.rate - level.error for level in settled if level.load <= low.load))
        )
    if miss is not None:
        below = [level for level in settled if level.load <= miss.load]
        ends["usable_high"] = max(there.rate, *(max(level.rate + level.error, level.offered) for level in below))
    return {**counts, **means, "usable_rps": there.rate, **ends}


def _level(
    rows: list[dict[str, Any]], load: float, slos: Sequence[Slo], failed_share: float, burst: bool, rate: bool
) -> _Level:
    if burst:
        judged = [row for row in rows if row["judged"]]
        level = _Level(load, judged, None if judged else "no request was sent")
    else:
        judged = [row for row in rows if row["steady_why"] != "short" and row["steady_from_s"] is not None and row["judged"]]
        level = _Level(load, judged, None if judged else _too_short(rows))
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


def _by_slo(requests: Sequence[pl.DataFrame], slo: Slo) -> _Verdict:
    value = pl.col(slo.metric)
    known = [run.filter(~pl.col("ok") | value.is_not_null()) for run in requests]
    missed = [run.select(~pl.col("ok") | (value > slo.limit_s)).to_series().to_numpy() for run in known]
    share = Share.of(missed)
    values = pl.concat([run.filter("ok")[slo.metric] for run in known])
    reached = values.quantile(slo.share, "higher") if len(values) else None
    words = (
        f"{slo} ({_beyond(reached, slo.limit_s)} s)"
        if reached is not None and reached > slo.limit_s
        else (f"{slo} ({share.share:.1%} of the requests fail or take longer)")
    )
    return _Verdict(slo.column, share.share, *share.interval(), 1 - slo.share, share.requests / share.spread, words)


def _by_failures(runs: Sequence[npt.NDArray[np.bool_]], allowed: float) -> _Verdict:
    share = Share.of(runs)
    return _Verdict(
        "failed",
        share.share,
        *share.interval(),
        allowed,
        share.requests / share.spread,
        f"the limit on failures ({share.misses} of {share.requests} requests fail)",
    )


def _bound_failures(levels: Sequence[_Level]) -> None:
    """Bound the failures of each level by those of the levels above it as well, where no fewer fail.

    By themselves few requests show little of a rare failure: it takes 368 without one to bound them by 1 %. But a server that
    refuses at a load refuses more above it, so that the share at a level is at most that of it and any number of the next levels
    together. Where nothing fails from a level on there is no sign of refusals at all, and the SLOs, which a failed request misses too,
    bound the rest. Where no request may fail, no number of them could show it: that none did has to do.
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


def _by_growth(rows: Sequence[Mapping[str, Any]]) -> list[_Verdict]:
    """Whether requests pile up; nothing of a closed loop, which holds them."""
    known = [(row["steady_growth"], row["steady_growth_error"]) for row in rows if row["steady_growth"] is not None]
    if not known:
        return []
    growth = sum(value for value, _ in known) / len(known)
    error = math.sqrt(sum(error**2 for _, error in known)) / len(known)
    if len(known) > 1:
        error = max(error, float(np.std([value for value, _ in known], ddof=1)) / math.sqrt(len(known)))
    words = f"steadiness (requests pile up: {growth:.0%} of those that come stay)"
    half = _SURE_GROWTH * error
    # One error is given to chance: latencies and the rate carried judge an overload as well. It surely does not grow where its upper
    # end is below twice what is allowed: of a queue near its limit no run shows less.
    return [_Verdict("growth", growth - error, growth - half, (growth + half) / 2, GROWS, 1.0, words)]


def _rate(rows: Sequence[Mapping[str, Any]], offered: float | None) -> tuple[float, float]:
    """Requests/s of a level, in the mean of its runs and no more than it offered, and the half width of its 95 % interval."""
    rates = [row["steady_requests_per_s"] for row in rows]
    mean = float(np.mean(rates))
    within = [row["steady_error"] or 0.0 for row in rows]
    error = student_t(_BATCHES - 1) * mean * math.sqrt(sum(e**2 for e in within)) / len(rates)
    if len(rates) > 1:
        error = max(error, student_t(len(rates) - 1) * float(np.std(rates, ddof=1)) / math.sqrt(len(rates)))
    between = mean * _between_sessions(rows)
    # Of several sessions the runs show how far these differ; of one they do not.
    several = len({row["session"] or 1 for row in rows}) > 1
    return (mean if offered is None else min(mean, offered)), max(error, between) if several else math.hypot(error, between)


def _between_sessions(rows: Sequence[Mapping[str, Any]]) -> float:
    """Half width of the 95 % interval, as a share, that is left because one start of a server is not quite as fast as the next.

    The variance of the logarithms of the sessions' means, moderated by one from experience: a single session shows none.
    """
    sessions: dict[int, list[float]] = {}
    for row in rows:
        sessions.setdefault(row["session"] or 1, []).append(row["steady_requests_per_s"])
    means = [float(np.mean(rates)) for rates in sessions.values()]
    logs = np.log([value for value in means if value > 0] or [1.0])
    freedom = _SESSIONS_WEIGHT + len(logs) - 1
    variance = (_SESSIONS_WEIGHT * _SESSIONS_DIFFER**2 + float(np.sum((logs - logs.mean()) ** 2))) / freedom
    return student_t(freedom) * math.sqrt(variance / len(logs))


def _smooth(levels: Sequence[_Level]) -> None:
    """Judge each level by shares to which loads near it lend theirs, and which never fall as load rises."""
    loads = [level.load for level in levels]
    failures = [next(v for v in level.verdicts if v.key == "failed") for level in levels]
    serves = [i for i, failed in enumerate(failures) if failed.value <= failed.allowed]
    for verdicts in zip(*(level.verdicts for level in levels), strict=True):
        shares, weights = [v.value for v in verdicts], [v.weight for v in verdicts]
        # A server refuses from one load on, and what it refuses misses every SLO: nothing is lent across that cliff.
        if verdicts[0].key not in ("growth", "failed"):
            near = lent(*([values[i] for i in serves] for values in (loads, shares, weights)))
            for i, share, weight in zip(serves, *near, strict=True):
                shares[i], weights[i] = share, weight
        smoothed = isotonic(shares, weights)
        for level, verdict, value, weight in zip(levels, verdicts, smoothed, weights, strict=True):
            if verdict.high > verdict.allowed and not replace(verdict, weight=weight).likely(value):
                level.meets = False
                level.missed.append(verdict)
            elif verdict.low > verdict.allowed:
                level.missed.append(verdict)


def _without(valid: Sequence[Mapping[str, Any]], loads: Sequence[float], slo: Slo) -> float | None:
    """The first level no answer of which has the SLO's latency: without streaming there is no TTFT, of a single token no TPOT."""
    for load in loads:
        answers = [x for row in valid if row["level"] == load for x in row["judged"] or () if x["ok"]]
        if answers and all(x[slo.metric] is None for x in answers):
            return load
    return None


def _too_short(rows: Sequence[Mapping[str, Any]]) -> str:
    needs = [row["steady_needs_s"] for row in rows if row["steady_needs_s"]]
    longer = f": let its load last {math.ceil(max(needs))} s" if needs else ": send more requests"
    return f"its load did not become steady in the time that it lasted{longer}"


def _low_needs(meeting: Sequence[_Level], low: _Level | None) -> str | None:
    """What would make the lower end as high as C_max."""
    if not meeting or (low is not None and low.load >= meeting[-1].load):
        return None
    top = meeting[-1]
    short = [v for v in top.verdicts if not v.surely_met]
    have = sum(len(row["judged"]) for row in top.rows)
    needs = [requests_needed(v.allowed, share=v.value, spread=have / v.weight) for v in short if v.weight > 1]
    if any(v.key == "growth" for v in short):
        return f"Longer runs at {top.load:g} would show whether requests pile up there, and raise the lower end to it."
    if any(need is None for need in needs) or not needs:
        return f"{top.load:g} is too near its limit to be sure of: more rounds, or levels below it, would raise the lower end."
    count = max(need or 0 for need in needs)
    return f"With {count:,} requests at {top.load:g} in place of {have:,} the lower end would be there."


def _high_needs(settled: Sequence[_Level], first: int, miss: _Level | None, levels: Sequence[_Level]) -> str | None:
    """What would establish the upper end."""
    if miss is not None:
        return None
    longer = next((level for level in levels if level.unsettled and level.load > settled[-1].load), None)
    if first == len(settled) and longer is not None:
        return f"The upper end is not known: at {longer.load:g} {longer.unsettled}."
    if first == len(settled):
        return f"Levels above {settled[-1].load:g} would establish the upper end."
    return f"More requests at {settled[first].load:g}, or levels above it, would establish the upper end."


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    values = [row[column] for row in rows if row.get(column) is not None]
    return sum(values) / len(values) if values else None


def _beyond(value: float, limit: float) -> str:
    """A value with as many digits as show that it is over the limit."""
    return next((text for digits in range(3, 9) if float(text := f"{value:.{digits}g}") > limit), f"{value:.9g}")


def _in_words(row: Mapping[str, Any]) -> str:
    """C_max in words, such as `16 (at least 15, below 20)`."""
    match row["kind"]:
        case "unknown":
            return "no valid run"
        case "unsettled":
            return "no steady state"
        case "unjudged":
            return f"{row['missed']}: no answer at {row['missed_at']:g} has that latency"
        case "below":
            return f"below {row['missed_at']:g}, the lowest level"
    low = "the lower end is not established" if row["low"] is None else f"at least {row['low']:g}"
    high = "the upper end is not established" if row["high"] is None else f"below {row['high']:g}"
    if row["low"] is None and row["high"] is None:
        low, high = "neither end is established", ""
    more = " or more" if row["kind"] == "above" else ""
    return f"{row['c_max']:g}{more} ({', '.join(filter(None, (low, high)))})"

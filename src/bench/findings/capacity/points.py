"""The highest load that a curve sustains within its SLOs, its bounds, and what would narrow them. See docs/explanation/capacity.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from bench.axes import AXES
from bench.findings.capacity.judging import Level, Miss, judged_levels, limits_of, most_given, unmeasured
from bench.runs.columns import schema_of
from bench.statistics.limit import BEYOND, NOMINAL, Belief, Floats
from bench.study.slo import Slo

# share of the highest rate above which a lower load is the better operating point; convention: beyond it more load only adds latency
_SAME = 0.97
_CURVES = 200  # curves of the rate over the load that each draw of the limit meets; convention
_MEANS = {
    "goodput_rps": ("goodput_requests_per_s", "goodput_requests_per_s"),
    "tokens_per_s": ("steady_tokens_per_s", "throughput_tokens_per_s"),
    "latency_s": ("steady_e2e_mean_s", "e2e_mean_s"),
    "in_flight": ("steady_in_flight", "client_in_flight_mean"),
    "in_flight_peak": ("in_flight_peak", "in_flight_peak"),
    "prompt_tokens": ("prompt_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "output_tokens"),
}
_SCHEMA = schema_of("capacity")


def operating_points(runs: pl.DataFrame, slos: Sequence[Slo], failed_share: float = 0.01) -> pl.DataFrame:
    """`C_max` of each curve: the highest level that is sustained within the SLOs, and the rate there, with bounds.

    An SLO of a class counts that class's requests alone, and limits the curves whose workload has such a class: a level is sustained
    where each class is within its own limits, and all requests within those of all.

    All steady runs of a curve together give a posterior of the highest load within each SLO, within `failed_share`, and without
    requests that pile up (`bench.statistics.limit`); the least of them counts. An SLO on a percentile is met where no more requests
    exceed the limit than the percentile leaves (1 % for a P99); a failed request exceeds every limit. A level is sustained where the
    limit lies below it with a probability of at most 25 %.

    The operating point is the lowest level that sustains 97 % of the highest rate up to `C_max`: more load only adds latency. A burst
    is judged as well, but shows no rate that lasts: no `usable_rps`.

    Args:
        runs: summary rows; invalid runs are left out. failed_share: of requests (0–1).

    Returns:
        One row a deployment and workload, with the columns of `capacity` in `bench/runs/analysis.toml`. `kind` is `found`; `above`, no
        level misses; `below`, the lowest misses; `unsettled`, no level can be judged; `unknown`, no valid run; `unjudged`, an SLO's
        latency was not measured.
    """
    rows = []
    for (deployment, workload), group in runs.group_by("deployment", "workload", maintain_order=True):
        axis, burst, limits = group["axis"][0], group["arrival"][0] == "burst", limits_of(group, slos)
        unit = AXES[axis].counted(conversations=bool((group["turns"] > 1).any()))
        if slos and not limits and AXES[axis].held:  # any such load would be within no limit
            continue
        judged_by = {"slos": [str(slo) for slo in limits], "failed_share": failed_share}
        row = _point(group.filter("valid").to_dicts(), limits, failed_share, axis=axis, burst=burst)
        place = {"deployment": deployment, "workload": workload, "axis": axis, "unit": unit}
        rows.append({**dict.fromkeys(_SCHEMA), **row, **place, **judged_by, "basis": "burst" if burst else "steady"})
    return pl.DataFrame(rows, schema=_SCHEMA)


def _point(valid: list[dict[str, Any]], slos: Sequence[Slo], failed_share: float, *, axis: str, burst: bool) -> dict[str, Any]:
    if not valid:
        return {"kind": "unknown"}
    loads = sorted({row["level"] for row in valid})
    for slo in slos:
        levels_of = ([row for row in valid if row["level"] == load] for load in loads)
        if rows := next((rows for rows in levels_of if unmeasured(rows, slo)), None):
            missed, why = [asdict(Miss(slo.column, slo.limit_s))], _why_none(rows, slo.metric)
            return {"kind": "unjudged", "missed_at": rows[0]["level"], "missed": missed, "unjudged": why}
    levels, limit = judged_levels(valid, slos, failed_share)
    settled = [level for level in levels if not level.unsettled]
    if not settled:
        return {
            "kind": "unsettled",
            "highest": loads[-1],
            "missed_at": loads[0],
            "unsettled_at": loads[0],
            **levels[0].unsettled,
        }
    first = next((i for i, level in enumerate(settled) if level.missed), len(settled))
    meeting = settled[:first]
    low, high = limit_ends(limit, settled, whole=AXES[axis].held)
    found = {
        "kind": "above" if first == len(settled) else "found" if first else "below",
        "limit": limit.middle if limit and settled[0].load <= limit.middle <= settled[-1].load else None,
        "low": low,
        "high": high,
        "highest": loads[-1],
        "missed_at": settled[first].load if first < len(settled) else None,
        "missed": [asdict(miss) for miss in settled[first].misses] if first < len(settled) else None,
    }
    if unsettled := [level for level in levels if level.unsettled]:
        shown = unsettled[-1 if first == len(settled) else 0]
        found |= {"unsettled_at": shown.load, **shown.unsettled}
    if meeting:
        given = math.inf if burst else most_given(valid)
        found |= _sustained(meeting, low, high, settled, limit, given=given, burst=burst, whole=AXES[axis].held)
    return found


def limit_ends(limit: Belief | None, settled: Sequence[Level], *, whole: bool) -> tuple[float | None, float | None]:
    """The 95 % interval of the highest load within all criteria; an end further off than the runs show is not established.

    No more than the highest load is known to be carried, and no less than the lowest to be too much.

    Args:
        whole: whether loads are whole numbers. The limit is then the last that is within, and the upper end the first that is not.
    """
    lowest, highest = settled[0].load, settled[-1].load
    low, high = limit.interval if limit else (0.0, math.inf)
    established = low > 0, math.isfinite(high)
    low, high = min(low, highest), max(high, lowest)
    if whole:
        low, high = math.floor(low), math.ceil(high) if math.isfinite(high) else high
    else:  # of three digits, as levels of a search
        low, high = (end if end in (lowest, highest) else float(f"{end:.3g}") for end in (low, high))
    return low if established[0] else None, high if established[1] else None


def _sustained(
    meeting: Sequence[Level],
    low: float | None,
    high: float | None,
    settled: Sequence[Level],
    limit: Belief | None,
    *,
    given: float,
    burst: bool,
    whole: bool,
) -> dict[str, Any]:
    """What is sustained at the operating point.

    Args:
        low, high, whole: as of `limit_ends`. given: what the server may have given at most (requests/s): an open loop may have offered
            more.
    """
    top = meeting[-1]
    most = max(level.rate for level in meeting)
    there = next(level for level in meeting if level.rate >= _SAME * most)
    counts = {"c_max": top.load, "operate_at": there.load, "runs": len(top.rows),
              "requests": sum(len(row["judged"]) for row in top.rows),
              "over": [asdict(verdict.miss) for verdict in top.verdicts if verdict.over] or None}  # fmt: skip
    means = {name: _mean(there.rows, burst_column if burst else column) for name, (column, burst_column) in _MEANS.items()}
    if burst:
        return {**counts, **means}
    if (good := means["goodput_rps"]) is not None:
        means["goodput_rps"] = min(good, there.rate)  # both count the same requests, in different ways
    highest = settled[-1].load
    limits = np.minimum(limit.limits if limit else np.inf, BEYOND * highest).reshape(-1)
    limits = np.floor(limits) if whole else limits
    least, greatest = rates_within(np.minimum(limits, top.load), settled).interval[0], rates_within(limits, settled).interval[1]
    most_usable = greatest if high is not None and high > highest else min(greatest, given)
    return {
        **counts,
        **means,
        "usable_rps": there.rate,
        "usable_low": None if low is None else max(0.0, min(there.rate, least)),
        "usable_high": None if high is None else max(there.rate, most_usable),
    }


def rates_within(limits: Floats, settled: Sequence[Level]) -> Belief:
    """The distribution of the highest rate up to the limit (requests/s).

    Each draw of the limit meets each of many curves of the rate: straight lines between the levels, from 0 on; the last one goes on
    beyond the highest, as each further request adds no more than the one before. A start of the server that is faster or slower is so
    at every level, so the levels of a curve are all off by the same part of their errors.

    Args:
        limits: draws of it (the unit of the loads).
    """
    loads = np.array([0.0, *(level.load for level in settled)])
    # Within the limit nothing piles up: a level gives what is offered, unless the server gave significantly less.
    lasting = (each.rate if each.rate + each.error < each.offered else each.offered or each.rate for each in settled)
    rates = np.array([0.0, *lasting])
    errors = np.array([0.0, *(level.error for level in settled)])
    normal = NormalDist(0.0, 1 / NormalDist().inv_cdf((1 + NOMINAL) / 2))  # `Belief.interval` of it is −1 to 1
    curves = rates + np.array([[normal.inv_cdf((i + 0.5) / _CURVES)] for i in range(_CURVES)]) * errors
    before = np.searchsorted(loads, limits, side="right") - 1
    first = np.minimum(before, len(loads) - 2)  # of the two levels of a line
    share = (limits - loads[first]) / (loads[first + 1] - loads[first])
    there = curves[:, first] + share * (curves[:, first + 1] - curves[:, first])
    return Belief(np.sort(np.maximum(np.maximum.accumulate(curves, axis=1)[:, before], there), axis=None))


def _why_none(rows: Sequence[Mapping[str, Any]], metric: str) -> str | None:
    """Why no answer of these runs has a latency; None where their rows do not say it."""
    uncounted, unknown, held_back = (
        sum(row.get(name) or 0 for row in rows) for name in ("uncounted_outputs", "unknown_streamed", "held_back_answers")
    )
    reasons = {
        "stream": not any(row.get("stream", True) for row in rows),
        "held_back": held_back and not any(row.get("ttft_n") for row in rows),
        "hidden": metric == "tpot" and unknown > uncounted,
        "uncounted": metric == "tpot" and uncounted,
        "single": metric == "tpot" and all(row.get("output_tokens") == 1 for row in rows),
    }
    return next((name for name, applies in reasons.items() if applies), None)


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    values = [row[column] for row in rows if row.get(column) is not None]
    return sum(values) / len(values) if values else None

"""What one run shows of a limit: by how much it lies above or below each criterion, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.parse.steady import FEWEST_GROWING, GROWS
from bench.statistics.levels import LEAST_NOISE
from bench.statistics.observation import FAILED, GROWTH, SLOWER, Excess, Observation, Reference, speeds
from bench.statistics.percentiles import Share
from bench.study.slo import Slo

MOST_EXCESS = 8.0  # percentile ÷ limit beyond which a run shows no more; tuned: benchmarks.search
CAP = math.log(MOST_EXCESS)  # the same as an excess; derived
_MAY_GROW = 0.02  # backlog growth that is allowed, as a share of the offered rate; tuned: benchmarks.search
_STILL_FILL = 10.0  # standard deviation of the requests by which a server still fills in a run; tuned: benchmarks.search
# continuity correction of a count of misses, so that none of n has a logarithm; source: Cox, Analysis of Binary Data, 1970
_HALF = 0.5
_ANSCOMBE = 0.375  # offset that makes the variance of a count's square root a quarter; source: Anscombe, Biometrika, 1948
# offset at which the root of a count's mean is the mean of the roots of counts with `_ANSCOMBE`; derived: 3/8 − 1/4
_MEAN_OF_ROOT = 0.125


def observed(row: Mapping[str, Any], slos: Sequence[Slo], failed_share: float, speed: float = 1.0) -> Observation | None:
    """What a run shows; None where it was too short to be judged.

    Args:
        row: of the summary: `level`, `arrival`, `judged`, and the `steady` columns. failed_share: of requests that may fail (0–1).
        speed: of the machine ÷ its usual one, by which the odds of a miss are corrected.

    An SLO whose latency no answer has is left out: `unjudged` says why.
    """
    grows = row["steady_why"] == "grows"
    requests = row["judged"] or ()
    short = row["steady_why"] == "short" or row["steady_from_s"] is None
    if not requests or (row["arrival"] != "burst" and short and not grows):
        return None
    excesses = {slo.column: _by_slo(known, slo, speed) for slo in slos if (known := _known(requests, slo))}
    failed = np.array([not x["ok"] for x in requests])
    excesses[FAILED] = _by_failures(failed, failed_share)
    filled = len(requests) >= FEWEST_GROWING or row.get("stopped_at_s") is not None
    growth = row.get("steady_growth")
    if grows and growth is not None and growth < _MAY_GROW:  # it ended early, and too little is left to show by how much
        growth = None
    if growth is not None and (not grows or filled):
        value = (growth - _MAY_GROW) / GROWS
        excesses[GROWTH] = Excess(min(CAP, max(-CAP, value)), max(LEAST_NOISE, row["steady_growth_error"] / GROWS))
    return Observation(
        row["level"],
        excesses,
        len(requests),
        int(failed.sum()),
        grows,
        held=row["arrival"] in ("closed", "burst"),
        growth=growth,
        growth_error=0.0 if growth is None else math.hypot(row["steady_growth_error"], _STILL_FILL / len(requests)),
    )


def observations(rows: Sequence[Mapping[str, Any]], slos: Sequence[Slo], failed_share: float) -> list[Observation]:
    """What runs of one curve show, on a machine that is as fast as usual, with the rounds that share what is not known of its speed.

    Args:
        rows: as `observed` takes them, with `repeat` and, where they are known, `session`, `round` and the `reference` columns.
    """
    references = [
        Reference(1 / row["reference_s"] if row.get("reference_s") else None, row.get("reference_load"), _round(row))
        for row in rows
    ]
    seen = [
        (observed(row, slos, failed_share, speed), speed, _round(row))
        for row, speed in zip(rows, speeds(references), strict=True)
    ]
    return [replace(each.at_usual_speed(speed), round=of) for each, speed, of in seen if each is not None]


def _round(row: Mapping[str, Any]) -> Hashable:
    return row.get("reference_since") or (row.get("session") or 1, row.get("round") or row["repeat"])


def _known(requests: Sequence[Mapping[str, Any]], slo: Slo) -> list[Mapping[str, Any]]:
    """The requests that the SLO limits, less answers without its latency."""
    mine = (x for x in requests if slo.request_class in (None, x.get("request_class")))
    return [x for x in mine if not x["ok"] or x[slo.metric] is not None]


def unjudged(requests: Sequence[Mapping[str, Any]], slo: Slo) -> str | None:
    """Why a run says nothing of an SLO; None where it does."""
    if _known(requests, slo):
        return None
    if all(x.get("request_class") != slo.request_class for x in requests) and slo.request_class:
        return f"a run of {len(requests)} requests has none of {slo.request_class} to judge {slo.name} by. Raise its share."
    return (
        f"{slo.metric.upper()} is not known of any answer: one of a single token, or whose tokens the server does not count, has no "
        "TPOT, and answers that something on the way holds back have neither TTFT nor TPOT (`bench parse` says which). Limit another "
        "latency, such as e2e."
    )


def _by_slo(known: Sequence[Mapping[str, Any]], slo: Slo, speed: float) -> Excess:
    """Excess of the SLO's percentile.

    The error is half of what lies between the ranks one standard error about it.

    Neighbours in a queue are alike, so that the ranks' error is that of fewer independent requests (`Share`). Beyond the largest
    value nothing is known: there the lower half counts for both.
    """
    values = np.array([x[slo.metric] if x["ok"] else math.inf for x in known])
    ordered, count = np.sort(values), len(values)
    rank = min(count - 1, math.ceil(slo.share * count) - 1)
    spread = Share.of([values > ordered[rank]]).spread
    off = math.sqrt(spread * count * slo.share * (1 - slo.share))
    low, at, high = (_log(ordered[min(count - 1, max(0, round(rank + by)))], slo.limit_s) for by in (-off, 0, off))
    error = at - low if rank + off > count - 1 else (high - low) / 2
    misses = values > slo.limit_s
    sure = _sure(int(misses.sum()), count * (1 - slo.share), spread)
    allowed = count * (1 - slo.share)

    def odds_of(limit_s: float) -> tuple[int, float]:
        missed = int((values * speed > limit_s).sum())
        return missed, math.log((missed + _HALF) / (count - missed + _HALF) * (count - allowed + _HALF) / (allowed + _HALF))

    missed, odds = odds_of(slo.limit_s)
    least = math.sqrt(spread / (max(missed, allowed) + _HALF) + spread / (max(count - missed, count - allowed) + _HALF))
    odds_error = max(least, abs(odds) / _sure(missed, allowed, spread))
    odds_at = tuple(odds_of(slo.limit_s * math.exp(-by))[1] for by in SLOWER)
    return Excess(at, max(LEAST_NOISE, error, abs(at) / sure), spread, odds, odds_error, odds_at)


def _log(value: float, limit_s: float) -> float:
    if not 0 < value < math.inf:
        return CAP if value > 0 else -CAP
    return min(CAP, max(-CAP, math.log(value / limit_s)))


def _by_failures(failed: npt.NDArray[np.bool_], allowed: float) -> Excess:
    """Excess of the failures.

    They come in clusters, of which a run has a few: the logarithm of their number lies too low in the mean, its square root hardly
    does.
    """
    count, spread = int(failed.sum()), Share.of([failed]).spread
    if not allowed:
        return Excess(CAP if count else -CAP, LEAST_NOISE)
    clusters, may_be = count / spread, allowed * len(failed) / spread
    value = 2 * (math.sqrt((clusters + _ANSCOMBE) / (may_be + _MEAN_OF_ROOT)) - 1)
    least = 1 / math.sqrt(max(clusters, may_be) + _HALF)
    return Excess(min(CAP, value), max(least, abs(value) / _sure(count, allowed * len(failed), spread)), spread)


def _sure(count: int, allowed: float, spread: float) -> float:
    """By how many standard errors a count differs from what is allowed: no run is surer than its requests are many.

    Source: Anscombe, The transformation of Poisson, binomial and negative-binomial data (Biometrika 1948).
    """
    return max(1e-9, 2 * abs(math.sqrt(count + _ANSCOMBE) - math.sqrt(allowed + _ANSCOMBE)) / math.sqrt(spread))

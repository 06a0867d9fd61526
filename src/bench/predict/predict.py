"""What a calibrated server does under a load: an ensemble of replays, with an interval of each number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from bench.predict.calibrate import REPLAYS, Calibrated, Z, ensemble_interval
from bench.predict.calibrate import members as ensemble
from bench.predict.calibration import METRICS, Doubt, Interval
from bench.predict.fleet import FleetReplay, latency
from bench.predict.limits import Limits
from bench.statistics.percentiles import percentile
from bench.workloads.schedule import PlannedRequest

# median relative error of a step, and standard deviation of ln time between runs and of ln throughput predicted ÷ measured, above
# which a fit is no model; convention
_MISFIT = 0.2
_MEDIAN = (0.45, 0.55)  # quantiles of E2E between which requests are median ones; convention
#: Parts of a request's time, each from one of its moments to another.
PHASES = {"queue": ("sent_s", "admitted_s"), "prefill": ("admitted_s", "first_token_s"), "decode": ("first_token_s", "end_s")}
BEYOND = 1.25  # largest extrapolation, as a factor of what was seen; convention


@dataclass(frozen=True)
class Predicted:
    """The prediction of a load.

    Attributes:
        numbers: by a name of `METRICS`; those that nothing shows are missing. doubts: why not to rely on it; empty where nothing speaks
            against it.
        shares: of the time of median requests (E2E from P45 to P55), by phase, in the mean (0–1).
    """

    numbers: Mapping[str, Interval]
    doubts: tuple[Doubt, ...]
    shares: Mapping[str, float] = field(default_factory=dict)


def measures(requests: pl.DataFrame, itl_p99_s: float | None = None) -> dict[str, float]:
    """The numbers of `METRICS` of a run, whole: from the first request sent to the last answer.

    Args:
        requests: one row an answered request: `sent_s`, `first_token_s`, `end_s`, `output_tokens`.
    """
    if requests.is_empty():
        return {}
    span = float(requests["end_s"].max()) - float(requests["sent_s"].min())  # type: ignore[arg-type]
    numbers = {
        "throughput_tokens_per_s": float(requests["output_tokens"].sum()) / span,
        "throughput_requests_per_s": requests.height / span,
        "itl_p99_s": itl_p99_s,
    }
    for metric, shares in {"ttft": (50, 99), "tpot": (50, 90), "e2e": (50, 99)}.items():
        seconds = latency(requests, metric)
        numbers |= {f"{metric}_p{share}_s": percentile(seconds, share / 100) for share in shares}
    return {name: value for name, value in numbers.items() if value is not None}


def predict(
    model: Calibrated,
    plans: Callable[[int], Sequence[PlannedRequest]],
    *,
    held: int | None = None,
    limits: Limits | None = None,
    members: int = REPLAYS,
) -> Predicted:
    """Replay a load on the calibrated server, each time with other step times and, where they are drawn, other arrivals.

    Args:
        plans: the requests of the nth replay. held: as of `replay`. limits: of the scheduler, in place of the calibrated ones (a
            what-if). members: replays.
    """
    servers = ensemble(model, limits, count=members)
    replays = [member.replay(plans(member.number), held=held) for member in servers]
    found = [
        measures(each.requests, each.seen.gaps.percentile(0.99, model.fitted.strays, 1 + member.number))
        for member, each in zip(servers, replays, strict=True)
    ]
    known = {name: [each[name] for each in found if each.get(name, 0.0) > 0] for name in METRICS}
    numbers = {
        name: widened(ensemble_interval(values), model.beyond.get(name, 0.0))
        for name, values in known.items()
        if len(values) > members / 2  # a fit without such steps takes them for free
    }
    return Predicted(
        numbers,
        tuple(doubts(model, replays)),
        _shares([each.requests for each in replays if each.requests.height]),
    )


def _shares(replays: Sequence[pl.DataFrame]) -> dict[str, float]:
    took = pl.col("end_s") - pl.col("sent_s")
    low, high = _MEDIAN
    kept = [each.filter(took.is_between(took.quantile(low, "lower"), took.quantile(high, "higher"))) for each in replays]
    if not kept:
        return {}
    phases = pl.concat(kept).select((pl.col(end) - pl.col(begin)).sum().alias(name) for name, (begin, end) in PHASES.items())
    seconds = phases.row(0, named=True)
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()} if whole else {}


def misfits(model: Calibrated) -> Iterator[Doubt]:
    """Why a model must not be relied on for any load."""
    unseen = model.beyond.get("throughput_requests_per_s", 0.0)
    for name, strays in (("residual", model.fitted.residual), ("drift", model.fitted.run_noise), ("unseen", unseen)):
        if strays > _MISFIT:
            yield Doubt(name, strays, _MISFIT)


def doubts(model: Calibrated, replays: Sequence[FleetReplay]) -> Iterator[Doubt]:
    """Why replays must not be relied on."""
    fitted = model.fitted
    yield from misfits(model)
    seen = (
        ("requests", float(np.median([each.seen.running for each in replays])), fitted.most["decodes"]),
        ("longest", float(max(each.seen.context for each in replays)), float(model.longest)),
        ("step", float(np.median([each.seen.tokens for each in replays])), fitted.most["tokens"]),
    )
    for name, asked, most in seen:
        if asked > BEYOND * most:
            yield Doubt(name, asked, most)
    if refused := max(len(each.seen.refused) for each in replays):
        yield Doubt("refused", float(refused), 0.0)


def widened(interval: Interval, beyond: float) -> Interval:
    """The interval, widened by an error beyond the ensemble's. Args: beyond: standard deviation of ln."""
    low, high = (math.hypot(math.log(end / interval.value), Z * beyond) for end in (interval.low, interval.high))
    return Interval(interval.value, interval.value * math.exp(-low), interval.value * math.exp(high))

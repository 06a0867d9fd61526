"""`bench fleet`: how many instances traffic takes that was not measured, by replays of a calibrated server."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.cli.output import print_json, print_table, tracked
from bench.cli.predict import measured_runs_of, what_if, workload_of
from bench.errors import BenchError, shown_share
from bench.predict.calibrate import Calibrated, calibrate
from bench.predict.carried import Carried, carried, latency_longer, rates_carried, within
from bench.predict.ensemble import Member, members, typical
from bench.predict.fleet import FleetReplay, Instances, Scaling, replay_fleet
from bench.predict.judge import self_judged
from bench.predict.predict import ensemble_interval
from bench.predict.state import Limits
from bench.predict.traffic import Traffic, read_traffic, sine
from bench.records.calibration import Interval
from bench.study import Slo, Workload, parse_slo
from bench.words.predicted import METRIC_TITLES, REPORTED, doubt_text

__all__ = ["run"]

_MEMBERS = 20  # of the ensemble
_TOGETHER, _FEWER_MEMBERS = 4, 10  # instances that stand for a fleet at its peak; members of their ensemble
_REQUESTS, _FEWEST, _MOST = 1_000_000, 2, 16  # of a replay of all the traffic; instances that stand for the fleet
_WINDOW_S = 3600.0


@dataclass(frozen=True)
class _Day:
    """What traffic got from a fleet.

    Attributes:
        least, most: instances that were ready. hours: that are paid for. within: share of the requests within all limits, lost ones
            are not; worst: the same of the worst hour. meets: whether the SLOs' percentiles hold over all of it, and in each hour.
    """

    name: str
    least: int
    most: int
    hours: float
    within: float
    worst: float
    lost: float
    meets: bool


def run(options: SimpleNamespace) -> None:
    slos = [parse_slo(text) for text in options.slo]
    traffic = _traffic(options)
    workload = workload_of(options, "request_rate")
    if workload.trace:
        raise BenchError("--workload: a trace has a rate of its own; give lengths, and the rate with --traffic.")
    runs, limits = measured_runs_of(options.results)
    fitted = calibrate(runs, limits)
    if fitted is None:
        raise BenchError(f"{options.results}: its valid runs show too few steps of the engine to calibrate a model.")
    limits = what_if(limits, options)
    model = self_judged(fitted, runs)
    rates = rates_carried(tracked(members(model, limits, count=_MEMBERS), "One instance"), workload, slos)
    if not min(rates):
        raise BenchError(f"no rate is surely within {' and '.join(map(str, slos))}: even a request alone may take longer.")
    alone = carried(model, workload, slos, rates, limits)
    if alone.at.doubts:
        for doubt in alone.at.doubts:
            print(f"Not predicted: {doubt_text(doubt)}.")
        raise SystemExit(1)
    together = _together(model, limits, workload, slos, options)
    needed = Interval(*(math.ceil(traffic.peak / rate - 1e-9) for rate in (together.value, together.high, together.low)))
    days = [] if traffic.seconds < _WINDOW_S else _days(model, limits, workload, slos, traffic, needed, together, options)
    result = {
        "slos": options.slo,
        "peak_rps": traffic.peak,
        "router": options.router,
        "alone_rps": vars(alone.rate),
        "alone_there": {name: vars(interval) for name, interval in alone.at.numbers.items()},
        "together_rps": vars(together),
        "instances": vars(needed),
        "safety_factor": _safety(needed, traffic, alone),
        "traffic": [asdict(day) for day in days],
    }
    if options.json:
        print_json(result)
    else:
        _print(result, needed, alone, together, days, workload, options)


def _traffic(options: SimpleNamespace) -> Traffic:
    if (options.traffic is None) == (options.peak_rps is None):
        raise BenchError("Give --peak-rps, the requests/s of the busiest moment, or --traffic FILE.")
    if options.traffic is not None:
        return read_traffic(options.traffic)
    trough = options.trough_rps
    if trough is None:
        return Traffic((0.0, 1.0), (options.peak_rps, options.peak_rps))
    if trough > options.peak_rps:
        raise BenchError(f"--trough-rps {trough:g} is above --peak-rps {options.peak_rps:g}.")
    return sine(options.peak_rps, trough)


def _together(model: Calibrated, limits: Limits, workload: Workload, slos: list[Slo], options: SimpleNamespace) -> Interval:
    """Requests/s of one of several behind the router."""
    ensemble = tracked(members(model, limits, count=_FEWER_MEMBERS), f"{_TOGETHER} behind {options.router}")
    return ensemble_interval(rates_carried(ensemble, workload, slos, instances=_TOGETHER, router=options.router))


def _safety(needed: Interval, traffic: Traffic, alone: Carried) -> float:
    """Instances that are surely enough, with one failed, by what `bench size` would take without a safety factor."""
    return (needed.high + 1) / max(1, math.ceil(traffic.peak / alone.rate.value - 1e-9))


# All the traffic


def _days(
    model: Calibrated,
    limits: Limits,
    workload: Workload,
    slos: list[Slo],
    traffic: Traffic,
    needed: Interval,
    together: Interval,
    options: SimpleNamespace,
) -> list[_Day]:
    """A fixed fleet, and one that follows the traffic: a few instances stand for all, with their share of the traffic."""
    member = typical(model, limits)
    number = int(needed.high)
    few = min(number, max(_FEWEST, min(_MOST, round(_REQUESTS * number / traffic.requests))))
    share = few / number
    plans = traffic.scaled(share).plans(workload, "traffic")
    fails_s = math.inf if options.fail_every is None else 3600 * options.fail_every
    fixed = Instances(member.server, few, options.start_up, fails_s)
    first = max(1, round(few * traffic.rates[0] / traffic.peak))
    follows = Instances(member.server, first, options.start_up, fails_s, Scaling(together.value))
    found = []
    for name, instances in tracked([("fixed", fixed), ("follows the load", follows)], "All the traffic"):
        replayed = replay_fleet(plans, instances, options.router, overhead_s=member.overhead_s)
        found.append(_day(name, replayed, member, slos, share))
    return found


def _day(name: str, replayed: FleetReplay, member: Member, slos: list[Slo], share: float) -> _Day:
    table = replayed.requests
    each = [within(table, slo, latency_longer(member, slo)).fill_null(value=True).to_numpy() for slo in slos]
    both = np.logical_and.reduce(each)
    hour = (table["sent_s"].to_numpy() // _WINDOW_S).astype(int)
    hours = [hour == number for number in np.unique(hour)]
    # Requests that are lost are taken to be spread as all others are.
    kept = 1 - replayed.lost / max(1, table.height + replayed.lost)
    meets = all(kept * good[of].mean() >= slo.share for slo, good in zip(slos, each, strict=True) for of in hours)
    ready = [number / share for _, number, _ in replayed.history]
    return _Day(
        name,
        least=round(min(ready)),
        most=round(max(ready)),
        hours=replayed.paid_s / 3600 / share,
        within=float(kept * both.mean()),
        worst=float(kept * min(both[of].mean() for of in hours)),
        lost=1 - kept,
        meets=bool(meets),
    )


def _print(
    result: dict[str, Any],
    needed: Interval,
    alone: Carried,
    together: Interval,
    days: list[_Day],
    workload: Workload,
    options: SimpleNamespace,
) -> None:
    unit = "conversations/s" if workload.turns else "requests/s"
    print(f"Predicted, with 90 % intervals, within {' and '.join(str(parse_slo(text)) for text in options.slo)}:\n")
    count = f"{needed.value:,.0f} ({needed.low:,.0f} to {needed.high:,.0f})"
    rows = [
        [f"one instance alone carries, {unit}", _shown(alone.rate)],
        *(
            [f"… its {METRIC_TITLES[name]} there", _shown(alone.at.numbers[name])]
            for name in REPORTED
            if name in alone.at.numbers
        ),
        [f"one of {_TOGETHER} behind a router ({options.router}), {unit}", _shown(together)],
        [f"instances for {result['peak_rps']:,.4g} {unit}", count],
        ["surely enough, and one of them may fail", f"{needed.high + 1:,.0f}"],
        ["the safety factor that this comes to", f"{result['safety_factor']:.2f}"],
    ]
    print_table(rows, head=False)
    if days:
        price = options.price_per_hour
        head = ["fleet", "instances", "instance-hours", "within all limits", "in the worst hour", "SLOs met in each hour"]
        print(f"\nAll the traffic, {options.start_up:g} s to start an instance:\n")
        rows = [head + (["USD"] if price else [])]
        for day in days:
            instances = f"{day.least:,}" if day.least == day.most else f"{day.least:,} to {day.most:,}"
            cells = [day.name, instances, f"{day.hours:,.0f}", shown_share(day.within, 2), shown_share(day.worst, 2)]
            rows.append([*cells, "yes" if day.meets else "no", *([f"{day.hours * price:,.2f}"] if price else [])])
        print_table(rows)


def _shown(interval: Interval) -> str:
    return f"{interval.value:.3g} ({interval.low:.3g} to {interval.high:.3g})"

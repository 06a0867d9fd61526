"""How many equal instances traffic takes, as `bench fleet` prints it."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from bench.cli.days import HOUR_S, MOST, MOST_REQUESTS, day_numbers, interval_text, print_days
from bench.cli.output import print_json, print_table, tracked
from bench.errors import BenchError, shown_share

if TYPE_CHECKING:
    from bench.cli.commands.fleet import Fleet
    from bench.predict.calibrate import Calibrated
    from bench.predict.calibration import Doubt, Interval
    from bench.predict.carried import Carried
    from bench.predict.day import Day, Draw, Hour
    from bench.predict.state import Limits
    from bench.predict.traffic import Traffic
    from bench.study.slo import Slo
    from bench.workloads.workload import Workload

_TOGETHER, _GAIN = 4, 2  # instances that stand for a larger fleet at its peak; times that one carries more there, at most
_REQUESTS = 400_000  # of a replay of all the traffic, where few instances can stand for all
_FEWEST, _TO_SCALE = 2, 8  # instances that stand for a fleet; and for one whose number changes
_MOST_OF_TRACE = 20_000  # requests of a trace, which each member of the ensemble replays several times


def of_traffic(fleet: Fleet, workload: Workload, slos: list[Slo], traffic: Traffic) -> None:
    """Print what one instance carries, how many the peak takes, and what a day gets."""
    from bench.predict.calibration import Interval
    from bench.predict.carried import carried, rates_carried, replayed
    from bench.predict.ensemble import typical
    from bench.predict.predict import doubts

    model, limits = fleet.calibrated()
    rates = rates_carried(tracked(fleet.ensemble(model, limits), "One instance"), workload, slos)
    if not min(rates):
        fleet.refuse(list(doubts(model, [replayed(typical(model, limits), 1, workload, slos, 1e-3, fleet.router)])))
        raise BenchError(f"no rate is clearly within {' and '.join(map(str, slos))}: even a request alone may take longer.")
    alone = carried(model, workload, slos, rates, limits)
    fleet.refuse(alone.at.doubts)
    known, rates = _together(fleet, model, limits, workload, slos, traffic.peak, alone.rate, rates)
    number, together = max(known), known[max(known)]
    at = replayed(typical(model, limits), number, workload, slos, together.high * number, fleet.router)
    fleet.refuse(list(doubts(model, [at])))
    needed = Interval(*(math.ceil(traffic.peak / rate - 1e-9) for rate in (together.value, together.high, together.low)))
    days, notes, needs = (
        ([], [], []) if traffic.seconds < HOUR_S else _days(fleet, model, limits, workload, slos, traffic, needed, known, rates)
    )
    result = {
        "slos": fleet.slo,
        "peak_rps": traffic.peak,
        "router": fleet.router,
        "alone_rps": vars(alone.rate),
        "alone_there": {name: vars(interval) for name, interval in alone.at.numbers.items()},
        "together": number,
        "together_rps": vars(together),
        "instances": vars(needed),
        "safety_factor": (needed.high + 1) / max(1, math.ceil(traffic.peak / alone.rate.value - 1e-9)),
        "start_up_s": fleet.start_ups_s() if days else None,
        "traffic": [day_numbers(day, why) for day, why in days],
        "hours": [asdict(hour) for hour in needs],
        "notes": notes,
    }
    if fleet.json:
        print_json(result)
    else:
        _print(fleet, slos, result, needed, alone, together, workload)
        print_days(days, needs, notes, f", {fleet.start_up_text()}" if days else "", fleet.price_per_hour)


def _together(
    fleet: Fleet,
    model: Calibrated,
    limits: Limits,
    workload: Workload,
    slos: list[Slo],
    peak: float,
    alone: Interval,
    rates: list[float],
) -> tuple[dict[int, Interval], list[float]]:
    """Requests/s of one instance alone, and of one of several behind the router, by their number, up to as many as the peak takes,
    or to four that stand for more; and those of each member for the most. Args: rates: of each member alone.
    """
    from bench.predict.carried import rates_carried
    from bench.predict.predict import ensemble_interval

    known = {1: alone}
    if peak <= alone.value:
        return known, rates
    number = 2 if peak <= _TOGETHER * _GAIN * alone.value else _TOGETHER
    while True:
        ensemble = tracked(fleet.ensemble(model, limits), f"{number} behind {fleet.router}")
        rates = rates_carried(ensemble, workload, slos, instances=number, router=fleet.router)
        if not min(rates):
            raise BenchError(f"no rate is clearly within the SLOs of {number} instances behind {fleet.router}.")
        known[number] = found = ensemble_interval(rates)
        if number == _TOGETHER or number * found.value >= peak:
            return known, rates
        number += 1


def _days(
    fleet: Fleet,
    model: Calibrated,
    limits: Limits,
    workload: Workload,
    slos: list[Slo],
    traffic: Traffic,
    needed: Interval,
    known: dict[int, Interval],
    rates: list[float],
) -> tuple[list[tuple[Day, list[Doubt]]], list[str], list[Hour]]:
    """A fixed fleet, and one that follows the traffic, as far as they can be replayed, each with why not to rely on it; notes on
    what cannot; and what each hour takes.

    A few instances stand for all, with their share of the traffic.

    Args:
        known: requests/s of one of so many behind the router. rates: of each member for the most of them.
    """
    from bench.predict.day import draws, hours, replayed_day
    from bench.predict.ensemble import typical
    from bench.predict.fleet import Instances, Scaling
    from bench.predict.predict import doubts

    needs, number, together = hours(traffic, known), int(needed.high), known[max(known)]
    requests = traffic.requests * workload.turn_count
    few = min(number, max(_FEWEST, min(MOST, round(_REQUESTS * number / requests))))
    share = few / number
    if requests * share > MOST_REQUESTS:
        return (
            [],
            [
                f"The traffic was not replayed: {few} instances get {requests * share:,.0f} requests of it. Give shorter traffic."
            ],
            needs,
        )
    notes = [f"{few} instances, with their share of the traffic, stand for {number}."] if few < number else []
    plans = traffic.scaled(share).plans(workload, "traffic")
    first = max(1, math.ceil(few * traffic.rates[0] / traffic.peak))

    def fixed(draw: Draw) -> Instances:
        return Instances(draw.member.server, few, draw.start_up_s)

    def autoscaled(draw: Draw) -> Instances:
        return replace(fixed(draw), number=first, scaling=Scaling(together.value))

    fleets = [("fixed", fixed)]
    if few in (number, *range(_TO_SCALE, MOST + 1)):
        fleets.append(("autoscaled", autoscaled))
    else:
        notes.append(f"Autoscaling was not replayed: {few} instances are too few to stand for {number} whose number changes.")
    drawn = draws(typical(model, limits), fleet.ensemble(model, limits), rates, fleet.start_ups_s())
    days = [
        replayed_day(name, plans, drawn, make, fleet.router, slos, share=share, until_s=traffic.seconds)
        for name, make in tracked(fleets, "All the traffic")
    ]
    return [(day, list(doubts(model, list(day.replays)))) for day in days], notes, needs


def of_trace(fleet: Fleet, workload: Workload, slos: list[Slo]) -> None:
    """Print how many instances a recorded trace takes, by replaying all of it."""
    from bench.predict.ensemble import typical
    from bench.predict.fleet import Instances, replay_fleet
    from bench.predict.predict import doubts, ensemble_interval
    from bench.predict.served import fewest_instances, served
    from bench.workloads.schedule import schedule

    model, limits = fleet.calibrated()
    given = {
        "peak-rps": fleet.peak_rps,
        "trough-rps": fleet.trough_rps,
        "traffic": fleet.traffic,
        "price-per-hour": fleet.price_per_hour,
        "start-up": fleet.start_up,
    }
    if unused := next((name for name, value in given.items() if value is not None), None):
        raise BenchError(
            f"--{unused}: {fleet.workload} replays a trace, which is the traffic, on instances that are ready throughout. Leave "
            "it out; --time-scale makes the traffic more."
        )
    plans = schedule(workload, fleet.time_scale or 1.0, "traffic")
    if len(plans) > _MOST_OF_TRACE:
        raise BenchError(
            f"{workload.trace}: {len(plans):,} requests, and {_MOST_OF_TRACE:,} are the most that are replayed so often. Take a "
            "part with its busiest time: bench traffic LOG --from MOMENT --to MOMENT --output DIR."
        )
    ensemble = tracked(fleet.ensemble(model, limits), "The trace")
    found = ensemble_interval(fewest_instances(ensemble, plans, slos, fleet.router))
    least, value, most = math.floor(found.low), math.ceil(found.value), math.ceil(found.high)
    member = typical(model, limits)
    replays = {
        number: replay_fleet(plans, Instances(member.server, number), fleet.router, overhead_s=member.overhead_s)
        for number in (most, value)
    }
    fleet.refuse(list(doubts(model, [replays[most]])))
    shares = {number: served(replay, member, slos) for number, replay in replays.items()}
    seconds = max(plan.due_s or 0.0 for plan in plans)
    if fleet.json:
        print_json(
            {
                "slos": fleet.slo,
                "requests": len(plans),
                "seconds": seconds,
                "router": fleet.router,
                "instances": {"value": value, "low": least, "high": most},
                "within": {str(number): vars(share) for number, share in shares.items()},
            }
        )
        return
    scale = fleet.time_scale or 1.0
    hour = "the trace" if scale == 1 else f"the replay ({scale:g} h of the trace)"
    print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, slos))}, each hour of {hour} by itself:\n")
    rows = [
        ["requests of the trace", f"{len(plans):,} in {seconds:,.0f} s"],
        [f"instances behind a router ({fleet.router})", f"{value:,} ({least:,} to {most:,})"],
        ["enough even if one fails (N + 1)", f"{most + 1:,}"],
        *([f"within all limits, {number:,} of them", shown_share(share.within, 2)] for number, share in shares.items()),
    ]
    print_table(rows, head=False)


def _print(
    fleet: Fleet,
    slos: list[Slo],
    result: dict[str, Any],
    needed: Interval,
    alone: Carried,
    together: Interval,
    workload: Workload,
) -> None:
    from bench.predict.calibration import METRICS
    from bench.words.predicted import REPORTED

    unit = "conversations/s" if workload.turns else "requests/s"
    print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, slos))}:\n")
    rows = [
        [f"one instance alone carries, {unit}", interval_text(alone.rate)],
        *(
            [f"… its {METRICS[name]} there", interval_text(alone.at.numbers[name])]
            for name in REPORTED
            if name in alone.at.numbers
        ),
    ]
    if result["together"] > 1:
        rows.append([f"one of {result['together']} behind a router ({fleet.router}), {unit}", interval_text(together)])
    rows += [
        [
            f"instances for {result['peak_rps']:,.4g} {unit}",
            f"{needed.value:,.0f} ({needed.low:,.0f} to {needed.high:,.0f})",
        ],
        ["enough even if one fails (N + 1)", f"{needed.high + 1:,.0f}"],
        ["equivalent safety factor of bench size", f"{result['safety_factor']:.2f}"],
    ]
    print_table(rows, head=False)

"""What instances of several deployments carry behind one router, as `bench fleet` prints it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.cli.days import HOUR_S, MOST, MOST_REQUESTS, counts_of, day_numbers, interval_text, print_days, yes_text
from bench.cli.output import print_json, print_table, tracked
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.cli.commands.fleet import Fleet
    from bench.predict.carried import Carried
    from bench.predict.day import Day
    from bench.predict.ensemble import Member
    from bench.predict.traffic import Traffic
    from bench.records.calibration import Doubt
    from bench.study import Slo, Workload


def of_deployments(fleet: Fleet, workload: Workload, slos: list[Slo], traffic: Traffic | None) -> None:
    """Print what instances of several deployments carry behind one router, and what they make of the traffic."""
    from bench.predict.carried import carried, fleet_rates, rates_carried, unequal
    from bench.predict.day import draws, replayed_day
    from bench.predict.ensemble import typical
    from bench.predict.predict import ensemble_interval

    if traffic is None:
        raise BenchError("--deployment: a trace is replayed on equal instances. Give --peak-rps or --traffic.")
    given = {"--fail-every": fleet.fail_every, "--price-per-hour": fleet.price_per_hour, "--start-up": fleet.start_up}
    given |= {"--kv-tokens": fleet.kv_tokens, "--max-num-seqs": fleet.max_num_seqs}
    given |= {"--max-num-batched-tokens": fleet.max_num_batched_tokens, "--prefix-caching": fleet.prefix_caching}
    if unused := next((name for name, value in given.items() if value is not None), None):
        raise BenchError(f"{unused}: of an unequal fleet it is not known which instances it is of. Leave it out.")
    counts = counts_of(fleet.deployment or [], MOST)
    alone: dict[str, Carried] = {}
    drawn: list[tuple[list[Member], Member, int]] = []
    for place, (name, number) in enumerate(counts.items()):
        model, limits = replace(fleet, results=f"{fleet.results}:{name}", deployment=None).calibrated()
        ensemble = fleet.ensemble(model, limits, seed=1 + place)  # deployments err apart
        rates = rates_carried(tracked(ensemble, f"One instance of {name}"), workload, slos)
        if not min(rates):
            raise BenchError(f"{name}: no rate is clearly within {' and '.join(map(str, slos))}.")
        alone[name] = carried(model, workload, slos, rates, limits)
        fleet.refuse(alone[name].at.doubts)
        drawn.append((ensemble, typical(model, limits), number))
    fleets = [
        tuple(member for ensemble, _, number in drawn for member in [ensemble[i]] * number) for i in range(len(drawn[0][0]))
    ]
    usual = tuple(member for _, member, number in drawn for member in [member] * number)
    rates = fleet_rates(tracked(fleets, f"{len(usual)} behind {fleet.router}"), workload, slos, fleet.router)
    if not min(rates):
        raise BenchError(f"no rate is clearly within the SLOs of these instances behind {fleet.router}.")
    whole = ensemble_interval(rates)
    days: list[tuple[Day, list[Doubt]]] = []
    notes = [
        "Whether each instance stays within what was measured of it is not checked: behind round-robin or random a slow one "
        "may not."
    ]
    if traffic.seconds >= HOUR_S and traffic.requests * workload.turn_count > MOST_REQUESTS:
        notes.append(
            f"The traffic was not replayed: it has {traffic.requests * workload.turn_count:,.0f} requests. Give shorter traffic."
        )
    elif traffic.seconds >= HOUR_S:
        day = replayed_day(
            "fixed",
            traffic.plans(workload, "traffic"),
            draws(usual, fleets, rates, (0.0,)),  # none is started
            lambda draw: unequal(draw.fleet),
            fleet.router,
            slos,
            share=1.0,
            until_s=traffic.seconds,
        )
        days = [(day, [])]
    carries = None if whole.low < traffic.peak <= whole.high else traffic.peak <= whole.low
    if fleet.json:
        print_json(
            {
                "slos": fleet.slo,
                "peak_rps": traffic.peak,
                "router": fleet.router,
                "instances": counts,
                "alone_rps": {name: vars(each.rate) for name, each in alone.items()},
                "fleet_rps": vars(whole),
                "carries_peak": carries,
                "traffic": [day_numbers(day, why) for day, why in days],
                "notes": notes,
            }
        )
        return
    unit = "conversations/s" if workload.turns else "requests/s"
    print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, slos))}:\n")
    what = " and ".join(f"{number} of {name}" for name, number in counts.items())
    print_table(
        [
            *([f"one instance of {name} alone carries, {unit}", interval_text(each.rate)] for name, each in alone.items()),
            [f"{what} behind a router ({fleet.router}) carry, {unit}", interval_text(whole)],
            [f"they carry {traffic.peak:,.4g} {unit}", yes_text(carries)],
        ],
        head=False,
    )
    print_days(days, [], notes)

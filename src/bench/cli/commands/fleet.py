"""`bench fleet`: how many instances traffic takes that was not measured, by replays of a calibrated server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

from bench.cli.days import counts_of, day_numbers, print_days, yes_text
from bench.cli.entry import command
from bench.cli.modelled import Modelled
from bench.cli.options import SLO, not_negative, option, positive
from bench.cli.output import print_json, print_table, tracked
from bench.errors import BenchError, shown_share

if TYPE_CHECKING:
    from bench.predict.calibrate import Calibrated
    from bench.predict.carried import Carried
    from bench.predict.day import Day, Hour
    from bench.predict.ensemble import Member
    from bench.predict.state import Limits
    from bench.predict.traffic import Traffic
    from bench.records.calibration import Doubt, Interval
    from bench.study import Slo, Workload

_TRAFFIC, _FLEET = "The traffic", "The fleet"
_MEMBERS = 20  # of an ensemble
_TOGETHER, _GAIN = 4, 2  # instances that stand for a larger fleet at its peak; times that one carries more there, at most
_REQUESTS, _MOST_REQUESTS = 400_000, 3_000_000  # of a replay of all the traffic: so many, if few instances can stand for all
_HOUR_S = 3600.0
_FEWEST, _MOST, _TO_SCALE = 2, 16, 8  # instances that stand for a fleet; and for one whose number changes
_MOST_OF_TRACE = 20_000  # requests of a trace, which each member of the ensemble replays several times
_START_UP_S = 120.0  # of an instance, where neither --start-up nor a measured start says it


@command(
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --prompt-length 256 --output-length 64 --peak-rps 200",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --workload mine.yaml --peak-rps 200 --trough-rps 20 --start-up 120",
    "bench fleet results:tiny-mqa --slo tpot_p95=50ms --workload mine.yaml --traffic monday.csv --fail-every 500",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --workload my-load/replay.yaml --time-scale 3",
    "bench fleet results --deployment tiny-mqa=2 --deployment tiny-mha=1 --slo ttft_p95=1s --workload mine.yaml --peak-rps 40",
    after="Exit status: 0 for a prediction; 1 where the traffic is refused; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Fleet(Modelled):
    """A model of the server is fitted to the runs in RESULTS, and the traffic replayed on instances of it behind a router: what one of
    them carries within the SLOs, how many the peak takes, and what a day gets from a fixed fleet and from one that keeps its load
    between 60 and 80 %. A few instances with their share of the traffic stand for a large fleet. A workload that replays a trace, as
    `bench traffic` writes it, is the traffic itself: all of it is replayed on as many instances as it takes. An instance starts in the
    time that RESULTS measured from launch to the first token.
    """

    slo: Annotated[list[str], option("LIMIT", SLO)]
    peak_rps: Annotated[
        float | None, option("N", "Requests/s (with turns: conversations/s) at the peak.", _TRAFFIC, parser=positive)
    ] = None
    trough_rps: Annotated[
        float | None, option("N", "Of the quietest: a day between both, as a sine.", _TRAFFIC, parser=positive)
    ] = None
    traffic: Annotated[Path | None, option("FILE", "CSV of seconds and requests_per_s; straight lines between.", _TRAFFIC)] = (
        None
    )
    time_scale: Annotated[
        float | None, option("X", "Of --workload with a trace: X times as fast.", _TRAFFIC, parser=positive, default="1")
    ] = None
    router: Annotated[
        Literal["round-robin", "random", "least-requests", "power-of-two", "session"],
        option(None, "How requests are shared out; `session` keeps conversations where they are.", _FLEET),
    ] = "least-requests"
    deployment: Annotated[
        list[str] | None,
        option("NAME=N", "Of an unequal fleet: N instances of a deployment in RESULTS; once for each.", _FLEET, default="none"),
    ] = None
    start_up: Annotated[
        float | None,
        option(
            "SECONDS", "Until a new instance serves.", _FLEET, parser=not_negative, default=f"as measured, or {_START_UP_S:g}"
        ),
    ] = None
    fail_every: Annotated[float | None, option("HOURS", "Mean time until an instance fails.", _FLEET, parser=positive)] = None
    price_per_hour: Annotated[float | None, option("USD", "Of one instance.", _FLEET, parser=positive)] = None

    def run(self) -> None:
        """Print what the traffic takes."""
        from bench.predict.carried import carried, rates_carried, replayed
        from bench.predict.ensemble import members, typical
        from bench.predict.predict import doubts
        from bench.records.calibration import Interval
        from bench.study import parse_slo

        slos = [parse_slo(text) for text in self.slo]
        if of_class := next((slo for slo in slos if slo.request_class), None):
            raise BenchError(
                f"--slo: {of_class} limits a class, and a fleet is predicted for all requests together. Leave the class out."
            )
        workload = self.load("request_rate", also="time_scale")
        if self.time_scale is not None and not workload.trace:
            raise BenchError(
                "--time-scale belongs to a --workload that replays a trace. Leave it out; --peak-rps says how much."
            )
        traffic = None if workload.trace else self._traffic()
        if workload.step or workload.ramp:
            raise BenchError(
                "--workload: a step or ramp is traffic; give it as --traffic FILE, and leave it out of the workload."
            )
        if self.deployment:
            self._of_unequal(workload, slos, traffic)
            return
        model, limits = self._calibrated()
        if traffic is None:
            self._of_trace(model, limits, workload, slos)
            return
        rates = rates_carried(tracked(members(model, limits, count=_MEMBERS), "One instance"), workload, slos)
        if not min(rates):
            self._refuse(list(doubts(model, [replayed(typical(model, limits), workload, slos, 1e-3)])))
            raise BenchError(f"no rate is clearly within {' and '.join(map(str, slos))}: even a request alone may take longer.")
        alone = carried(model, workload, slos, rates, limits)
        self._refuse(alone.at.doubts)
        known, rates = self._together(model, limits, workload, slos, traffic.peak, alone.rate, rates)
        number, together = max(known), known[max(known)]
        at = replayed(typical(model, limits), workload, slos, together.high, instances=number, router=self.router)
        self._refuse(list(doubts(model, [at])))
        needed = Interval(*(math.ceil(traffic.peak / rate - 1e-9) for rate in (together.value, together.high, together.low)))
        days, notes, needs = (
            ([], [], [])
            if traffic.seconds < _HOUR_S
            else self._days(model, limits, workload, slos, traffic, needed, known, rates)
        )
        result = {
            "slos": self.slo,
            "peak_rps": traffic.peak,
            "router": self.router,
            "alone_rps": vars(alone.rate),
            "alone_there": {name: vars(interval) for name, interval in alone.at.numbers.items()},
            "together": number,
            "together_rps": vars(together),
            "instances": vars(needed),
            "safety_factor": (needed.high + 1) / max(1, math.ceil(traffic.peak / alone.rate.value - 1e-9)),
            "start_up_s": self._start_ups_s() if days else None,
            "traffic": [day_numbers(day, why) for day, why in days],
            "hours": [asdict(hour) for hour in needs],
            "notes": notes,
        }
        if self.json:
            print_json(result)
        else:
            self._print(slos, result, needed, alone, together, workload)
            print_days(days, needs, notes, f", {self._start_up_text()}" if days else "", self.price_per_hour)

    def _calibrated(self) -> tuple[Calibrated, Limits]:
        """A model of one deployment, and what its scheduler obeys, with what is asked for in its place."""
        from bench.predict.calibrate import calibrate
        from bench.predict.judge import self_judged
        from bench.predict.predict import misfits

        runs, limits = self.measured()
        fitted = calibrate(runs, limits)
        if fitted is None:
            raise BenchError(f"{self.results}: its valid runs show too few steps of the engine to calibrate a model.")
        model = self_judged(fitted, runs)
        self._refuse(list(misfits(model)))
        return model, self.what_if(model.limits)

    def _start_ups_s(self) -> tuple[float, ...]:
        """How long an instance takes to start (s): as given, as each start was measured, or as is assumed where none was."""
        from bench.predict.sources import start_ups_s

        if self.start_up is not None:
            return (self.start_up,)
        _, root, deployment = self.named()
        return start_ups_s(root, deployment) or (_START_UP_S,)

    def _start_up_text(self) -> str:
        from bench.predict.sources import start_ups_s

        known = self._start_ups_s()
        if self.start_up is not None:
            return f"{self.start_up:g} s to start an instance"
        _, root, deployment = self.named()
        if not start_ups_s(root, deployment):
            return f"{_START_UP_S:g} s to start an instance, which is assumed: RESULTS measured no start"
        each = f" ({min(known):.3g} to {max(known):.3g} s in {len(known)} starts)" if len(known) > 1 else " (one start)"
        return f"{median(known):.3g} s to start an instance, as measured{each}"

    def _refuse(self, found: Sequence[Doubt]) -> None:
        """End where there is a reason not to predict."""
        from bench.words.predicted import doubt_text

        why = [doubt_text(doubt) for doubt in found]
        if not why:
            return
        if self.json:
            print_json({"refused_because": why})
        else:
            print("\n".join(f"Not predicted: {text}." for text in why))
        raise SystemExit(1)

    def _traffic(self) -> Traffic:
        from bench.predict.traffic import Traffic, read_traffic, sine

        if self.traffic is not None and self.peak_rps is None:
            if self.trough_rps is not None:
                raise BenchError("--trough-rps belongs to --peak-rps; --traffic has its own.")
            found = read_traffic(self.traffic)
            if found.seconds < _HOUR_S:
                raise BenchError(f"--traffic {self.traffic}: lasts {found.seconds:g} s; an hour is the least.")
            return found
        if self.peak_rps is None or self.traffic is not None:
            raise BenchError("Give --peak-rps, the requests/s of the busiest moment, or --traffic FILE.")
        if self.trough_rps is None:
            for name, given in (
                ("fail-every", self.fail_every),
                ("price-per-hour", self.price_per_hour),
                ("start-up", self.start_up),
            ):
                if given is not None:
                    raise BenchError(f"--{name} needs a course of traffic: --trough-rps or --traffic.")
            return Traffic((0.0, 1.0), (self.peak_rps, self.peak_rps))
        if self.trough_rps > self.peak_rps:
            raise BenchError(f"--trough-rps {self.trough_rps:g} is above --peak-rps {self.peak_rps:g}.")
        return sine(self.peak_rps, self.trough_rps)

    def _of_trace(self, model: Calibrated, limits: Limits, workload: Workload, slos: list[Slo]) -> None:
        """Print how many instances a recorded trace takes, by replaying all of it."""
        from bench.load.schedule import schedule
        from bench.predict.ensemble import members, typical
        from bench.predict.fleet import Instances, replay_fleet
        from bench.predict.predict import doubts, ensemble_interval
        from bench.predict.served import fewest_instances, served

        given = {
            "peak-rps": self.peak_rps,
            "trough-rps": self.trough_rps,
            "traffic": self.traffic,
            "fail-every": self.fail_every,
            "price-per-hour": self.price_per_hour,
            "start-up": self.start_up,
        }
        if unused := next((name for name, value in given.items() if value is not None), None):
            raise BenchError(
                f"--{unused}: {self.workload} replays a trace, which is the traffic, on instances that are ready throughout. Leave "
                "it out; --time-scale makes the traffic more."
            )
        plans = schedule(workload, self.time_scale or 1.0, "traffic")
        if len(plans) > _MOST_OF_TRACE:
            raise BenchError(
                f"{workload.trace}: {len(plans):,} requests, and {_MOST_OF_TRACE:,} are the most that are replayed so often. Take a "
                "part with its busiest time: bench traffic LOG --from MOMENT --to MOMENT --output DIR."
            )
        ensemble = tracked(members(model, limits, count=_MEMBERS), "The trace")
        found = ensemble_interval(fewest_instances(ensemble, plans, slos, self.router))
        least, value, most = math.floor(found.low), math.ceil(found.value), math.ceil(found.high)
        member = typical(model, limits)
        replays = {
            number: replay_fleet(plans, Instances(member.server, number), self.router, overhead_s=member.overhead_s)
            for number in (most, value)
        }
        self._refuse(list(doubts(model, [replays[most]])))
        shares = {number: served(replay, [member], slos) for number, replay in replays.items()}
        seconds = max(plan.due_s or 0.0 for plan in plans)
        if self.json:
            print_json(
                {
                    "slos": self.slo,
                    "requests": len(plans),
                    "seconds": seconds,
                    "router": self.router,
                    "instances": {"value": value, "low": least, "high": most},
                    "within": {str(number): vars(share) for number, share in shares.items()},
                }
            )
            return
        scale = self.time_scale or 1.0
        hour = "the trace" if scale == 1 else f"the replay ({scale:g} h of the trace)"
        print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, slos))}, each hour of {hour} by itself:\n")
        rows = [
            ["requests of the trace", f"{len(plans):,} in {seconds:,.0f} s"],
            [f"instances behind a router ({self.router})", f"{value:,} ({least:,} to {most:,})"],
            ["enough even if one fails (N + 1)", f"{most + 1:,}"],
            *([f"within all limits, {number:,} of them", shown_share(share.within, 2)] for number, share in shares.items()),
        ]
        print_table(rows, head=False)

    def _together(
        self,
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
        from bench.predict.ensemble import members
        from bench.predict.predict import ensemble_interval

        known = {1: alone}
        if peak <= alone.value:
            return known, rates
        number = 2 if peak <= _TOGETHER * _GAIN * alone.value else _TOGETHER
        while True:
            ensemble = tracked(members(model, limits, count=_MEMBERS), f"{number} behind {self.router}")
            rates = rates_carried(ensemble, workload, slos, instances=number, router=self.router)
            if not min(rates):
                raise BenchError(f"no rate is clearly within the SLOs of {number} instances behind {self.router}.")
            known[number] = found = ensemble_interval(rates)
            if number == _TOGETHER or number * found.value >= peak:
                return known, rates
            number += 1

    def _days(
        self,
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
        from bench.predict.day import Draw, draws, hours, replayed_day
        from bench.predict.ensemble import members, typical
        from bench.predict.fleet import Instances, Scaling
        from bench.predict.predict import doubts

        needs, number, together = hours(traffic, known), int(needed.high), known[max(known)]
        requests = traffic.requests * workload.turn_count
        few = min(number, max(_FEWEST, min(_MOST, round(_REQUESTS * number / requests))))
        share = few / number
        if requests * share > _MOST_REQUESTS:
            return (
                [],
                [
                    f"The traffic was not replayed: {few} instances get {requests * share:,.0f} requests of it. Give shorter traffic."
                ],
                needs,
            )
        if self.fail_every is not None and few < number:
            return [], [f"Failures were not replayed: {few} instances cannot stand for the {number} of the fleet there."], needs
        notes = [f"{few} instances, with their share of the traffic, stand for {number}."] if few < number else []
        plans = traffic.scaled(share).plans(workload, "traffic")
        fails_s = math.inf if self.fail_every is None else _HOUR_S * self.fail_every
        first = max(1, math.ceil(few * traffic.rates[0] / traffic.peak))

        def fixed(draw: Draw) -> Instances:
            return Instances(draw.fleet[0].server, few, draw.start_up_s, fails_s)

        def autoscaled(draw: Draw) -> Instances:
            return replace(fixed(draw), number=first, scaling=Scaling(together.value))

        fleets = [("fixed", fixed)]
        if few in (number, *range(_TO_SCALE, _MOST + 1)):
            fleets.append(("autoscaled", autoscaled))
        else:
            notes.append(
                f"Autoscaling was not replayed: {few} instances are too few to stand for {number} whose number changes."
            )
        ensemble = [(member,) for member in members(model, limits, count=_MEMBERS)]
        drawn = draws((typical(model, limits),), ensemble, rates, self._start_ups_s())
        days = [
            replayed_day(name, plans, drawn, make, self.router, slos, share=share, until_s=traffic.seconds)
            for name, make in tracked(fleets, "All the traffic")
        ]
        return [(day, list(doubts(model, list(day.replays)))) for day in days], notes, needs

    def _of_unequal(self, workload: Workload, slos: list[Slo], traffic: Traffic | None) -> None:
        """Print what instances of several deployments carry behind one router, and what they make of the traffic."""
        from bench.predict.carried import carried, rates_carried, unequal, unequal_carried
        from bench.predict.day import draws, replayed_day
        from bench.predict.ensemble import members, typical
        from bench.predict.predict import ensemble_interval

        if traffic is None:
            raise BenchError("--deployment: a trace is replayed on equal instances. Give --peak-rps or --traffic.")
        given = {"--fail-every": self.fail_every, "--price-per-hour": self.price_per_hour, "--start-up": self.start_up}
        given |= {"--kv-tokens": self.kv_tokens, "--max-num-seqs": self.max_num_seqs}
        given |= {"--max-num-batched-tokens": self.max_num_batched_tokens, "--prefix-caching": self.prefix_caching}
        if unused := next((name for name, value in given.items() if value is not None), None):
            raise BenchError(f"{unused}: of an unequal fleet it is not known which instances it is of. Leave it out.")
        counts = counts_of(self.deployment or [], _MOST)
        alone: dict[str, Carried] = {}
        drawn: list[tuple[list[Member], Member, int]] = []
        for place, (name, number) in enumerate(counts.items()):
            model, limits = replace(self, results=f"{self.results}:{name}", deployment=None)._calibrated()
            ensemble = members(model, limits, count=_MEMBERS, seed=1 + place)  # deployments err apart
            rates = rates_carried(tracked(ensemble, f"One instance of {name}"), workload, slos)
            if not min(rates):
                raise BenchError(f"{name}: no rate is clearly within {' and '.join(map(str, slos))}.")
            alone[name] = carried(model, workload, slos, rates, limits)
            self._refuse(alone[name].at.doubts)
            drawn.append((ensemble, typical(model, limits), number))
        fleets = [tuple(member for ensemble, _, number in drawn for member in [ensemble[i]] * number) for i in range(_MEMBERS)]
        usual = tuple(member for _, member, number in drawn for member in [member] * number)
        rates = unequal_carried(tracked(fleets, f"{len(usual)} behind {self.router}"), workload, slos, self.router)
        if not min(rates):
            raise BenchError(f"no rate is clearly within the SLOs of these instances behind {self.router}.")
        whole = ensemble_interval(rates)
        days: list[tuple[Day, list[Doubt]]] = []
        notes = [
            "Whether each instance stays within what was measured of it is not checked: behind round-robin or random a slow one "
            "may not."
        ]
        if traffic.seconds >= _HOUR_S and traffic.requests * workload.turn_count > _MOST_REQUESTS:
            notes.append(
                f"The traffic was not replayed: it has {traffic.requests * workload.turn_count:,.0f} requests. Give shorter traffic."
            )
        elif traffic.seconds >= _HOUR_S:
            day = replayed_day(
                "fixed",
                traffic.plans(workload, "traffic"),
                draws(usual, fleets, rates, (0.0,)),  # none is started
                lambda draw: unequal(draw.fleet),
                self.router,
                slos,
                share=1.0,
                until_s=traffic.seconds,
            )
            days = [(day, [])]
        carries = None if whole.low < traffic.peak <= whole.high else traffic.peak <= whole.low
        if self.json:
            print_json(
                {
                    "slos": self.slo,
                    "peak_rps": traffic.peak,
                    "router": self.router,
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
                *([f"one instance of {name} alone carries, {unit}", _shown(each.rate)] for name, each in alone.items()),
                [f"{what} behind a router ({self.router}) carry, {unit}", _shown(whole)],
                [f"they carry {traffic.peak:,.4g} {unit}", yes_text(carries)],
            ],
            head=False,
        )
        print_days(days, [], notes)

    def _print(
        self,
        slos: list[Slo],
        result: dict[str, Any],
        needed: Interval,
        alone: Carried,
        together: Interval,
        workload: Workload,
    ) -> None:
        from bench.words.predicted import METRIC_TITLES, REPORTED

        unit = "conversations/s" if workload.turns else "requests/s"
        print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, slos))}:\n")
        rows = [
            [f"one instance alone carries, {unit}", _shown(alone.rate)],
            *(
                [f"… its {METRIC_TITLES[name]} there", _shown(alone.at.numbers[name])]
                for name in REPORTED
                if name in alone.at.numbers
            ),
        ]
        if result["together"] > 1:
            rows.append([f"one of {result['together']} behind a router ({self.router}), {unit}", _shown(together)])
        rows += [
            [
                f"instances for {result['peak_rps']:,.4g} {unit}",
                f"{needed.value:,.0f} ({needed.low:,.0f} to {needed.high:,.0f})",
            ],
            ["enough even if one fails (N + 1)", f"{needed.high + 1:,.0f}"],
            ["equivalent safety factor of bench size", f"{result['safety_factor']:.2f}"],
        ]
        print_table(rows, head=False)


def _shown(interval: Interval) -> str:
    return f"{interval.value:.3g} ({interval.low:.3g} to {interval.high:.3g})"

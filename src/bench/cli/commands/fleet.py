"""`bench fleet`: how many instances traffic takes that was not measured, by replays of a calibrated server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from bench.cli.entry import command
from bench.cli.modelled import Modelled
from bench.cli.options import SLO, not_negative, option, positive
from bench.cli.output import print_json, print_table, tracked
from bench.errors import BenchError, shown_share

if TYPE_CHECKING:
    from bench.predict.calibrate import Calibrated
    from bench.predict.carried import Carried
    from bench.predict.ensemble import Member
    from bench.predict.fleet import FleetReplay
    from bench.predict.state import Limits
    from bench.predict.traffic import Traffic
    from bench.records.calibration import Doubt, Interval
    from bench.study import Slo, Workload

_TRAFFIC, _FLEET = "The traffic", "The fleet"
_MEMBERS = 20  # of an ensemble
_TOGETHER, _GAIN = 4, 2  # instances that stand for a larger fleet at its peak; times that one carries more there, at most
_REQUESTS, _MOST_REQUESTS = 1_000_000, 3_000_000  # of a replay of all the traffic: so many, if few instances can stand for all
_FEWEST, _MOST, _TO_SCALE = 2, 16, 8  # instances that stand for a fleet; and for one whose number changes
_MOST_OF_TRACE = 20_000  # requests of a trace, which each member of the ensemble replays several times
_START_UP_S = 120.0  # of an instance, where --start-up does not say it
_HOUR_S = 3600.0


@dataclass(frozen=True)
class _Day:
    """What traffic got from a fleet.

    Attributes:
        least, most: instances that were ready. hours: that are paid for. within: share of the requests within all limits, of which
            lost ones are not; worst: the same of the worst hour. lost: share of them that was lost. meets: whether each hour met the
            SLOs' percentiles. doubts: why not to rely on it.
    """

    name: str
    least: int
    most: int
    hours: float
    within: float
    worst: float
    lost: float
    meets: bool
    doubts: Sequence[Doubt] = ()


@command(
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --prompt-length 256 --output-length 64 --peak-rps 200",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --workload mine.yaml --peak-rps 200 --trough-rps 20 --start-up 120",
    "bench fleet results:tiny-mqa --slo tpot_p95=50ms --workload mine.yaml --traffic monday.csv --fail-every 500",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --workload my-load/replay.yaml --time-scale 3",
    after="Exit status: 0 for a prediction; 1 where the traffic is refused; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Fleet(Modelled):
    """A model of the server is fitted to the runs in RESULTS, and the traffic replayed on instances of it behind a router: what one of
    them carries within the SLOs, how many the peak takes, and what a day gets from a fixed fleet and from one that keeps its load
    between 60 and 80 %. A few instances with their share of the traffic stand for a large fleet. A workload that replays a trace, as
    `bench traffic` writes it, is the traffic itself: all of it is replayed on as many instances as it takes.
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
    start_up: Annotated[
        float | None,
        option("SECONDS", "Until a new instance is ready.", _FLEET, parser=not_negative, default=f"{_START_UP_S:g}"),
    ] = None
    fail_every: Annotated[float | None, option("HOURS", "Mean time until an instance fails.", _FLEET, parser=positive)] = None
    price_per_hour: Annotated[float | None, option("USD", "Of one instance.", _FLEET, parser=positive)] = None

    def run(self) -> None:
        """Print what the traffic takes."""
        from bench.predict.calibrate import calibrate
        from bench.predict.carried import carried, rates_carried, replayed
        from bench.predict.ensemble import members, typical
        from bench.predict.judge import self_judged
        from bench.predict.predict import doubts, misfits
        from bench.records.calibration import Interval
        from bench.study import parse_slo
        from bench.words.predicted import doubt_text

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
        if workload.lose:
            raise BenchError("--workload has lose, and what is predicted loses no instance. Remove it.")
        runs, limits = self.measured()
        fitted = calibrate(runs, limits)
        if fitted is None:
            raise BenchError(f"{self.results}: its valid runs show too few steps of the engine to calibrate a model.")
        limits = self.what_if(limits)
        model = self_judged(fitted, runs)
        self._refuse(list(misfits(model)))
        if traffic is None:
            self._of_trace(model, limits, workload, slos)
            return
        rates = rates_carried(tracked(members(model, limits, count=_MEMBERS), "One instance"), workload, slos)
        if not min(rates):
            self._refuse(list(doubts(model, [replayed(typical(model, limits), workload, slos, 1e-3)])))
            raise BenchError(f"no rate is clearly within {' and '.join(map(str, slos))}: even a request alone may take longer.")
        alone = carried(model, workload, slos, rates, limits)
        self._refuse(alone.at.doubts)
        number, together = self._together(model, limits, workload, slos, traffic.peak, alone.rate)
        at = replayed(typical(model, limits), workload, slos, together.high, instances=number, router=self.router)
        self._refuse(list(doubts(model, [at])))
        needed = Interval(*(math.ceil(traffic.peak / rate - 1e-9) for rate in (together.value, together.high, together.low)))
        days, notes = (
            ([], []) if traffic.seconds < _HOUR_S else self._days(model, limits, workload, slos, traffic, needed, together)
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
            "traffic": [asdict(day) | {"doubts": [doubt_text(doubt) for doubt in day.doubts]} for day in days],
            "notes": notes,
        }
        if self.json:
            print_json(result)
        else:
            self._print(slos, result, needed, alone, together, days, workload)

    @property
    def _start_up_s(self) -> float:
        return _START_UP_S if self.start_up is None else self.start_up

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
        shares = {number: served(replay, member, slos) for number, replay in replays.items()}
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
        self, model: Calibrated, limits: Limits, workload: Workload, slos: list[Slo], peak: float, alone: Interval
    ) -> tuple[int, Interval]:
        """Requests/s of one of several behind the router: of as many as the peak takes, or of four that stand for more."""
        from bench.predict.carried import rates_carried
        from bench.predict.ensemble import members
        from bench.predict.predict import ensemble_interval

        if peak <= alone.value:
            return 1, alone
        number = 2 if peak <= _TOGETHER * _GAIN * alone.value else _TOGETHER
        while True:
            ensemble = tracked(members(model, limits, count=_MEMBERS), f"{number} behind {self.router}")
            rates = rates_carried(ensemble, workload, slos, instances=number, router=self.router)
            if not min(rates):
                raise BenchError(f"no rate is clearly within the SLOs of {number} instances behind {self.router}.")
            found = ensemble_interval(rates)
            if number == _TOGETHER or number * found.value >= peak:
                return number, found
            number += 1

    def _days(
        self,
        model: Calibrated,
        limits: Limits,
        workload: Workload,
        slos: list[Slo],
        traffic: Traffic,
        needed: Interval,
        together: Interval,
    ) -> tuple[list[_Day], list[str]]:
        """A fixed fleet, and one that follows the traffic, as far as they can be replayed; and notes on what cannot.

        A few instances stand for all, with their share of the traffic.
        """
        from bench.predict.ensemble import typical
        from bench.predict.fleet import Instances, Scaling, replay_fleet
        from bench.predict.predict import doubts

        member, number, start_up_s = typical(model, limits), int(needed.high), self._start_up_s
        requests = traffic.requests * workload.turn_count
        few = min(number, max(_FEWEST, min(_MOST, round(_REQUESTS * number / requests))))
        share = few / number
        if requests * share > _MOST_REQUESTS:
            return [], [
                f"The traffic was not replayed: {few} instances get {requests * share:,.0f} requests of it. Give shorter traffic."
            ]
        if self.fail_every is not None and few < number:
            return [], [f"Failures were not replayed: {few} instances cannot stand for the {number} of the fleet there."]
        notes = [f"{few} instances, with their share of the traffic, stand for {number}."] if few < number else []
        plans = traffic.scaled(share).plans(workload, "traffic")
        fails_s = math.inf if self.fail_every is None else _HOUR_S * self.fail_every
        fleets = [("fixed", Instances(member.server, few, start_up_s, fails_s))]
        if few in (number, *range(_TO_SCALE, _MOST + 1)):
            first = max(1, math.ceil(few * traffic.rates[0] / traffic.peak))
            fleets.append(("autoscaled", Instances(member.server, first, start_up_s, fails_s, Scaling(together.value))))
        else:
            notes.append(
                f"Autoscaling was not replayed: {few} instances are too few to stand for {number} whose number changes."
            )
        found = []
        for name, instances in tracked(fleets, "All the traffic"):
            replay = replay_fleet(plans, instances, self.router, overhead_s=member.overhead_s, until_s=traffic.seconds)
            found.append(_day(name, replay, member, slos, share, list(doubts(model, [replay]))))
        return found, notes

    def _print(
        self,
        slos: list[Slo],
        result: dict[str, Any],
        needed: Interval,
        alone: Carried,
        together: Interval,
        days: list[_Day],
        workload: Workload,
    ) -> None:
        from bench.words.predicted import METRIC_TITLES, REPORTED, doubt_text

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
        if days:
            price = self.price_per_hour
            print(f"\nAll the traffic, {self._start_up_s:g} s to start an instance:\n")
            head = ["fleet", "instances", "instance-hours", "within all limits", "in the worst hour", "SLOs met in each hour"]
            print_table([head + (["USD"] if price else []), *(_row(day, price) for day in days)])
        for day in days:
            for doubt in day.doubts:
                print(f"\nNot predicted, {day.name}: {doubt_text(doubt)}.")
        for note in result["notes"]:
            print(f"\n{note}")


def _day(name: str, replay: FleetReplay, member: Member, slos: list[Slo], share: float, why_not: list[Doubt]) -> _Day:
    from bench.predict.served import served

    ready = [number / share for _, number, _ in replay.history]
    hours = replay.paid_s / _HOUR_S / share
    return _Day(name, round(min(ready)), round(max(ready)), hours, **vars(served(replay, member, slos)), doubts=why_not)


def _row(day: _Day, price: float | None) -> list[str]:
    instances = f"{day.least:,}" if day.least == day.most else f"{day.least:,} to {day.most:,}"
    shares = ["–"] * 3
    if not day.doubts:
        shares = [shown_share(day.within, 2), shown_share(day.worst, 2), "yes" if day.meets else "no"]
    return [day.name, instances, f"{day.hours:,.0f}", *shares, *([f"{day.hours * price:,.2f}"] if price else [])]


def _shown(interval: Interval) -> str:
    return f"{interval.value:.3g} ({interval.low:.3g} to {interval.high:.3g})"

"""What `bench fleet` prints of predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bench.cli.output import print_json, print_table
from bench.errors import shown_share, three_digits
from bench.findings.predicted import PHASE_TITLES, REPORTED, doubt_text, judgement_rows, parameter_rows, shares_rows
from bench.predict.calibration import METRICS, Doubt, Interval
from bench.predict.study import described

if TYPE_CHECKING:
    from bench.predict.calibrate import Calibrated
    from bench.predict.day import Day
    from bench.predict.instances import Course, PeakFleet, Question
    from bench.predict.predict import Predicted
    from bench.predict.served import Served
    from bench.predict.state import Limits
    from bench.workloads.schedule import PlannedRequest

_KEEPS_UP = 0.95  # of a rate: a server that answers fewer is left behind
_WIDE = 4.0  # times its lower end: a cost that runs hardly tell from others
_OWN = {"idle_s", "path_s"}  # ways to the engine, which are told from what a step costs


def print_loads(
    model: Calibrated, predictions: Mapping[float, Predicted], judgements: Sequence[Any], *, obeyed: Limits, asked: int,
    times: Mapping[str, float], as_json: bool,
) -> None:  # fmt: skip
    """Args: predictions: by load. asked: requests that come for each that a rate counts; 0 where none is asked for. times: bandwidth
    and FLOP/s of the device, in times of the measured one's.
    """
    extrapolated = dict(times) if set(times.values()) != {1.0} else None
    if as_json:
        print_json(
            {
                "parameters": {name: vars(interval) for name, interval in described("", model).parameters.items()},
                "step_time": vars(model.fitted.best),
                "runs": list(model.runs),
                "extrapolated": extrapolated,
                "predictions": [_as_json(level, found) for level, found in predictions.items()],
                "judged": [vars(each) for each in judgements],
            }
        )
        return
    record = described("", model)
    print_table(parameter_rows(record), head=False)
    if any(cost.value and cost.high > _WIDE * cost.low for name, cost in record.parameters.items() if name not in _OWN):
        print(
            "\nCosts with wide intervals came together in these runs, so that only their sum is known well; predictions use the sum."
        )
    here, there = map(_settings, (model.limits, obeyed))
    if changed := [f"{name} {there[name]} in place of {value}" for name, value in here.items() if there[name] != value]:
        print(f"\nWhat if: {', '.join(changed)}.")
    if given := {level: found for level, found in predictions.items() if not found.doubts}:
        _print_loads(given, asked)
    for level, found in predictions.items():
        for doubt in found.doubts:
            print(f"\nNot predicted at {level:g}: {doubt_text(doubt)}.")
    if judgements:
        print("\nPredictions of measured runs, from the other runs alone:\n")
        print_table(judgement_rows(judgements), "<<>>>>")
    if extrapolated:
        print(
            f"\nExtrapolated to a device with {times['bandwidth']:g} times the bandwidth and {times['flops']:g} times the FLOP/s: "
            "nothing was measured there, and the intervals do not hold what that leaves open."
        )


def _settings(limits: Limits) -> dict[str, object]:
    return {
        "KV tokens": None if limits.blocks is None else (limits.blocks - 1) * limits.block_size,
        "max_num_seqs": limits.sequences,
        "max_num_batched_tokens": limits.tokens,
        "prefix caching": "on" if limits.cached else "off",
    }


def _as_json(level: float, found: Predicted) -> dict[str, Any]:
    return {
        "level": level,
        **{name: vars(interval) for name, interval in found.numbers.items() if not found.doubts},
        "kv_peak": found.kv_peak,
        "cached_share": found.cached,
        "waiting": found.waiting,
        "preemptions": found.preemptions,
        "shares_of_time": {} if found.doubts else found.shares,
        "refused_because": [doubt_text(doubt) for doubt in found.doubts],
    }


def _print_loads(given: Mapping[float, Predicted], asked: int) -> None:
    names = [name for name in METRICS if all(name in found.numbers for found in given.values())]
    cached = any(found.cached for found in given.values())
    rows = [["load", *(METRICS[name] for name in names), "KV peak", "waiting, mean", *(["from cache"] if cached else [])]]
    for level, found in given.items():
        ends = (found.numbers[name] for name in names)
        cells = [f"{three_digits(i.value)} ({three_digits(i.low)}–{three_digits(i.high)})" for i in ends]
        kv = "–" if found.kv_peak is None else f"{100 * found.kv_peak:.0f} %"
        rows.append([f"{level:g}", *cells, kv, f"{found.waiting:.3g}", *([shown_share(found.cached)] if cached else [])])
    print("\nPredicted, latencies and rates each with a 90 % interval, over whole runs, their beginning included:\n")
    print_table(rows)
    for level, found in given.items():
        answered = found.numbers.get("throughput_requests_per_s")
        if asked and answered and answered.high < _KEEPS_UP * level * asked:
            print(f"\nAt {level:g} requests pile up: latencies are those of so many requests, and grow as long as more come.")
    print("\nWhere a request's time goes: of median ones, and of the slowest 5 %:\n")
    shares = [[f"{level:g}", *row] for level, found in given.items() for row in shares_rows(found.shares)]
    print_table([["load", "requests", *PHASE_TITLES.values()], *shares], "><>>>>>")


def print_fleet(
    asked: Question, rate: float, peak: PeakFleet, course: Course | None, starts: tuple[Sequence[float], str],
    price: float | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Args: rate: of the peak. course: of a day; None of a peak alone. starts: times to start an instance (s), and in words. price: of
    an instance-hour (USD).
    """
    together, there = max(peak.behind), peak.alone.at.numbers
    if as_json:
        print_json(
            {
                "slos": list(map(str, asked.slos)),
                "peak_rps": rate,
                "router": asked.router,
                "alone_rps": vars(peak.alone.rate),
                "alone_there": {name: vars(interval) for name, interval in there.items()},
                "together": together,
                "together_rps": vars(peak.behind[together]),
                "instances": vars(peak.instances),
                "start_up_s": list(starts[0]) if course and course.days else None,
                "traffic": [_day_numbers(day, why) for day, why in course.days] if course else [],
                "hours": [asdict(hour) for hour in course.hours] if course else [],
                "notes": course.notes if course else [],
            }
        )
        return
    unit = "conversations/s" if asked.workload.turns else "requests/s"
    print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, asked.slos))}:\n")
    rows = [[f"one instance alone carries, {unit}", _interval(peak.alone.rate)]]
    rows += [[f"… its {METRICS[name]} there", _interval(there[name])] for name in REPORTED if name in there]
    if together > 1:
        rows.append([f"one of {together} behind a router ({asked.router}), {unit}", _interval(peak.behind[together])])
    rows.append([f"instances for {rate:,.4g} {unit}", _whole(peak.instances)])
    rows.append(["enough even if one fails (N + 1)", f"{peak.instances.high + 1:,.0f}"])
    print_table(rows, head=False)
    if course:
        _print_course(course, starts[1], price)


def _print_course(course: Course, starts: str, price: float | None) -> None:
    print("\nInstances that each hour's highest rate takes:\n")
    hours = [[f"{hour.number:,}", f"{hour.peak:,.3g}", _whole(hour.instances)] for hour in course.hours]
    print_table([["hour", "requests/s", "instances"], *hours])
    if course.days:
        print(f"\nAll the traffic, {starts}; ranges are those of three replays, with a slow, a typical and a fast instance:\n")
        head = ["fleet", "instances", "instance-hours", "within all limits", "in the worst hour", "SLOs met in each hour"]
        print_table([head + (["USD"] if price else []), *(_day(day, bool(why), price) for day, why in course.days)])
    for day, why in course.days:
        for doubt in why:
            print(f"\nNot predicted, {day.name}: {doubt_text(doubt)}.")
    for note in course.notes:
        print(f"\n{note}")


def _day_numbers(day: Day, why: Sequence[Doubt]) -> dict[str, Any]:
    numbers = {name: vars(value) if hasattr(value, "low") else value for name, value in vars(day).items() if name != "replays"}
    return numbers | {"doubts": [doubt_text(doubt) for doubt in why]}


def _day(day: Day, doubted: bool, price: float | None) -> list[str]:
    instances = f"{day.least:,}" if day.least == day.most else f"{day.least:,} to {day.most:,}"
    met = {True: "yes", False: "no", None: "not known"}[day.meets]
    shares = ["–"] * 3 if doubted else [_share(day.within), _share(day.worst), met]
    return [day.name, instances, _whole(day.hours), *shares, *([f"{day.hours.value * price:,.2f}"] if price else [])]


def print_trace(
    asked: Question, plans: Sequence[PlannedRequest], needed: Interval, shares: Mapping[int, Served], *, scale: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Args: needed: instances. shares: what so many of them serve. scale: times as fast as the trace."""
    seconds = max(plan.due_s or 0.0 for plan in plans)
    if as_json:
        print_json(
            {
                "slos": list(map(str, asked.slos)),
                "requests": len(plans),
                "seconds": seconds,
                "router": asked.router,
                "instances": vars(needed),
                "within": {str(number): vars(share) for number, share in shares.items()},
            }
        )
        return
    hour = "the trace" if scale == 1 else f"the replay ({scale:g} h of the trace)"
    print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, asked.slos))}, each hour of {hour} by itself:\n")
    rows = [
        ["requests of the trace", f"{len(plans):,} in {seconds:,.0f} s"],
        [f"instances behind a router ({asked.router})", _whole(needed)],
        ["enough even if one fails (N + 1)", f"{needed.high + 1:,.0f}"],
        *([f"within all limits, {number:,} of them", shown_share(share.within, 2)] for number, share in shares.items()),
    ]
    print_table(rows, head=False)


def _interval(interval: Interval) -> str:
    return f"{interval.value:.3g} ({interval.low:.3g} to {interval.high:.3g})"


def _whole(interval: Interval) -> str:
    return f"{interval.value:,.0f} ({interval.low:,.0f} to {interval.high:,.0f})"


def _share(interval: Interval) -> str:
    return f"{shown_share(interval.value, 2)} ({shown_share(interval.low, 2)} to {shown_share(interval.high, 2)})"

"""What a model of a measured server predicts: fleets of equal instances behind a router."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import polars as pl

from bench.cli.commands.fleet import Fleet, refuse
from bench.cli.output import print_json, print_table, tracked
from bench.errors import BenchError, is_are, shown_share, three_digits
from bench.findings.predicted import REPORTED, doubt_text
from bench.predict.asked import Traffic, read_traffic
from bench.predict.calibration import METRICS, Interval
from bench.predict.instances import (
    HOUR_S,
    Course,
    Day,
    NotPredictedError,
    PeakFleet,
    Question,
    for_peak,
    for_trace,
    for_traffic,
)
from bench.predict.limits import Given
from bench.predict.predict import misfits
from bench.predict.sources import FEW_STEPS, Source, load_to_predict, start_ups_s
from bench.predict.study import self_judged
from bench.results import Results
from bench.runs.latencies import LATENCIES
from bench.study.read import read_workload
from bench.study.slo import Slo
from bench.workloads.schedule import schedule
from bench.workloads.workload import Workload

_START_UP_S = 120.0  # of an instance, where neither `start_up_s` nor a measured start says it
_MOST_OF_TRACE = 20_000  # requests of a trace, which each member of the ensemble replays several times


def fleet(asked: Fleet, slos: Sequence[Slo]) -> None:
    """Equal instances for a peak, for traffic over a day, or for a recorded trace."""
    results, workload = Results.open(asked.results or "results"), _load(asked)
    refuse(_faults(asked, slos, results, workload))
    assert workload is not None
    name = results.own["deployment"][0]
    question = _question(asked, slos, results, name, workload)
    if workload.trace:
        _of_trace(question, asked)
        return
    traffic = _traffic(asked)
    peak = for_peak(question, traffic.peak)
    starts, started = _starts(asked, results, name)
    course = for_traffic(question, traffic, peak, starts) if asked.traffic else None
    if asked.json:
        told = {**question.asked, "peak_rps": traffic.peak, **asdict(peak)}
        if course:
            days = [{**asdict(day), "doubts": list(map(doubt_text, day.doubts))} for day in course.days]
            told |= {"start_up_s": list(starts), **asdict(course), "days": days}
        print_json(told)
        return
    _print_peak(question, traffic.peak, peak)
    if course:
        _print_course(
            course, started, asked.price_per_hour and asked.price_per_hour * (asked.gpus or results.own["gpus"][0] or 1)
        )


def _load(asked: Fleet) -> Workload | None:
    """The load of `--workload` or of the two lengths; None where one of these is missing."""
    if asked.workload is not None:
        return load_to_predict(read_workload(Path(asked.workload)), asked.workload)
    if asked.prompt_length is None or asked.output_length is None:
        return None
    content = {"arrival": "poisson", "prompt_tokens": asked.prompt_length, "output_tokens": asked.output_length}
    return load_to_predict(content, "the command line")


def _faults(asked: Fleet, slos: Sequence[Slo], results: Results, workload: Workload | None) -> Iterator[str]:
    if workload is None:
        yield "give both --prompt-length and --output-length, or --workload FILE."
    traced = bool(workload and workload.trace)
    yield from asked.unfit("trace" if traced else "unmeasured")
    for slo in slos:
        if slo.request_class:
            yield f"--slo: {slo} limits a class, but a fleet is predicted for all requests together. Leave the class out."
        if not LATENCIES[slo.metric].replayed:
            yield f"--slo: {slo}: reasoning time is not predicted. Limit TTFT, TPOT or E2E."
    if workload and workload.step:
        yield "--workload: a step is traffic; give it as --traffic FILE, and leave it out of the workload."
    if not traced and (asked.peak_rps is None) == (asked.traffic is None):
        yield "Give --peak-rps, the requests/s of the busiest moment, or --traffic FILE."
    if not traced and asked.traffic is None:
        given = {
            "--price-per-hour": asked.price_per_hour,
            "--gpus": asked.gpus,
            "--set start_up_s": asked.further.start_up_s,
        }
        yield from (f"{name} needs a course of traffic: --traffic FILE." for name, value in given.items() if value is not None)
    names = results.own["deployment"].unique(maintain_order=True).to_list()
    if len(names) > 1:
        yield (
            f"one deployment is predicted at a time; name it, as {asked.results or 'results'}:{names[0]}. There are: "
            f"{', '.join(names)}."
        )


def _question(asked: Fleet, slos: Sequence[Slo], results: Results, name: str, workload: Workload) -> Question:
    """What is asked, of a model that is fitted to the deployment's runs and judged by them, under the settings that are asked for.

    Raises:
        BenchError: there are no runs to fit a model to. NotPredictedError: it does not fit them.
    """
    told = asked.further
    given = Given(told.max_num_batched_tokens, told.max_num_seqs, told.kv_tokens, told.prefix_caching)
    source = Source(results.own, results.folder, name, given)
    if source.model is None:
        invalid = results.own.filter(~pl.col("valid")).height
        again = f"; {invalid} {is_are(invalid)} invalid, and `bench runs --discard invalid` lets them be measured again"
        raise BenchError(f"{name}: {source.why_not or FEW_STEPS}{again if invalid and source.limits else ''}.")
    judged = self_judged(source.model, source.runs)
    if found := list(misfits(judged)):
        raise NotPredictedError(found)
    return Question(judged, given.over(judged.limits), workload, slos, asked.router, tracked)


def _starts(asked: Fleet, results: Results, name: str) -> tuple[tuple[float, ...], str]:
    """How long an instance takes to start (s), as given, as each start was measured, or as is assumed; and the same in words."""
    if (given := asked.further.start_up_s) is not None:
        return (given,), f"{given:g} s to start an instance"
    known = start_ups_s(results.folder, name)
    if not known:
        return (_START_UP_S,), f"{_START_UP_S:g} s to start an instance, which is assumed: RESULTS measured no start"
    each = f" ({min(known):.3g} to {max(known):.3g} s in {len(known)} starts)" if len(known) > 1 else " (one start)"
    return known, f"{median(known):.3g} s to start an instance, as measured{each}"


def _traffic(asked: Fleet) -> Traffic:
    if asked.traffic is None:
        return Traffic((0.0, 1.0), (asked.peak_rps or 0.0,) * 2)
    found = read_traffic(asked.traffic)
    if found.seconds < HOUR_S:
        raise BenchError(f"--traffic {asked.traffic}: lasts {found.seconds:g} s; give an hour or more.")
    return found


# What is printed


def _print_peak(question: Question, rate: float, peak: PeakFleet) -> None:
    together, there = max(peak.behind), peak.alone.numbers
    unit = "conversations/s" if question.workload.turns else "requests/s"
    print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, question.slos))}:\n")
    rows = [[f"one instance alone sustains, {unit}", _interval(peak.behind[1], three_digits)]]
    rows += [[f"… its {METRICS[name]} there", _interval(there[name], three_digits)] for name in REPORTED if name in there]
    if together > 1:
        rows.append(
            [f"one of {together} behind a router ({question.router}), {unit}", _interval(peak.behind[together], three_digits)]
        )
    rows.append([f"instances for {rate:,.4g} {unit}", _interval(peak.instances)])
    rows.append(["enough even if one fails (N + 1)", f"{peak.instances.high + 1:,.0f}"])
    print_table(rows)


def _print_course(course: Course, starts: str, price: float | None) -> None:
    """Args: starts: how long one takes, in words. price: of an instance-hour (USD)."""
    print("\nInstances that each hour's highest rate takes:\n")
    hours = [[f"{hour.number:,}", f"{hour.peak:,.3g}", _interval(hour.instances)] for hour in course.hours]
    print_table([["hour", "requests/s", "instances"], *hours])
    if course.days:
        print(f"\nAll the traffic, {starts}; ranges are those of three replays, with a slow, a typical and a fast instance:\n")
        head = ["fleet", "instances", "instance-hours", "within all limits", "in the worst hour", "SLOs met in each hour"]
        print_table([head + (["USD"] if price else []), *(_day(day, price) for day in course.days)])
    for day in course.days:
        for doubt in day.doubts:
            print(f"\nNot predicted, {day.name}: {doubt_text(doubt)}.")
    for note in course.notes:
        print(f"\n{note}")


def _day(day: Day, price: float | None) -> list[str]:
    instances = f"{day.least:,}" if day.least == day.most else f"{day.least:,} to {day.most:,}"
    met = {True: "yes", False: "no", None: "not known"}[day.meets]
    shares = ["–"] * 3 if day.doubts else [_interval(day.within, _percent), _interval(day.worst, _percent), met]
    return [day.name, instances, _interval(day.hours), *shares, *([f"{day.hours.value * price:,.2f}"] if price else [])]


def _of_trace(question: Question, asked: Fleet) -> None:
    scale = asked.further.time_scale or 1.0
    plans = schedule(question.workload, scale, "traffic")
    if len(plans) > _MOST_OF_TRACE:
        raise BenchError(
            f"{question.workload.trace}: {len(plans):,} requests, but {_MOST_OF_TRACE:,} at most can be replayed so often. Take a "
            "part with the busiest time: bench traffic LOG --from MOMENT --to MOMENT --output DIR."
        )
    needed, shares = for_trace(question, plans)
    seconds = max(plan.due_s or 0.0 for plan in plans)
    if asked.json:
        within = {str(count): vars(share) for count, share in shares.items()}
        told = {"requests": len(plans), "seconds": seconds, "instances": vars(needed), "within": within}
        print_json({**question.asked, **told})
        return
    hours = "the trace" if scale == 1 else f"the replay ({scale:g} h of the trace)"
    each = f", each hour of {hours} by itself" if seconds > 3600 else ""
    print(f"Predicted, with 90 % intervals, within {' and '.join(map(str, question.slos))}{each}:\n")
    rows = [
        ["requests of the trace", f"{len(plans):,} in {seconds:,.0f} s"],
        [f"instances behind a router ({question.router})", _interval(needed)],
        ["enough even if one fails (N + 1)", f"{needed.high + 1:,.0f}"],
        *([f"within all limits, {count:,} of them", _percent(share.within)] for count, share in shares.items()),
    ]
    print_table(rows)


def _interval(interval: Interval, text: Callable[[float], str] = "{:,.0f}".format) -> str:
    return f"{text(interval.value)} ({text(interval.low)} to {text(interval.high)})"


def _percent(share: float) -> str:
    return shown_share(share, 2)

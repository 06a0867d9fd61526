"""`bench predict`: what a measured server would do under a load that was not measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.axes import AXES, CONCURRENCY, RATE
from bench.cli.output import print_json, print_table, tracked
from bench.cli.sources import read_named
from bench.errors import BenchError, shown_share
from bench.load.schedule import PlannedRequest, schedule
from bench.predict.calibrate import Calibrated, MeasuredRun, calibrate, elsewhere, parameters
from bench.predict.judge import cross_validate, judged, self_judged
from bench.predict.predict import METRICS, Predicted, predict
from bench.predict.sources import measured_runs, read_limits
from bench.predict.state import Limits
from bench.predict.study import described
from bench.study import Paths, Workload, load_workload
from bench.words.predicted import (
    METRIC_TITLES,
    PHASE_TITLES,
    doubt_text,
    judgement_rows,
    parameter_rows,
    shares_rows,
    three_digits,
)
from bench.yaml_file import read_yaml

__all__ = ["measured_runs_of", "run", "what_if", "workload_of"]

_EXTRAPOLATED = (
    "\nExtrapolated to a device with {bandwidth:g} times the bandwidth and {flops:g} times the FLOP/s: nothing was measured there, "
    "and the intervals do not hold what that leaves open."
)
_KEEPS_UP = 0.95  # of a rate: a server that answers fewer is left behind
_WIDE = 4.0  # times its lower end: a cost that runs hardly tell from others
_OWN = {"idle_s", "path_s"}  # ways to the engine, which are told from what a step costs
_CLOSED_REQUESTS, _OPEN_REQUESTS = 20, 1000  # of a level's requests in flight; of a rate


def run(options: SimpleNamespace) -> None:
    runs, limits = measured_runs_of(options.results)
    model = calibrate(runs, limits)
    if model is None:
        raise BenchError(f"{options.results}: its valid runs show too few steps of the engine to calibrate a model.")
    obeyed = what_if(limits, options)
    levels = _levels(options)
    if obeyed != limits and not levels:
        raise BenchError("a what-if asks for a load: give --concurrency or --request-rate too.")
    extrapolated = _another_device(options, levels)
    predictions, asked = {}, 0
    if levels:
        workload = workload_of(options, CONCURRENCY if options.concurrency else RATE)
        asked = 0 if options.concurrency else workload.turns.count if workload.turns else 1
        there = elsewhere(self_judged(model, runs), bandwidth=options.bandwidth or 1.0, flops=options.flops or 1.0)
        for level in tracked(levels, "Replaying"):
            predictions[level] = _predicted(there, workload, level, obeyed)
    judgements = judged(cross_validate(runs, limits), runs) if options.check or not levels else []
    if options.json:
        print_json(
            {
                "parameters": {name: vars(interval) for name, interval in parameters(model).items()},
                "step_time": vars(model.fitted.best),
                "runs": list(model.runs),
                "extrapolated": extrapolated,
                "predictions": [_as_json(level, found) for level, found in predictions.items()],
                "judged": [vars(each) for each in judgements],
            }
        )
    else:
        _print(model, predictions, judgements, changed=_changed(limits, obeyed), asked=asked)
        if extrapolated:
            print(_EXTRAPOLATED.format(**extrapolated))
    if any(found.doubts for found in predictions.values()):
        raise SystemExit(1)


def _changed(limits: Limits, obeyed: Limits) -> list[str]:
    """The settings of a what-if, beside the measured server's."""
    here, there = map(_settings, (limits, obeyed))
    return [f"{name} {there[name]} in place of {value}" for name, value in here.items() if there[name] != value]


def _settings(limits: Limits) -> dict[str, object]:
    return {
        "KV tokens": None if limits.blocks is None else (limits.blocks - 1) * limits.block_size,
        "max_num_seqs": limits.sequences,
        "max_num_batched_tokens": limits.tokens,
        "prefix caching": "on" if limits.cached else "off",
    }


def _another_device(options: SimpleNamespace, levels: Sequence[float]) -> dict[str, float] | None:
    """What another device has, in times of what was measured; None where it is the same.

    Raises:
        BenchError: no load is asked for.
    """
    if options.bandwidth is None and options.flops is None:
        return None
    if not levels:
        raise BenchError("--bandwidth and --flops ask for a load on another device: give --concurrency or --request-rate too.")
    if options.check:
        raise BenchError(
            "--check judges the model by measured runs; none is of another device. Leave --bandwidth and --flops out."
        )
    return {"bandwidth": options.bandwidth or 1.0, "flops": options.flops or 1.0}


def _levels(options: SimpleNamespace) -> list[float]:
    """The loads that are asked for; none where the model alone is.

    Raises:
        BenchError: both axes are given, or what is given is no list of numbers.
    """
    if options.concurrency and options.request_rate:
        raise BenchError("Give --concurrency or --request-rate, not both.")
    name = "concurrency" if options.concurrency else "request-rate"
    text = options.concurrency or options.request_rate or ""
    try:
        found = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        found = [math.nan]
    if not all(0 < level < math.inf for level in found) or (options.concurrency and any(level % 1 for level in found)):
        kind = "whole numbers of 1 or more" if options.concurrency else "numbers above 0"
        raise BenchError(f"--{name} {text}: not {kind}, with commas between.")
    return found


def measured_runs_of(text: str) -> tuple[list[MeasuredRun], Limits]:
    """The valid runs of one deployment with their requests, and what its scheduler obeys."""
    table, deployment = read_named(text)
    names = table["deployment"].unique(maintain_order=True).to_list()
    if deployment is None and len(names) > 1:
        raise BenchError(
            f"one deployment is predicted at a time; name it, as {text}:{names[0]}. There are: {', '.join(names)}."
        )
    deployment = deployment or names[0]
    place = Path(text) if Path(text).exists() else Path(text.rpartition(":")[0] or Path(Paths.SUMMARY).parent)
    root = place if place.is_dir() else place.parent
    limits = read_limits(root, deployment)
    found = measured_runs(table, root, deployment, limits)
    if not found:
        invalid = table.filter((table["deployment"] == deployment) & ~table["valid"]).height
        why = f"; {invalid} are invalid, and `bench discard --invalid` lets them be measured again" if invalid else ""
        raise BenchError(f"{root}: no valid run of {deployment} with streamed answers whose requests.parquet is there{why}.")
    return found, limits


def what_if(limits: Limits, options: SimpleNamespace) -> Limits:
    """The limits with the settings that are asked for in their place."""
    if options.kv_tokens is not None:
        if limits.blocks is None:
            raise BenchError("--kv-tokens: this engine has slots, whose number is --max-num-seqs.")
        limits = replace(limits, blocks=options.kv_tokens // limits.block_size + 1)
    if options.max_num_seqs is not None:
        limits = replace(limits, sequences=options.max_num_seqs)
    if options.max_num_batched_tokens is not None:
        limits = replace(limits, tokens=options.max_num_batched_tokens)
    if options.prefix_caching is not None:
        limits = replace(limits, cached=options.prefix_caching)
    return limits


def workload_of(options: SimpleNamespace, axis: str) -> Workload:
    """The load of `--workload` or of the two lengths.

    Args:
        axis: of its levels.

    Raises:
        BenchError: neither is given, or the load is of another axis.
    """
    content: dict[str, Any]
    if options.workload is not None:
        content = read_yaml(options.workload)
    elif options.prompt_length is None or options.output_length is None:
        raise BenchError("--prompt-length and --output-length say how long requests are; give both, or --workload FILE.")
    else:
        arrival = "closed" if AXES[axis].held else "poisson"
        content = {"arrival": arrival, "prompt_tokens": options.prompt_length, "output_tokens": options.output_length}
    if options.requests is not None:
        content |= {"num_requests": options.requests}
    workload = load_workload(content, source=str(options.workload or "the command line"))
    if not workload.lengths_known:
        raise BenchError(
            f"{options.workload}: nothing is predicted of prompts from a file, of natural answers or of embeddings. Give lengths as "
            "numbers or distributions."
        )
    if workload.axis != axis and not (AXES[workload.axis].held and AXES[axis].held):
        raise BenchError(f"the load of arrival {workload.arrival} has levels of {workload.axis}, not of {axis}.")
    return workload


def _predicted(model: Calibrated, workload: Workload, level: float, limits: Limits) -> Predicted:
    if workload.num_requests == "auto":
        count = _OPEN_REQUESTS if workload.axis == RATE else max(200, int(_CLOSED_REQUESTS * level))
        workload = workload.model_copy(update={"num_requests": count})

    def plans(number: int) -> Sequence[PlannedRequest]:
        return schedule(workload, level, f"predict/{number}")

    held = int(level) if workload.arrival == "closed" else None
    return predict(model, plans, held=held, limits=limits)


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


def _print(
    model: Calibrated,
    predictions: dict[float, Predicted],
    judgements: Sequence[Any],
    *,
    changed: Sequence[str],
    asked: int,
) -> None:
    """Args: changed: what a what-if changes. asked: requests that come for each that a rate counts; 0 where no rate is asked for."""
    record = described("", model)
    print_table(parameter_rows(record), head=False)
    if any(cost.value and cost.high > _WIDE * cost.low for name, cost in record.parameters.items() if name not in _OWN):
        print(
            "\nCosts with wide intervals came together in these runs, so that only their sum is known well; predictions use the sum."
        )
    if changed:
        print(f"\nWhat if: {', '.join(changed)}.")
    given = {level: found for level, found in predictions.items() if not found.doubts}
    if given:
        names = [name for name in METRICS if all(name in found.numbers for found in given.values())]
        cached = any(found.cached for found in given.values())
        rows = [
            ["load", *(METRIC_TITLES[name] for name in names), "KV peak", "waiting, mean", *(["from cache"] if cached else [])]
        ]
        for level, found in given.items():
            cells = [
                f"{three_digits(i.value)} ({three_digits(i.low)}–{three_digits(i.high)})"
                for i in (found.numbers[name] for name in names)
            ]
            kv = "–" if found.kv_peak is None else f"{100 * found.kv_peak:.0f} %"
            served = [shown_share(found.cached)] if cached else []
            rows.append([f"{level:g}", *cells, kv, f"{found.waiting:.3g}", *served])
        print("\nPredicted, latencies and rates each with a 90 % interval, over whole runs, their beginning included:\n")
        print_table(rows)
        for level, found in given.items():
            answered = found.numbers.get("throughput_requests_per_s")
            if asked and answered and answered.high < _KEEPS_UP * level * asked:
                print(
                    f"\nAt {level:g} requests pile up: latencies are those of so many requests, and grow as long as more come."
                )
        print("\nWhere a request's time goes: of median ones, and of the slowest 5 %:\n")
        shares = [[f"{level:g}", *row] for level, found in given.items() for row in shares_rows(found.shares)]
        print_table([["load", "requests", *PHASE_TITLES.values()], *shares], "><>>>>>")
    for level, found in predictions.items():
        for doubt in found.doubts:
            print(f"\nNot predicted at {level:g}: {doubt_text(doubt)}.")
    if judgements:
        print("\nPredictions of measured runs, from the other runs alone:\n")
        print_table(judgement_rows(judgements), "<<>>>>")

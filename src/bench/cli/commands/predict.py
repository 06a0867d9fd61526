"""`bench predict`: what a measured server would do under a load that was not measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from bench.axes import CONCURRENCY, RATE
from bench.cli.entry import command
from bench.cli.modelled import WHAT_IF, Modelled
from bench.cli.options import LOAD, at_least_one, option, positive
from bench.cli.output import print_json, print_table, tracked
from bench.errors import BenchError, shown_share, three_digits

if TYPE_CHECKING:
    from bench.predict.calibrate import Calibrated
    from bench.predict.predict import Predicted
    from bench.predict.state import Limits
    from bench.workloads.workload import Workload

_EXTRAPOLATED = (
    "\nExtrapolated to a device with {bandwidth:g} times the bandwidth and {flops:g} times the FLOP/s: nothing was measured there, "
    "and the intervals do not hold what that leaves open."
)
_KEEPS_UP = 0.95  # of a rate: a server that answers fewer is left behind
_WIDE = 4.0  # times its lower end: a cost that runs hardly tell from others
_OWN = {"idle_s", "path_s"}  # ways to the engine, which are told from what a step costs
_CLOSED_REQUESTS, _OPEN_REQUESTS = 20, 1000  # of a level's requests in flight; of a rate


@command(
    "bench predict results:tiny-mqa --concurrency 8,16,32 --prompt-length 256 --output-length 64",
    "bench predict results:tiny-mqa --request-rate 4,8 --prompt-length 128 --output-length 64 --kv-tokens 6144",
    "bench predict results:tiny-mqa --request-rate 4,8 --prompt-length 128 --output-length 64 --bandwidth 1.6 --flops 2.2",
    "bench predict results:tiny-mqa --check",
    after="Exit status: 0 for a prediction; 1 where a load is refused; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Predict(Modelled):
    """A model of the engine's steps is fitted to the runs, and its scheduler replayed. Each number has a 90 % interval. What lies
    beyond anything measured is refused, with the reason. Without a load, the model's parameters are printed, and how far its
    predictions of measured runs are off.
    """

    concurrency: Annotated[str | None, option("N,N", "Requests in flight, of a closed loop.", LOAD)] = None
    request_rate: Annotated[str | None, option("N,N", "Requests/s, Poisson.", LOAD)] = None
    requests: Annotated[
        int | None,
        option(
            "N",
            "Of each replay (default: 20 for each in flight and at least 200; of a rate 1,000).",
            LOAD,
            parser=at_least_one,
        ),
    ] = None
    bandwidth: Annotated[
        float | None, option("TIMES", "Another device, with so many times the bandwidth.", WHAT_IF, parser=positive)
    ] = None
    flops: Annotated[float | None, option("TIMES", "… and so many times the FLOP/s.", WHAT_IF, parser=positive)] = None
    check: Annotated[bool, option(None, "Predict each measured run from the others, and print how far off that is.")] = False

    def run(self) -> None:
        """Print the model, and what it predicts of the loads that are asked for."""
        from bench.predict.calibrate import calibrate, elsewhere, parameters
        from bench.predict.judge import held_out, judged, self_judged, widened_by_others

        runs, limits = self.measured()
        model = calibrate(runs, limits)
        if model is None:
            raise BenchError(f"{self.results}: its valid runs show too few steps of the engine to calibrate a model.")
        obeyed = self.what_if(model.limits)
        levels = self._levels()
        if obeyed != model.limits and not levels:
            raise BenchError("a what-if asks for a load: give --concurrency or --request-rate too.")
        extrapolated = self._another_device(levels)
        predictions, asked = {}, 0
        if levels:
            workload = self.load(CONCURRENCY if self.concurrency else RATE, self.requests)
            asked = 0 if self.concurrency else workload.turn_count
            there = elsewhere(self_judged(model, runs), bandwidth=self.bandwidth or 1.0, flops=self.flops or 1.0)
            for level in tracked(levels, "Replaying"):
                predictions[level] = _predicted(there, workload, level, obeyed)
        judgements = judged(widened_by_others(held_out(runs, limits)), runs) if self.check or not levels else []
        if self.json:
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
            _print(model, predictions, judgements, changed=_changed(model.limits, obeyed), asked=asked)
            if extrapolated:
                print(_EXTRAPOLATED.format(**extrapolated))
        if any(found.doubts for found in predictions.values()):
            raise SystemExit(1)

    def _another_device(self, levels: Sequence[float]) -> dict[str, float] | None:
        """What another device has, in times of what was measured; None where it is the same."""
        if self.bandwidth is None and self.flops is None:
            return None
        if not levels:
            raise BenchError(
                "--bandwidth and --flops ask for a load on another device: give --concurrency or --request-rate too."
            )
        if self.check:
            raise BenchError(
                "--check judges the model by measured runs; none is of another device. Leave --bandwidth and --flops out."
            )
        return {"bandwidth": self.bandwidth or 1.0, "flops": self.flops or 1.0}

    def _levels(self) -> list[float]:
        """Empty where the model alone is asked for."""
        if self.concurrency and self.request_rate:
            raise BenchError("Give --concurrency or --request-rate, not both.")
        name = "concurrency" if self.concurrency else "request-rate"
        text = self.concurrency or self.request_rate or ""
        try:
            found = [float(part) for part in text.split(",")] if text else []
        except ValueError:
            found = [math.nan]
        if not all(0 < level < math.inf for level in found) or (self.concurrency and any(level % 1 for level in found)):
            kind = "whole numbers of 1 or more" if self.concurrency else "numbers above 0"
            raise BenchError(f"--{name} {text}: not {kind}, with commas between.")
        return found


def _changed(limits: Limits, obeyed: Limits) -> list[str]:
    here, there = map(_settings, (limits, obeyed))
    return [f"{name} {there[name]} in place of {value}" for name, value in here.items() if there[name] != value]


def _settings(limits: Limits) -> dict[str, object]:
    return {
        "KV tokens": None if limits.blocks is None else (limits.blocks - 1) * limits.block_size,
        "max_num_seqs": limits.sequences,
        "max_num_batched_tokens": limits.tokens,
        "prefix caching": "on" if limits.cached else "off",
    }


def _predicted(model: Calibrated, workload: Workload, level: float, limits: Limits) -> Predicted:
    from bench.predict.predict import predict
    from bench.workloads.schedule import PlannedRequest, schedule

    if workload.num_requests == "auto":
        count = _OPEN_REQUESTS if workload.axis == RATE else max(200, int(_CLOSED_REQUESTS * level))
        workload = workload.model_copy(update={"num_requests": count})

    def plans(number: int) -> Sequence[PlannedRequest]:
        return schedule(workload, level, f"predict/{number}")

    held = int(level) if workload.arrival == "closed" else None
    return predict(model, plans, held=held, limits=limits)


def _as_json(level: float, found: Predicted) -> dict[str, Any]:
    from bench.words.predicted import doubt_text

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
    from bench.predict.calibration import METRICS
    from bench.predict.study import described
    from bench.words.predicted import PHASE_TITLES, doubt_text, judgement_rows, parameter_rows, shares_rows

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
        rows = [["load", *(METRICS[name] for name in names), "KV peak", "waiting, mean", *(["from cache"] if cached else [])]]
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

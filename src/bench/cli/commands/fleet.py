"""`bench fleet`: how many instances and GPUs a load takes, and what a measured server would do under another load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bench.axes import CONCURRENCY, RATE
from bench.cli.checks import refuse_strange_classes
from bench.cli.entry import command
from bench.cli.options import LOAD, SLO, Json, at_least_one, flag, not_negative, number, option, positive
from bench.cli.output import print_json, print_table, tracked
from bench.errors import BenchError, is_are

if TYPE_CHECKING:
    import polars as pl

    from bench.findings.sizing import OperatingPoint
    from bench.predict.calibrate import Calibrated, MeasuredRun
    from bench.predict.state import Limits
    from bench.predict.traffic import Traffic
    from bench.study.slo import Slo
    from bench.workloads.schedule import PlannedRequest
    from bench.workloads.workload import Workload

HOUR_S = 3600.0
_FLEET = "The fleet"
_START_UP_S = 120.0  # of an instance, where neither --start-up nor a measured start says it
_CLOSED_REQUESTS, _OPEN_REQUESTS = 20, 1000  # of a level's requests in flight; of a rate
_MOST_OF_TRACE = 20_000  # requests of a trace, which each member of the ensemble replays several times
_PRICED = {"slo", "peak_rps", "gpus", "safety", "price_per_hour", "api_price"}
_MODELLED = {"results", "prompt_length", "output_length", "workload", "kv_tokens", "max_num_seqs", "max_num_batched_tokens"}
_MODELLED |= {"prefix_caching"}
#: What is asked: the options that it needs, and all that say something of it, keys of `--set` included.
_TASKS = {
    "a fleet from --usable-rps": (
        ["peak_rps"],
        {"usable_rps", "prompt_length", "output_length", "c_max", "latency_s", "kv_tokens"} | _PRICED,
    ),
    "a fleet for a measured load": (["slo", "peak_rps"], {"results", "workload", "failed_share"} | _PRICED),
    "a load of one instance": ([], {"concurrency", "request_rate", "check", "bandwidth", "flops"} | _MODELLED),
    "a fleet for a load that was not measured": (
        ["slo"],
        {"slo", "peak_rps", "traffic", "router", "start_up", "gpus", "price_per_hour"} | _MODELLED,
    ),
    "a fleet for a recorded trace, which is the traffic, on instances that are ready throughout": (
        ["slo"],
        {"slo", "time_scale", "router"} | _MODELLED,
    ),
}
_NUMBERS, _MEASURED, _LOADS, _TRAFFIC, _TRACE = _TASKS
_WHOLE = ("kv_tokens", "max_num_seqs", "max_num_batched_tokens")
_SET = (*_WHOLE, "prefix_caching", "bandwidth", "flops", "failed_share", "c_max", "latency_s")


def _safety(text: str) -> float:
    value = number(text)
    if not 1 <= value < math.inf:
        raise typer.BadParameter(f"{text!r} is not a number of 1 or more; 1 means no spare GPU.")
    return value


@command(
    "bench fleet results:tiny-mha --slo ttft_p99=2s --peak-rps 100 --price-per-hour 1.50",
    "bench fleet --usable-rps 12 --gpus 4 --peak-rps 120",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --prompt-length 256 --output-length 64 --peak-rps 200",
    "bench fleet results:tiny-mqa --slo tpot_p95=50ms --workload mine.yaml --traffic monday.csv",
    "bench fleet results:tiny-mqa --concurrency 8,16 --prompt-length 256 --output-length 64 --set kv_tokens=6144",
    after="Exit status: 0 for an answer; 1 where a load is not predicted; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The load that one instance carries within its SLOs is read from RESULTS, or given by --usable-rps.

    A load that was not measured (--prompt-length and --output-length, or --workload FILE) is predicted: a model of the server is fitted
    to the runs in RESULTS, and the load replayed on instances of it behind a router. A workload that replays a trace, as `bench
    traffic` writes it, is the traffic itself. With --concurrency or --request-rate, loads of one instance are predicted; with --check,
    runs that were measured. What lies beyond anything measured is refused. Each predicted number has a 90 % interval.
    """

    results: Annotated[
        str | None,
        typer.Argument(
            metavar="[RESULTS]",
            help="A folder with results, a summary.parquet, or one of them with :DEPLOYMENT.",
            show_default="the study in this folder",
        ),
    ] = None
    slo: Annotated[list[str] | None, option("LIMIT", SLO)] = None
    peak_rps: Annotated[
        float | None,
        option("N", "Requests/s (with turns: conversations/s) of the busiest moment.", LOAD, parser=positive),
    ] = None
    workload: Annotated[
        str | None,
        option("NAME|FILE", "The name of a measured workload; or a file of one, in YAML as a study has it, to predict.", LOAD),
    ] = None
    prompt_length: Annotated[int | None, option("TOKENS", "Of each prompt.", LOAD, parser=at_least_one)] = None
    output_length: Annotated[int | None, option("TOKENS", "Of each answer.", LOAD, parser=at_least_one)] = None
    concurrency: Annotated[str | None, option("N,N", "Predict one instance with so many requests in flight.", LOAD)] = None
    request_rate: Annotated[str | None, option("N,N", "Predict one instance at so many requests/s.", LOAD)] = None
    traffic: Annotated[
        Path | None, option("FILE", "A day: CSV of seconds and requests_per_s; straight lines between.", LOAD)
    ] = None
    time_scale: Annotated[
        float | None, option("X", "Replay the trace of --workload X times as fast.", LOAD, parser=positive, default="1")
    ] = None
    usable_rps: Annotated[
        float | None, option("N", "Requests/s that one instance carries, in place of RESULTS.", _FLEET, parser=positive)
    ] = None
    gpus: Annotated[
        int | None, option("N", "GPUs of an instance.", _FLEET, parser=at_least_one, default="that of RESULTS, or 1")
    ] = None
    safety: Annotated[
        float | None, option("FACTOR", "GPUs as a multiple of what the peak takes.", _FLEET, parser=_safety, default="1.3")
    ] = None
    price_per_hour: Annotated[
        float | None, option("USD", "Of one GPU; where it has none, of the machine.", _FLEET, parser=positive)
    ] = None
    api_price: Annotated[
        float | None,
        option("USD", "Of 10⁶ output tokens elsewhere, for the point where costs break even.", _FLEET, parser=positive),
    ] = None
    router: Annotated[
        Literal["round-robin", "random", "least-requests", "power-of-two", "session"] | None,
        option(
            None,
            "How requests are shared out; `session` keeps conversations where they are.",
            _FLEET,
            default="least-requests",
        ),
    ] = None
    start_up: Annotated[
        float | None,
        option(
            "SECONDS", "Until a new instance serves.", _FLEET, parser=not_negative, default=f"as measured, or {_START_UP_S:g}"
        ),
    ] = None
    set: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "What if? kv_tokens, max_num_seqs, max_num_batched_tokens and prefix_caching (true or false) in place of the server's; "
            "bandwidth and flops of another device, in times of this one's. Of a measured load failed_share, the largest share that "
            "may fail (0.01). Beside --usable-rps: c_max, latency_s, kv_tokens. Repeatable.",
        ),
    ] = None
    check: Annotated[
        bool, flag("--check", "Print the model, and how far off it predicts each measured run from the others.")
    ] = False
    json: Json = False

    def run(self) -> None:
        """Print the fleet, or the predictions."""
        from bench.findings.predicted import doubt_text
        from bench.predict.instances import NotPredictedError
        from bench.study.slo import parse_slo

        task, slos = self._task(), [parse_slo(text) for text in self.slo or []]
        if task != _TRAFFIC:  # else the workload decides whether it is a trace
            self._refuse_unfit(task)
        try:
            if task == _LOADS:
                self._predict_loads()
            elif task == _TRAFFIC:
                self._predict_fleet(slos)
            else:
                self._size(slos)
        except NotPredictedError as error:
            why = [doubt_text(doubt) for doubt in error.doubts]
            if self.json:
                print_json({"refused_because": why})
            else:
                print("\n".join(f"Not predicted: {text}." for text in why))
            raise SystemExit(1) from None

    def _task(self) -> str:
        if self.usable_rps is not None:
            return _NUMBERS
        if self.concurrency or self.request_rate or self.check:
            return _LOADS
        file = self.workload is not None and (Path(self.workload).is_file() or self.workload.endswith((".yaml", ".yml")))
        return _TRAFFIC if file or self.prompt_length or self.output_length or self.traffic else _MEASURED

    @property
    def _settings(self) -> dict[str, Any]:
        """Values of `--set` by key."""
        from bench.cli.sending import key_and_value

        found = {}
        for text in self.set or []:
            (key, *_), value = key_and_value(text)
            if key not in _SET:
                raise BenchError(f"--set {text}: there is no such key here. There are: {', '.join(_SET)}.")
            switch, share = key == "prefix_caching", key == "failed_share"
            fits = isinstance(value, int if key in _WHOLE else (int, float))
            fits = fits and (0 <= value <= 1 if share else 0 < value < math.inf)
            if isinstance(value, bool) != switch or not (fits or switch):
                wanted = (
                    "true or false" if switch
                    else "a whole number of 1 or more" if key in _WHOLE
                    else "a share of 0 to 1" if share
                    else "a number above 0"
                )  # fmt: skip
                raise BenchError(f"--set {text}: not {wanted}.")
            found[key] = value
        return found

    def _refuse_unfit(self, task: str) -> None:
        needed, known = _TASKS[task]
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("json", "set")}
        for name in [name for name, value in given.items() if not (value is None or value is False)]:
            if name not in known:
                option = "RESULTS" if name == "results" else f"--{name.replace('_', '-')}"
                raise BenchError(f"{option} says nothing of {task}. Leave it out.")
        for name in self._settings:
            if name not in known:
                raise BenchError(f"--set {name} says nothing of {task}. Leave it out.")
        for name in needed:
            if not given[name]:
                example = {"slo": "the limits, such as --slo ttft_p95=1s", "peak_rps": "the requests/s of the busiest moment"}
                raise BenchError(f"--{name.replace('_', '-')} is missing: {example[name]}, for {task}.")

    # From results, or from numbers

    def _size(self, slos: Sequence[Slo]) -> None:
        from bench.findings.capacity.words import with_texts
        from bench.findings.sizing import UNKNOWN_GPUS, OperatingPoint, is_machine, little, meets, sized, sized_rows

        if self.api_price is not None and self.price_per_hour is None:
            raise BenchError("--api-price needs what our own GPUs cost: --price-per-hour.")
        measured: dict[str, Any] = {}
        run: dict[str, Any] = {"device": None, "gpus": self.gpus or 1}
        if self.usable_rps is None:
            point, measured, run = self._measured(slos)
        else:
            lengths: dict[str, Any] = {"prompt_tokens": self.prompt_length, "output_tokens": self.output_length}
            point = OperatingPoint(self.usable_rps, run["gpus"], **(lengths | self._settings))
        prices = {"gpu_hour": self.price_per_hour, "token_price": self.api_price}
        fleet = {**sized(point, self.peak_rps or 0.0, safety=self.safety or 1.3, slos=slos, **prices), "device": run["device"]}
        if self.json:
            print_json(
                {**fleet, "evidence": {"source": "measured", **with_texts(measured)} if measured else {"source": "given"}}
            )
            return
        if measured:
            print(f"{meets(measured)}\n")
        print_table(sized_rows(fleet, measured, "machines" if is_machine(run) else "GPUs"), head=False)
        if fleet["gpus"] is None:
            print(f"\n{UNKNOWN_GPUS}")
        if fleet["consistent"] is False:
            print(f"\n{little(fleet['little'])}")

    def _measured(self, slos: Sequence[Slo]) -> tuple[OperatingPoint, dict[str, Any], dict[str, Any]]:
        """The operating point of one curve, its row of `operating_points`, and a run of it."""
        from bench.findings.sizing import OperatingPoint, next_step, no_point
        from bench.results import Results
        from bench.runs.classes import class_names

        found = Results.open(self.results or "results")
        runs, deployment = found.runs, found.deployment
        if self.workload is not None:
            if self.workload not in runs["workload"]:
                known = ", ".join(runs["workload"].unique(maintain_order=True))
                raise BenchError(f"--workload {self.workload}: no file, and no workload of the results, which have {known}.")
            runs = runs.filter(runs["workload"] == self.workload)
            found = replace(found, runs=runs)
        mine = runs if deployment is None else runs.filter(runs["deployment"] == deployment)
        classes = dict.fromkeys(name for text in mine["classes"].unique(maintain_order=True) for name in class_names(text))
        refuse_strange_classes(slos, list(classes), "these runs do")  # without its limit a rate's curve would be sized by none
        points = found.capacity(self.slo or [], self._settings.get("failed_share", 0.01))  # of all, whose repeats tell of noise
        points = points if deployment is None else points.filter(points["deployment"] == deployment)
        if points.height != 1:
            curves = ", ".join(f"{row['deployment']} with {row['workload']}" for row in points.iter_rows(named=True))
            raise BenchError(
                f"one curve is sized at a time; name it as RESULTS:DEPLOYMENT and with --workload. There are: {curves or 'none'}."
            )
        row = points.row(0, named=True)
        run = runs.filter(runs["deployment"] == row["deployment"]).row(0, named=True)
        point, curve = OperatingPoint.of(row, run), f"{row['deployment']} with {row['workload']}"
        if point is None and row["basis"] == "burst" and row["c_max"] is not None:
            raise BenchError(
                f"{curve}: a burst does not show what an instance carries in the long run. Measure a closed or an open loop "
                "(`arrival: closed`, `poisson`), and size that."
            )
        if point is None:
            raise BenchError(f"{curve}: {no_point(row)}. {next_step(row)}".rstrip())
        if self.gpus is not None and point.gpus not in (None, self.gpus):
            raise BenchError(
                f"--gpus {self.gpus}: an instance of {row['deployment']} has {point.gpus}, as the results say; leave --gpus out."
            )
        return replace(point, gpus=point.gpus or self.gpus), row, run

    # From a model

    def _place(self) -> tuple[pl.DataFrame, Path, str]:
        """The summary, the folder that it is of, and the deployment that is named, or the only one."""
        from bench.results import Results

        text = self.results or "results"
        found = Results.open(text)
        table, deployment = found.runs, found.deployment
        names = table["deployment"].unique(maintain_order=True).to_list()
        if deployment is None and len(names) > 1:
            raise BenchError(
                f"one deployment is predicted at a time; name it, as {text}:{names[0]}. There are: {', '.join(names)}."
            )
        return table, found.folder, deployment or names[0]

    def _runs(self) -> tuple[list[MeasuredRun], Limits, Calibrated]:
        """The valid runs of one deployment, what its scheduler obeys, and a model of it."""
        from bench.predict.calibrate import Given, calibrate
        from bench.predict.sources import measured_runs, read_limits

        table, root, deployment = self._place()
        asked = self._settings
        given = Given(*(asked.get(name) for name in ("max_num_batched_tokens", "max_num_seqs", "kv_tokens", "prefix_caching")))
        limits = read_limits(root, deployment, given)
        runs = measured_runs(table, root, deployment, limits)
        if not runs:
            invalid = table.filter((table["deployment"] == deployment) & ~table["valid"]).height
            again = (
                f"; {invalid} {is_are(invalid)} invalid, and `bench runs --discard invalid` lets them be measured again"
                * bool(invalid)
            )
            raise BenchError(
                f"{root}: no valid run of {deployment} with streamed answers whose requests.parquet is there{again}. Left out are "
                "runs in which tokens were drafted, traces whose prompts share blocks, and classes with models, priorities or shared "
                "beginnings of their own."
            )
        model = calibrate(runs, limits)
        if model is None:
            raise BenchError(f"{self.results}: its valid runs show too few steps of the engine to calibrate a model.")
        return runs, limits, model

    def _what_if(self, limits: Limits) -> Limits:
        """The limits with the settings that are asked for in their place."""
        asked = self._settings
        if "kv_tokens" in asked:
            if limits.blocks is None:
                raise BenchError("--set kv_tokens: this engine has slots, whose number is max_num_seqs.")
            limits = replace(limits, blocks=asked["kv_tokens"] // limits.block_size + 1)
        names = {"max_num_seqs": "sequences", "max_num_batched_tokens": "tokens", "prefix_caching": "cached"}
        return replace(limits, **{names[key]: value for key, value in asked.items() if key in names})

    def _load(self, axis: str, also: str | None = None) -> Workload:
        """The load of `--workload` or of the two lengths. Args: axis, also: as of `load_to_predict`."""
        from bench.predict.sources import load_to_predict
        from bench.study.read import read_workload

        if self.workload is not None:
            content = read_workload(Path(self.workload))
        elif self.prompt_length is None or self.output_length is None:
            raise BenchError("--prompt-length and --output-length say how long requests are; give both, or --workload FILE.")
        else:
            arrival = "closed" if axis == CONCURRENCY else "poisson"
            content = {"arrival": arrival, "prompt_tokens": self.prompt_length, "output_tokens": self.output_length}
        return load_to_predict(content, self.workload or "the command line", axis, also=also)

    def _predict_loads(self) -> None:
        from bench.cli.predicted import print_loads
        from bench.predict.calibrate import elsewhere
        from bench.predict.judge import held_out, judged, self_judged, widened_by_others
        from bench.predict.predict import predict

        levels, axis = self._levels(), CONCURRENCY if self.concurrency else RATE
        times = {key: self._settings.get(key, 1.0) for key in ("bandwidth", "flops")}
        runs, limits, model = self._runs()
        obeyed = self._what_if(model.limits)
        if not levels and (obeyed != model.limits or set(times.values()) != {1.0}):
            raise BenchError("a what-if asks for a load: give --concurrency or --request-rate too.")
        workload = self._load(axis) if levels else None
        there = elsewhere(self_judged(model, runs), **times) if levels else model
        predictions = {}
        for level in tracked(levels, "Replaying"):
            assert workload
            if workload.num_requests == "auto":
                count = _OPEN_REQUESTS if axis == RATE else max(200, int(_CLOSED_REQUESTS * level))
                load = workload.model_copy(update={"num_requests": count})
            else:
                load = workload
            held = int(level) if load.arrival == "closed" else None
            predictions[level] = predict(there, partial(_planned, load, level), held=held, limits=obeyed)
        judgements = judged(widened_by_others(held_out(runs, limits)), runs) if self.check else []
        asked = workload.turn_count if workload and axis == RATE else 0
        print_loads(model, predictions, judgements, obeyed=obeyed, asked=asked, times=times, as_json=self.json)
        if any(found.doubts for found in predictions.values()):
            raise SystemExit(1)

    def _levels(self) -> list[float]:
        if self.concurrency and self.request_rate:
            raise BenchError("Give --concurrency or --request-rate, not both.")
        name, text = ("concurrency", self.concurrency) if self.concurrency else ("request-rate", self.request_rate or "")
        found = [number(part) for part in text.split(",")] if text else []
        if not all(0 < level < math.inf for level in found) or (self.concurrency and any(level % 1 for level in found)):
            kind = "whole numbers of 1 or more" if self.concurrency else "numbers above 0"
            raise BenchError(f"--{name} {text}: not {kind}, with commas between.")
        return found

    def _predict_fleet(self, slos: list[Slo]) -> None:
        from bench.cli.predicted import print_fleet, print_trace
        from bench.predict.instances import NotPredictedError, Question, for_peak, for_trace, for_traffic
        from bench.predict.judge import self_judged
        from bench.predict.predict import misfits
        from bench.workloads.schedule import schedule

        if of_class := next((slo for slo in slos if slo.request_class), None):
            raise BenchError(
                f"--slo: {of_class} limits a class, and a fleet is predicted for all requests together. Leave the class out."
            )
        workload = self._load(RATE, also="time_scale")
        self._refuse_unfit(_TRACE if workload.trace else _TRAFFIC)
        traffic = None if workload.trace else self._traffic(workload)
        runs, _, model = self._runs()
        model = self_judged(model, runs)
        if found := list(misfits(model)):
            raise NotPredictedError(found)
        router = self.router or "least-requests"
        asked = Question(model, self._what_if(model.limits), workload, slos, router, tracked)
        if traffic is None:
            scale = self.time_scale or 1.0
            plans = schedule(workload, scale, "traffic")
            if len(plans) > _MOST_OF_TRACE:
                raise BenchError(
                    f"{workload.trace}: {len(plans):,} requests, and {_MOST_OF_TRACE:,} are the most that are replayed so often. Take "
                    "a part with its busiest time: bench traffic LOG --from MOMENT --to MOMENT --output DIR."
                )
            print_trace(asked, plans, *for_trace(asked, plans), scale=scale, as_json=self.json)
            return
        peak = for_peak(asked, traffic.peak)
        starts = self._starts()
        course = for_traffic(asked, traffic, peak, starts[0]) if self.traffic else None
        table, _, deployment = self._place()
        gpus = self.gpus or table.filter(table["deployment"] == deployment)["gpus"][0] or 1
        price = self.price_per_hour and self.price_per_hour * gpus
        print_fleet(asked, traffic.peak, peak, course, starts, price, as_json=self.json)

    def _traffic(self, workload: Workload) -> Traffic:
        from bench.predict.traffic import Traffic, read_traffic

        if workload.step or workload.ramp:
            raise BenchError(
                "--workload: a step or ramp is traffic; give it as --traffic FILE, and leave it out of the workload."
            )
        if (self.peak_rps is None) == (self.traffic is None):
            raise BenchError("Give --peak-rps, the requests/s of the busiest moment, or --traffic FILE.")
        if self.traffic is None:
            if name := next((name for name in ("price_per_hour", "gpus", "start_up") if getattr(self, name) is not None), None):
                raise BenchError(f"--{name.replace('_', '-')} needs a course of traffic: --traffic FILE.")
            peak = self.peak_rps or 0.0
            return Traffic((0.0, 1.0), (peak, peak))
        found = read_traffic(self.traffic)
        if found.seconds < HOUR_S:
            raise BenchError(f"--traffic {self.traffic}: lasts {found.seconds:g} s; an hour is the least.")
        return found

    def _starts(self) -> tuple[tuple[float, ...], str]:
        """How long an instance takes to start (s), as given, as each start was measured, or as is assumed; and the same in words."""
        from bench.predict.sources import start_ups_s

        if self.start_up is not None:
            return (self.start_up,), f"{self.start_up:g} s to start an instance"
        _, root, deployment = self._place()
        known = start_ups_s(root, deployment)
        if not known:
            return (_START_UP_S,), f"{_START_UP_S:g} s to start an instance, which is assumed: RESULTS measured no start"
        each = f" ({min(known):.3g} to {max(known):.3g} s in {len(known)} starts)" if len(known) > 1 else " (one start)"
        return known, f"{median(known):.3g} s to start an instance, as measured{each}"


def _planned(workload: Workload, level: float, number: int) -> Sequence[PlannedRequest]:
    from bench.workloads.schedule import schedule

    return schedule(workload, level, f"predict/{number}")

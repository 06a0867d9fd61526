"""`bench fleet`: how many instances and GPUs a load takes, and what a measured server would do under another load.

Three ways lead to an answer: from numbers and from results (`sized`), and by replays of a model of the server (`predicted`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bench.cli.entry import command
from bench.cli.options import LOAD, SLO, Json, at_least_one, number, option, positive
from bench.cli.output import print_json
from bench.cli.sending import above, key_and_value, whole
from bench.errors import BenchError

_FLEET = "The fleet"
_PRICED = {"slo", "peak_rps", "gpus", "safety", "price_per_hour", "api_price"}
_LOADED = {"results", "prompt_length", "output_length", "workload", "kv_tokens", "max_num_seqs", "max_num_batched_tokens"}
_LOADED |= {"prefix_caching"}
#: What may be asked: the options that it needs, and all that say something of it, keys of `--set` included.
NUMBERS, MEASURED = "a fleet from --usable-rps", "a fleet for a measured load"
LOADS, UNMEASURED = "a load of one instance", "a fleet for a load that was not measured"
TRACE = "a fleet for a recorded trace, which is the traffic, on instances that are ready throughout"
_ASKED: dict[str, tuple[tuple[str, ...], set[str]]] = {
    NUMBERS: (
        ("peak_rps",),
        {"usable_rps", "prompt_length", "output_length", "c_max", "latency_s", "kv_tokens"} | _PRICED,
    ),
    MEASURED: (("slo", "peak_rps"), {"results", "workload", "failed_share"} | _PRICED),
    LOADS: ((), {"concurrency", "request_rate", "bandwidth", "flops"} | _LOADED),
    UNMEASURED: (("slo",), {"slo", "peak_rps", "traffic", "router", "start_up_s", "gpus", "price_per_hour"} | _LOADED),
    TRACE: (("slo",), {"slo", "time_scale", "router"} | _LOADED),
}


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


_SET: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("kv_tokens", "max_num_seqs", "max_num_batched_tokens"), whole(1)),
    **dict.fromkeys(("bandwidth", "flops", "c_max", "latency_s", "time_scale"), above(0)),
    "prefix_caching": _switch,
    "start_up_s": above(0, least=True),
    "failed_share": above(0, 1, least=True),
}


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
    traffic` writes it, is the traffic itself. With --concurrency or --request-rate, loads of one instance are predicted. What lies
    beyond anything measured is refused. Each predicted number has a 90 % interval.

    Of --set, what if: kv_tokens, max_num_seqs, max_num_batched_tokens and prefix_caching (true or false) in place of the server's;
    bandwidth and flops of another device, in times of this one's. Of a trace time_scale, how many times as fast it is replayed; with
    --traffic start_up_s, of a new instance (as measured, or 120). Of a measured load failed_share, the largest share that may fail
    (0.01). Beside --usable-rps c_max, latency_s and kv_tokens.
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
        Literal["round-robin", "random", "least-requests", "power-of-two", "session"],
        option(None, "How requests are shared out; `session` keeps conversations where they are.", _FLEET),
    ] = "least-requests"
    set: Annotated[list[str] | None, option("KEY=VALUE", "One of the keys that are named above. Repeatable.")] = None
    json: Json = False

    def run(self) -> None:
        """Print the fleet, or the predictions."""
        from bench.cli.commands.fleet import predicted, sized
        from bench.findings.predicted import doubt_text
        from bench.predict.instances import NotPredictedError
        from bench.study.slo import parse_slo

        asked, slos = self._asked(), [parse_slo(text) for text in self.slo or []]
        if asked != UNMEASURED:  # else the workload decides whether it is a trace
            self.refuse_unfit(asked)
        try:
            if asked == NUMBERS:
                sized.from_numbers(self, slos)
            elif asked == MEASURED:
                sized.from_results(self, slos)
            elif asked == LOADS:
                predicted.loads(self)
            else:
                predicted.fleet(self, slos)
        except NotPredictedError as error:
            why = [doubt_text(doubt) for doubt in error.doubts]
            if self.json:
                print_json({"refused_because": why})
            else:
                print("\n".join(f"Not predicted: {text}." for text in why))
            raise SystemExit(1) from None

    def _asked(self) -> str:
        if self.usable_rps is not None:
            return NUMBERS
        if self.concurrency or self.request_rate:
            return LOADS
        file = self.workload is not None and (Path(self.workload).is_file() or self.workload.endswith((".yaml", ".yml")))
        return UNMEASURED if file or self.prompt_length or self.output_length or self.traffic else MEASURED

    @property
    def settings(self) -> dict[str, Any]:
        """Values of `--set` by key."""
        found = {}
        for text in self.set or []:
            keys, value = key_and_value(text)
            if (key := ".".join(keys)) not in _SET:
                raise BenchError(f"--set {text}: there is no such key here. There are: {', '.join(_SET)}.")
            try:
                found[key] = _SET[key](value)
            except ValueError as error:
                raise BenchError(f"--set {text}: it has to be {error}.") from None
        return found

    def refuse_unfit(self, asked: str) -> None:
        """Refuse what says nothing of the question, and what the question lacks."""
        needed, known = _ASKED[asked]
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("json", "set")}
        for each in fields(self):
            if each.name in given and given[each.name] not in (None, each.default) and each.name not in known:
                name = "RESULTS" if each.name == "results" else f"--{each.name.replace('_', '-')}"
                raise BenchError(f"{name} says nothing of {asked}. Leave it out.")
        for name in self.settings:
            if name not in known:
                raise BenchError(f"--set {name} says nothing of {asked}. Leave it out.")
        for name in needed:
            if not given[name]:
                example = {"slo": "the limits, such as --slo ttft_p95=1s", "peak_rps": "the requests/s of the busiest moment"}
                raise BenchError(f"--{name.replace('_', '-')} is missing: {example[name]}, for {asked}.")

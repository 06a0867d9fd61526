"""`bench fleet`: how many instances and GPUs a load takes, and what a measured server would do under another load.

What is answered, and by which options, is the table `ANSWERS`; `sized` answers from numbers and from results, `predicted` by replays
of a model of the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bench.cli.entry import command
from bench.cli.options import LOAD, Json, OutputLength, PromptLength, at_least_one, limits, number, option, positive
from bench.cli.output import print_json
from bench.cli.sending import above, key_and_value, whole
from bench.errors import BenchError

_FLEET = "The fleet"
_PRICED = {"slo", "peak_rps", "gpus", "safety", "price_per_hour", "api_price"}
_SERVER = {"kv_tokens", "max_num_seqs", "max_num_batched_tokens", "prefix_caching"}
_LOADED = {"results", "prompt_length", "output_length", "workload"} | _SERVER


@dataclass(frozen=True)
class Answer:
    """What may be asked. Attributes: what: in words. needs: options. knows: options and keys of `--set` that say something of it."""

    what: str
    needs: tuple[str, ...]
    knows: set[str]


ANSWERS = {
    "numbers": Answer(
        "a fleet from --sustained-rps",
        ("peak_rps",),
        {"sustained_rps", "prompt_length", "output_length", "limit", "latency_s", "kv_tokens"} | _PRICED,
    ),
    "measured": Answer("a fleet for a measured load", ("slo", "peak_rps"), {"results", "workload", "failed_share"} | _PRICED),
    "unmeasured": Answer(
        "a fleet for a load that was not measured",
        ("slo",),
        {"slo", "peak_rps", "traffic", "router", "start_up_s", "gpus", "price_per_hour"} | _LOADED,
    ),
    "trace": Answer(
        "a fleet for a recorded trace, which is the traffic, on instances that are ready throughout",
        ("slo",),
        {"slo", "time_scale", "router"} | _LOADED,
    ),
}


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


_SET: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("kv_tokens", "max_num_seqs", "max_num_batched_tokens"), whole(1)),
    **dict.fromkeys(("limit", "latency_s", "time_scale"), above(0)),
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
    "bench fleet --sustained-rps 12 --gpus 4 --peak-rps 120",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --prompt-length 256 --output-length 64 --peak-rps 200",
    "bench fleet results:tiny-mqa --slo tpot_p95=50ms --workload mine.yaml --traffic monday.csv",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --prompt-length 256 --output-length 64 --peak-rps 200 --set kv_tokens=6144",
    after="Exit status: 0 for an answer; 1 where a load is not predicted; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The load that one instance sustains within its SLOs is read from RESULTS, or given by --sustained-rps.

    A load that was not measured (--prompt-length and --output-length, or --workload FILE) is predicted: a model of the server is fitted
    to the runs in RESULTS, and the load replayed on instances of it behind a router. A workload that replays a trace, as `bench
    traffic` writes it, is the traffic itself. What lies beyond anything measured is refused. Each predicted number has a 90 % interval.

    Of --set, what if: kv_tokens, max_num_seqs, max_num_batched_tokens and prefix_caching (true or false) in place of the server's. Of a
    trace time_scale, how many times as fast it is replayed; with --traffic start_up_s, of a new instance (as measured, or 120). Of a
    measured load failed_share, the largest share that may fail (0.01). Beside --sustained-rps limit (requests in flight), latency_s and
    kv_tokens.
    """

    results: Annotated[
        str | None,
        typer.Argument(
            metavar="[RESULTS]",
            help="A folder with results, a summary.parquet, or one of them with :DEPLOYMENT.",
            show_default="the study in this folder",
        ),
    ] = None
    slo: Annotated[list[str] | None, limits()] = None
    peak_rps: Annotated[
        float | None, option("N", "Requests/s (with turns: conversations/s) of the busiest moment.", LOAD, parser=positive)
    ] = None
    workload: Annotated[
        str | None,
        option("NAME|FILE", "The name of a measured workload; or a file of one, in YAML as a study has it, to predict.", LOAD),
    ] = None
    prompt_length: PromptLength = None
    output_length: OutputLength = None
    traffic: Annotated[
        Path | None, option("FILE", "A day: CSV of seconds and requests_per_s; straight lines between.", LOAD)
    ] = None
    sustained_rps: Annotated[
        float | None, option("N", "Requests/s that one instance sustains, in place of RESULTS.", _FLEET, parser=positive)
    ] = None
    gpus: Annotated[
        int | None, option("N", "GPUs of an instance.", _FLEET, parser=at_least_one, default="that of RESULTS, or 1")
    ] = None
    safety: Annotated[
        float | None, option("FACTOR", "GPUs as a multiple of what the peak takes.", _FLEET, parser=_safety, default="1.3")
    ] = None
    price_per_hour: Annotated[
        float | None, option("USD", "Price of one GPU, or of the machine if it has none.", _FLEET, parser=positive)
    ] = None
    api_price: Annotated[
        float | None,
        option("USD", "Price of 10⁶ output tokens elsewhere, for the break-even point.", _FLEET, parser=positive),
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
        if asked != "unmeasured":  # else the workload decides whether it is a trace
            self.refuse_unfit(asked)
        try:
            match asked:
                case "numbers":
                    sized.from_numbers(self, slos)
                case "measured":
                    sized.from_results(self, slos)
                case _:
                    predicted.fleet(self, slos)
        except NotPredictedError as error:
            why = [doubt_text(doubt) for doubt in error.doubts]
            if self.json:
                print_json({"doubts": why})
            else:
                print("\n".join(f"Not predicted: {text}." for text in why))
            raise SystemExit(1) from None

    def _asked(self) -> str:
        if self.sustained_rps is not None:
            return "numbers"
        file = self.workload is not None and (Path(self.workload).is_file() or self.workload.endswith((".yaml", ".yml")))
        return "unmeasured" if file or self.prompt_length or self.output_length or self.traffic else "measured"

    @property
    def settings(self) -> dict[str, Any]:
        """Values of `--set` by key."""
        found = {}
        for text in self.set or []:
            keys, value = key_and_value(text)
            if (key := ".".join(keys)) not in _SET:
                raise BenchError(f"--set {text}: no such key. Keys are: {', '.join(_SET)}.")
            try:
                found[key] = _SET[key](value)
            except ValueError as error:
                raise BenchError(f"--set {text}: it has to be {error}.") from None
        return found

    def refuse_unfit(self, asked: str) -> None:
        """Refuse what says nothing of the question, and what the question lacks. Args: asked: of `ANSWERS`."""
        answer, options = ANSWERS[asked], [each for each in fields(self) if each.name not in ("json", "set")]
        given = {each.name for each in options if getattr(self, each.name) not in (None, each.default)}
        for name in [*(each.name for each in options if each.name in given), *self.settings]:
            if name not in answer.knows:
                option = f"--{name.replace('_', '-')}" if name in given else f"--set {name}"
                raise BenchError(f"{'RESULTS' if name == 'results' else option} does not apply to {answer.what}. Leave it out.")
        for name in answer.needs:
            if name not in given:
                example = {"slo": "the limits, such as --slo ttft_p95=1s", "peak_rps": "the requests/s of the busiest moment"}
                raise BenchError(f"--{name.replace('_', '-')} is missing: {example[name]}, for {answer.what}.")

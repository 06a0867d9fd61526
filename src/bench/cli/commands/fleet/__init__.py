"""`bench fleet`: how many instances and GPUs a load takes, and what a measured server would do under another load.

What is answered, and by which options, is the table `ANSWERS`; `sized` answers from numbers and from results, `predicted` by replays
of a model of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import Field

from bench.cli.entry import command
from bench.cli.options import LOAD, Json, OutputLength, PromptLength, at_least_one, limits, number, of_set, option, positive
from bench.cli.output import print_json
from bench.cli.sending import Above0
from bench.errors import BenchError
from bench.fields import Strict

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


_Whole = Annotated[int, Field(ge=1)]


class Further(Strict):
    """What `--set` says; None where it does not."""

    kv_tokens: _Whole | None = None
    max_num_seqs: _Whole | None = None
    max_num_batched_tokens: _Whole | None = None
    prefix_caching: bool | None = None
    limit: Above0 | None = None
    latency_s: Above0 | None = None
    time_scale: Above0 | None = None
    start_up_s: Annotated[float, Field(ge=0)] | None = None
    failed_share: Annotated[float, Field(ge=0, lt=1)] | None = None


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
        float | None,
        option("FACTOR", "GPUs as a multiple of what the peak takes.", _FLEET, parser=number(float, 1), default="1.3"),
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
            refuse(self.unfit(asked))
        try:
            {"numbers": sized.from_numbers, "measured": sized.from_results}.get(asked, predicted.fleet)(self, slos)
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

    @cached_property
    def further(self) -> Further:
        """What `--set` says. Raises: BenchError: a key or value is refused."""
        return of_set(Further, self.set)

    def unfit(self, asked: str) -> Iterator[str]:
        """What says nothing of the question, and what it lacks. Args: asked: of `ANSWERS`."""
        answer = ANSWERS[asked]
        given = {
            each.name: "RESULTS" if each.name == "results" else f"--{each.name.replace('_', '-')}"
            for each in fields(self)
            if each.name not in ("json", "set") and getattr(self, each.name) not in (None, each.default)
        }
        settings = {key: f"--set {key}" for key in self.further.model_dump(exclude_none=True)}
        for name, word in (given | settings).items():
            if name not in answer.knows:
                yield f"{word} does not apply to {answer.what}. Leave it out."
        example = {"slo": "the limits, such as --slo ttft_p95=1s", "peak_rps": "the requests/s of the busiest moment"}
        for name in answer.needs:
            if name not in given:
                yield f"--{name.replace('_', '-')} is missing: {example[name]}, for {answer.what}."


def refuse(faults: Iterable[str]) -> None:
    """Raises: BenchError: all faults, where there are any."""
    if told := list(faults):
        raise BenchError("\n".join(told))

"""`bench find`: the highest load that a running server sustains within SLOs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bench.cli.entry import command
from bench.cli.options import Json, OutputDir, ThresholdValues, flag, limits, option, positive
from bench.cli.sending import Above0, Further, Sending

_LOOKED_FOR = "What is looked for"
_BUDGET = "Bounds and budget"


class FurtherOfFind(Further):
    """What `--set` says of a search."""

    failed_share: Annotated[float, Field(ge=0, lt=1)] = 0.01
    precision: Annotated[float, Field(ge=0.02, lt=1)] = 0.1
    start: Above0 | None = None
    most: Above0 = 4096.0
    max_runs: Annotated[int, Field(ge=1)] = 30


@command(
    "bench find --base-url http://127.0.0.1:8000 --model NAME --concurrency --prompt-length 128 --output-length 64 --slo "
    "ttft_p90=1s",
    "bench find --base-url http://127.0.0.1:8000 --model NAME --request-rate --set archetype=rag --slo ttft_p99=2s --slo tpot_p95=50ms",
    "bench find --base-url http://127.0.0.1:8000 --model NAME --request-rate --prompt-length 900 --slo e2e_p95=8s --at-least 5",
    after="Exit status: 0 if both ends of the limit's interval are known as closely as is asked (precision); 3 if they are not, as the "
    "budget is spent, the limit lies above the highest or below every load that is tried, or no load meets the SLOs; 1 if no run could "
    "be judged, or three in a row cannot be trusted. With --at-least 0 if the limit is not lower, 1 if it is, both at 95 % "
    "confidence, 3 if that is not known. In any case 1 if the server stopped answering; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Find(Sending):
    """Give --concurrency or --request-rate, and what is sent: --prompt-length, --prompts, --set archetype=NAME or --workload.
    Answers have 128 tokens where nothing says how many.

    A probe of a few seconds, a closed loop, shows where to begin. Each run is placed where it shows most of the limit, given the runs
    so far and their noise, until its interval is as narrow as precision asks for, or the budget is spent. The same command goes on
    from --output-dir where it was stopped, and measures nothing twice; another --slo or precision uses the runs that are there.

    Of --set, beside a workload's keys: precision (0.1: how close both ends of the interval have to be to its middle, as a share),
    failed_share (0.01: largest share of requests that may fail), start (first load; rates down to a 64th of it are tried; else a probe
    finds it), most (4096: highest load that is tried), max_runs (30), vocabulary (1000: prompt ids are below it), timeout_s (600), omit
    (what to leave out of requests).

    The API key is read from OPENAI_API_KEY.
    """

    slo: Annotated[list[str], limits(_LOOKED_FOR)]
    concurrency: Annotated[bool, flag("--concurrency", "Look for the most requests in flight.", _LOOKED_FOR)] = False
    request_rate: Annotated[bool, flag("--request-rate", "Look for the most requests a second.", _LOOKED_FOR)] = False
    at_least: Annotated[float | None, option("N", "For CI: whether the limit is N or more.", _LOOKED_FOR, parser=positive)] = (
        None
    )
    max_minutes: Annotated[float, option("MINUTES", "Time under load to spend.", _BUDGET, parser=positive)] = 30.0
    output_dir: OutputDir = Path("find")
    threshold: ThresholdValues = None
    json: Json = False

    @cached_property
    def further(self) -> FurtherOfFind:
        """What `--set` says beside the keys of a workload. Raises: BenchError: a key or value is refused."""
        return self.of_set(FurtherOfFind)

    def run(self) -> None:
        """Search, and print the answer; the exit status says how it ended."""
        from bench.cli.commands.find.searching import find

        raise SystemExit(find(self))

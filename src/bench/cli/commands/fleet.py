"""`bench fleet`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal

import typer

from bench.cli.commands.shared import (
    PLAN,
    BatchedTokens,
    Json,
    KvTokens,
    Measured,
    OutputLength,
    PrefixCaching,
    PromptLength,
    Sequences,
    WorkloadFile,
    command,
    not_negative,
    positive,
)

_TRAFFIC, _FLEET = "The traffic", "The fleet"


@command(
    PLAN,
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --prompt-length 256 --output-length 64 --peak-rps 200",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --workload mine.yaml --peak-rps 200 --trough-rps 20 --start-up 120",
    "bench fleet results:tiny-mqa --slo tpot_p95=50ms --workload mine.yaml --traffic monday.csv --fail-every 500",
    after="Exit status: 0 for a prediction; 1 where the traffic is refused; 2 for what you can fix.",
)
def fleet(
    slo: Annotated[
        list[str],
        typer.Option(metavar="LIMIT", help="Such as ttft_p99=2s or tpot_p95=50ms. Repeatable; all have to be met."),
    ],
    results: Measured = "results",
    peak_rps: Annotated[
        float | None,
        typer.Option(
            metavar="N", parser=positive, help="Requests/s (with turns: conversations/s) at the peak.", rich_help_panel=_TRAFFIC
        ),
    ] = None,
    trough_rps: Annotated[
        float | None,
        typer.Option(
            metavar="N", parser=positive, help="Of the quietest: a day between both, as a sine.", rich_help_panel=_TRAFFIC
        ),
    ] = None,
    traffic: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV of seconds and requests_per_s; straight lines between.", rich_help_panel=_TRAFFIC
        ),
    ] = None,
    prompt_length: PromptLength = None,
    output_length: OutputLength = None,
    workload: WorkloadFile = None,
    router: Annotated[
        Literal["round-robin", "random", "least-requests", "power-of-two", "session"],
        typer.Option(help="How requests are shared out; `session` keeps conversations where they are.", rich_help_panel=_FLEET),
    ] = "least-requests",
    start_up: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=not_negative, help="Until a new instance is ready.", rich_help_panel=_FLEET),
    ] = 120.0,
    fail_every: Annotated[
        float | None,
        typer.Option(metavar="HOURS", parser=positive, help="Mean time until an instance fails.", rich_help_panel=_FLEET),
    ] = None,
    price_per_hour: Annotated[
        float | None, typer.Option(metavar="USD", parser=positive, help="Of one instance.", rich_help_panel=_FLEET)
    ] = None,
    kv_tokens: KvTokens = None,
    max_num_seqs: Sequences = None,
    max_num_batched_tokens: BatchedTokens = None,
    prefix_caching: PrefixCaching = None,
    json: Json = False,
) -> None:
    """Predict how many instances traffic takes that was not measured.

    A model of the server is fitted to the runs in RESULTS, and the traffic replayed on instances of it behind a router: what one of
    them carries within the SLOs, how many the peak takes, and what a day gets from a fixed fleet and from one that keeps its load
    between 60 and 80 %. A few instances with their share of the traffic stand for a large fleet.
    """
    options = SimpleNamespace(**locals(), requests=None)
    from bench.cli.fleet import run

    run(options)

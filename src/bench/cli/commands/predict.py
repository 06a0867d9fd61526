"""`bench predict`."""

from types import SimpleNamespace
from typing import Annotated

import typer

from bench.cli.commands.shared import (
    LOAD,
    PLAN,
    WHAT_IF,
    BatchedTokens,
    Json,
    KvTokens,
    Measured,
    OutputLength,
    PrefixCaching,
    PromptLength,
    Sequences,
    WorkloadFile,
    at_least_one,
    command,
    positive,
)


@command(
    PLAN,
    "bench predict results:tiny-mqa --concurrency 8,16,32 --prompt-length 256 --output-length 64",
    "bench predict results:tiny-mqa --request-rate 4,8 --prompt-length 128 --output-length 64 --kv-tokens 6144",
    "bench predict results:tiny-mqa --request-rate 4,8 --prompt-length 128 --output-length 64 --bandwidth 1.6 --flops 2.2",
    "bench predict results:tiny-mqa --check",
    after="Exit status: 0 for a prediction; 1 where a load is refused; 2 for what you can fix.",
)
def predict(
    results: Measured = "results",
    concurrency: Annotated[
        str | None, typer.Option(metavar="N,N", help="Requests in flight, of a closed loop.", rich_help_panel=LOAD)
    ] = None,
    request_rate: Annotated[str | None, typer.Option(metavar="N,N", help="Requests/s, Poisson.", rich_help_panel=LOAD)] = None,
    prompt_length: PromptLength = None,
    output_length: OutputLength = None,
    workload: WorkloadFile = None,
    requests: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=at_least_one,
            help="Of each replay (default: 20 for each in flight and at least 200; of a rate 1,000).",
            rich_help_panel=LOAD,
        ),
    ] = None,
    kv_tokens: KvTokens = None,
    max_num_seqs: Sequences = None,
    max_num_batched_tokens: BatchedTokens = None,
    prefix_caching: PrefixCaching = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            metavar="TIMES", parser=positive, help="Another device, with so many times the bandwidth.", rich_help_panel=WHAT_IF
        ),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(metavar="TIMES", parser=positive, help="… and so many times the FLOP/s.", rich_help_panel=WHAT_IF),
    ] = None,
    check: Annotated[
        bool, typer.Option(help="Predict each measured run from the others, and print how far off that is.")
    ] = False,
    json: Json = False,
) -> None:
    """Predict throughput and latencies of loads that were not measured, from runs that were.

    A model of the engine's steps is fitted to the runs, and its scheduler replayed. Each number has a 90 % interval. What lies beyond
    anything measured is refused, with the reason. Without a load, the model's parameters are printed, and how far its predictions of
    measured runs are off.
    """
    options = SimpleNamespace(**locals())
    from bench.cli.predict import run

    run(options)

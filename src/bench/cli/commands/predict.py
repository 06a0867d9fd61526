"""`bench predict`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from bench.cli.commands.shared import PLAN, Json, at_least_one, command

_LOAD, _WHAT_IF = "The load", "What if"


@command(
    PLAN,
    "bench predict results:tiny-mqa --concurrency 8,16,32 --prompt-length 256 --output-length 64",
    "bench predict results:tiny-mqa --request-rate 4,8 --prompt-length 128 --output-length 64 --kv-tokens 6144",
    "bench predict results:tiny-mqa --check",
    after="Exit status: 0 for a prediction; 1 where a load is refused; 2 for what you can fix.",
)
def predict(
    results: Annotated[
        str, typer.Argument(metavar="RESULTS", help="A folder with results, with :DEPLOYMENT where it has several.")
    ] = "results",
    concurrency: Annotated[
        str | None, typer.Option(metavar="N,N", help="Requests in flight, of a closed loop.", rich_help_panel=_LOAD)
    ] = None,
    request_rate: Annotated[str | None, typer.Option(metavar="N,N", help="Requests/s, Poisson.", rich_help_panel=_LOAD)] = None,
    prompt_length: Annotated[
        int | None, typer.Option(metavar="TOKENS", parser=at_least_one, help="Of each prompt.", rich_help_panel=_LOAD)
    ] = None,
    output_length: Annotated[
        int | None, typer.Option(metavar="TOKENS", parser=at_least_one, help="Of each answer.", rich_help_panel=_LOAD)
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A workload as a study has it, in YAML, in place of lengths.", rich_help_panel=_LOAD),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(metavar="N", parser=at_least_one, help="Of each replay.", rich_help_panel=_LOAD)
    ] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", parser=at_least_one, help="KV capacity.", rich_help_panel=_WHAT_IF)
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(metavar="N", parser=at_least_one, help="Requests at once.", rich_help_panel=_WHAT_IF)
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(metavar="N", parser=at_least_one, help="Tokens of a step.", rich_help_panel=_WHAT_IF)
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

"""`bench find`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from bench.cli import defaults
from bench.cli.commands.shared import (
    ONE_STAGE,
    Header,
    Json,
    Natural,
    Omit,
    Prompts,
    WorkloadFile,
    at_least_one,
    command,
    percent,
    positive,
)

_LOOKED_FOR = "What is looked for"
_LOAD = "Load"
_BUDGET = "Bounds and budget"


@command(
    ONE_STAGE,
    "bench find --base-url http://127.0.0.1:8000 --model NAME --concurrency --prompt-length 128 --output-length 64 --slo ttft_p90=1s",
    "bench find --base-url http://127.0.0.1:8000 --model NAME --request-rate --archetype rag --slo ttft_p99=2s --slo tpot_p95=50ms",
    "bench find --base-url http://127.0.0.1:8000 --model NAME --request-rate --prompt-length 900 --slo e2e_p95=8s --at-least 5",
    after="Exit status: 0 if both ends of the limit's interval are known as closely as --precision asks; 3 if they are not, as the "
    "budget is spent, or the limit lies above --most or below every load that is tried; 1 if no run could be judged, or three in "
    "a row cannot be trusted. With --at-least 0 if the limit surely is not lower, 1 if it surely is, 3 if that is not known. In "
    "any case 1 if the server stopped answering.",
)
def find(
    base_url: Annotated[
        str, typer.Option(metavar="URL", help="The server, such as http://127.0.0.1:8000 or https://gateway/llm.")
    ],
    model: Annotated[str, typer.Option(metavar="NAME", help="The model's name as served.")],
    slo: Annotated[
        list[str],
        typer.Option(
            metavar="LIMIT",
            help="Such as ttft_p99=2s or tpot_p95=50ms. Repeatable; all have to be met.",
            rich_help_panel=_LOOKED_FOR,
        ),
    ],
    concurrency: Annotated[
        bool, typer.Option("--concurrency", help="Look for the most requests in flight.", rich_help_panel=_LOOKED_FOR)
    ] = False,
    request_rate: Annotated[
        bool, typer.Option("--request-rate", help="Look for the most requests a second.", rich_help_panel=_LOOKED_FOR)
    ] = False,
    failed_share: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Largest share of requests that may fail, 0 to 1.", rich_help_panel=_LOOKED_FOR),
    ] = 0.01,
    precision: Annotated[
        float,
        typer.Option(
            metavar="PERCENT",
            parser=percent,
            help="How close both ends of the interval have to be to its middle.",
            rich_help_panel=_LOOKED_FOR,
        ),
    ] = 10.0,
    at_least: Annotated[
        float | None,
        typer.Option(metavar="N", parser=positive, help="For CI: fail where the limit is lower.", rich_help_panel=_LOOKED_FOR),
    ] = None,
    prompt_length: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Prompt tokens of each request.", rich_help_panel=_LOAD)
    ] = None,
    output_length: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="Output tokens of each.", show_default="128", rich_help_panel=_LOAD),
    ] = None,
    natural: Natural = False,
    prompts: Prompts = None,
    workload: WorkloadFile = None,
    archetype: Annotated[
        defaults.Archetype | None,
        typer.Option(help="Lengths of a kind of use; lengths that are given replace its own.", rich_help_panel=_LOAD),
    ] = None,
    burstiness: Annotated[
        float | None,
        typer.Option(
            metavar="K",
            parser=positive,
            help="With --request-rate: shape of gamma gaps; below 1 they come in bursts.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    endpoint: Annotated[
        defaults.Endpoint | None, typer.Option(help="The API's endpoint.", show_default="completions", rich_help_panel=_LOAD)
    ] = None,
    vocabulary: Annotated[
        int, typer.Option(metavar="N", help="Prompt ids are below this; 1000 is safe for real models.", rich_help_panel=_LOAD)
    ] = 1000,
    start: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            parser=positive,
            help="First load; rates down to a 64th of it are tried.",
            show_default="near the limit, by a probe of a few seconds",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    most: Annotated[
        float,
        typer.Option(metavar="N", parser=positive, help="Highest load that is tried.", rich_help_panel=_BUDGET),
    ] = 4096.0,
    max_runs: Annotated[
        int, typer.Option(metavar="N", parser=at_least_one, help="Runs to spend.", rich_help_panel=_BUDGET)
    ] = 30,
    max_minutes: Annotated[
        float, typer.Option(metavar="MINUTES", parser=positive, help="Time under load to spend.", rich_help_panel=_BUDGET)
    ] = 30.0,
    output_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the runs, the figure and the answer; a search goes on from it.")
    ] = Path("find"),
    metrics: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where the server's metrics are.", show_default="URL/metrics, if there are any"),
    ] = None,
    header: Header = None,
    omit: Omit = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", parser=positive, help="When to give up a request.")] = 600.0,
    json: Json = False,
) -> None:
    """Find the highest load that a server carries within SLOs.

    Give --concurrency or --request-rate, and what is sent: --prompt-length, --prompts, --archetype or --workload.

    A probe of a few seconds, a closed loop, shows where to begin. Each run is placed where it shows most of the limit, given the runs
    so far and their noise, until its interval is as narrow as --precision asks for, or the budget is spent. The same command goes on
    where it was stopped, and measures nothing twice; another --slo or --precision uses the runs that are there.

    The API key is read from OPENAI_API_KEY.
    """
    options = SimpleNamespace(**locals())
    options.header = header or []
    options.omit = omit or []
    from bench.cli.find import run

    run(options)

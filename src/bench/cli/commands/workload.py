"""`bench workload`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from bench.cli import defaults
from bench.cli.commands.shared import ONE_STAGE, Header, Json, Natural, Omit, Prompts, WorkloadFile, command

_LOAD = "Load"
_REQUESTS = "Requests"
_METRICS = "Metrics of the server"


@command(
    ONE_STAGE,
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/one --num-requests 50 --prompt-length 128",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/c8 --num-requests 200 --concurrency 8 "
    "--prompt-length 1000 --output-length 64 --scrape",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/chat --archetype chat --request-rate 2 "
    "--duration 60",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/own --prompts my/chats.jsonl --endpoint chat "
    "--natural --num-requests 200 --concurrency 8",
)
def workload(
    base_url: Annotated[
        str, typer.Option(metavar="URL", help="The server, such as http://127.0.0.1:8000 or https://gateway/llm.")
    ],
    model: Annotated[str, typer.Option(metavar="NAME", help="The model's name as served.")],
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the run; created if missing.")],
    num_requests: Annotated[
        int | None,
        typer.Option(metavar="N", help="Requests to send; of an archetype with turns, conversations.", rich_help_panel=_LOAD),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Hold N in flight until all are done.", rich_help_panel=_LOAD)
    ] = None,
    request_rate: Annotated[
        float | None,
        typer.Option(metavar="R", help="Open loop: R requests a second, however slowly answers come.", rich_help_panel=_LOAD),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Replay a CSV, JSONL or Parquet file: arrival_s, prompt_tokens and output_tokens, or a published trace.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    trace_unit: Annotated[
        defaults.TraceUnit | None,
        typer.Option(
            help="Unit of a trace's arrivals, where its publishers differ.",
            show_default="its publisher's",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    arrival: Annotated[
        defaults.Arrival | None,
        typer.Option(help="Gaps of an open loop.", show_default="poisson, or gamma with --burstiness", rich_help_panel=_LOAD),
    ] = None,
    burstiness: Annotated[
        float | None,
        typer.Option(metavar="K", help="Shape of gamma gaps; below 1 they come in bursts.", rich_help_panel=_LOAD),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Open loop: how long to send, instead of --num-requests.", rich_help_panel=_LOAD),
    ] = None,
    time_scale: Annotated[
        float | None,
        typer.Option(metavar="X", help="Replay a trace X times as fast.", show_default="1", rich_help_panel=_LOAD),
    ] = None,
    prompt_length: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Prompt tokens of each.", rich_help_panel=_REQUESTS)
    ] = None,
    output_length: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="Output tokens of each.", show_default="128", rich_help_panel=_REQUESTS),
    ] = None,
    natural: Natural = False,
    prompts: Prompts = None,
    workload: WorkloadFile = None,
    archetype: Annotated[
        defaults.Archetype | None,
        typer.Option(
            help="Lengths, shared prefixes and turns of a kind of use; lengths that are given replace its own.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None,
    endpoint: Annotated[
        defaults.Endpoint | None,
        typer.Option(help="The API's endpoint.", show_default="completions", rich_help_panel=_REQUESTS),
    ] = None,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Ask for whole answers; there is no TTFT then.", rich_help_panel=_REQUESTS)
    ] = False,
    shared_prefix: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of each prompt that is the same in all, 0 to 1.", rich_help_panel=_REQUESTS),
    ] = None,
    vocabulary: Annotated[
        int,
        typer.Option(metavar="N", help="Prompt ids are below this; 1000 is safe for real models.", rich_help_panel=_REQUESTS),
    ] = 1000,
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Seed of prompts, gaps and lengths.",
            show_default="a new one each time, so that no cache can help",
            rich_help_panel=_REQUESTS,
        ),
    ] = None,
    honour_retry_after: Annotated[
        bool,
        typer.Option(
            "--honour-retry-after",
            help="Send what is refused with 429 or 503 again after its Retry-After; TTFT counts from the first time.",
            rich_help_panel=_REQUESTS,
        ),
    ] = False,
    scrape: Annotated[bool, typer.Option("--scrape", help="Scrape URL/metrics meanwhile.", rich_help_panel=_METRICS)] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="With --scrape, where the server's metrics are, if elsewhere.", rich_help_panel=_METRICS
        ),
    ] = None,
    scrape_interval: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Time between scrapes.", show_default="0.2", rich_help_panel=_METRICS),
    ] = None,
    scrape_also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="With --scrape, a further endpoint, or nvml: for this machine's GPUs (nvml:0,1 for two of them). Repeatable.",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    header: Header = None,
    omit: Omit = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="When to give up a request.")] = 600.0,
    processes: Annotated[
        int | None, typer.Option(metavar="N", help="Load processes.", show_default="as many as the streams need")
    ] = None,
    json: Json = False,
) -> None:
    """Send load to a server and record every request.

    Requests have exact prompt lengths (token ids to /v1/completions, unique each time) and exact output lengths (ignore_eos), or
    prompts of your own (--prompts) and answers that end by themselves (--natural).
    Writes requests.jsonl, one line a request, and run.json; `bench parse` and `bench figures` go on from the folder. Without
    --concurrency, --request-rate or --trace, all requests leave at once. The API key is read from OPENAI_API_KEY.
    """
    options = SimpleNamespace(**locals())
    options.scrape_also, options.header, options.omit = scrape_also or [], header or [], omit or []
    from bench.cli.workload import run

    run(options)

"""`bench scrape`."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.commands.shared import ONE_STAGE, Header, Json, command, positive


@command(
    ONE_STAGE,
    "bench scrape --url http://127.0.0.1:8000/metrics --output-dir telemetry --duration 60",
    "bench scrape --url http://127.0.0.1:8000/metrics --url nvml: --output-dir telemetry",
)
def scrape(
    url: Annotated[
        list[str],
        typer.Option(
            metavar="URL",
            help="Endpoint, such as http://127.0.0.1:8000/metrics, or nvml: for this machine's GPUs (nvml:0,1 for two of them). "
            "Repeatable.",
        ),
    ],
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where to write; created if missing.")],
    interval: Annotated[float, typer.Option(metavar="SECONDS", parser=positive, help="Time between scrapes.")] = 0.2,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", parser=positive, help="When to end.", show_default="when stopped")
    ] = None,
    header: Header = None,
    json: Json = False,
) -> None:
    """Scrape Prometheus endpoints into a file.

    On an absolute schedule, with the raw text and the time of sending and receiving each, in DIR/telemetry.jsonl.gz. Ends after
    --duration, on Ctrl-C or on SIGTERM.
    """
    from bench.cli.scrape import run

    run(url, output_dir, interval, duration, header or [], json=json)

"""`bench figures`."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli import completion
from bench.cli.commands.shared import ONE_STAGE, Json, command


@command(
    ONE_STAGE,
    "bench figures runs --output-dir figures",
    "bench figures results --output-dir drawn --figure latencies --figure kv-saturation",
)
def figures(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with parsed runs, at any depth.")],
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where to draw; created if missing.")],
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this figure; repeatable.",
            show_default="those that the runs can answer",
            autocompletion=completion.figures,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Draw the figures of parsed runs.

    Gathers every summary.json below DIR (`bench parse` writes it) and draws the figures as SVG, PNG and Vega-Lite JSON, with the
    summary table beside them. Below a study's results/, the deployments' facts are used too.
    """
    from bench.cli.figures import run

    run(folder, output_dir, figure, json=json)

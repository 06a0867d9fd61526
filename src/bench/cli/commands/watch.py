"""`bench watch`."""

from typing import Annotated

import typer

from bench.cli.commands.shared import STUDY, Json, command, positive


@command(STUDY, "bench watch", "bench watch --once", "bench watch --once --json")
def watch(
    once: Annotated[bool, typer.Option("--once", help="Show what there is now, and end.")] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", parser=positive, help="Time between two looks.")] = 1.0,
    json: Json = False,
) -> None:
    """Watch the sessions of this folder while they measure.

    Shows the run under way with what the server reports, the runs that are done, and the time left, until Ctrl-C. Without a terminal:
    one line for each change; with --json: one object for each look. Sessions on other machines are seen where they share the folder.

    It reads files that a session writes anyhow, at the lowest priority, and asks the server nothing. What the client measures (TTFT of
    each request) is in a file only when its run has ended.
    """
    from bench.cli.watch import run

    run(once, interval, json=json)

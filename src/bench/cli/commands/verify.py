"""`bench verify`."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.commands.shared import STUDY, Json, command


@command(
    STUDY,
    "bench verify results",
    "bench verify h100.tar.gz",
    "bench verify h100.tar.gz --json",
    after="Exit status: 0 where nothing differs; 1 where something does; 2 where there is nothing to check, or the pack cannot be read "
    "to its end. What could not be checked does not change the status: read the list. See docs/how-to/verify.md.",
)
def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A pack, or a folder of results.")],
    configfile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The study's file.", show_default="(the one that the workflow noted in the folder)"),
    ] = None,
    json: Json = False,
) -> None:
    """Check that a pack or a folder of results is what was measured.

    Compares checksums and digests. Of a folder it also parses the raw records again, makes the tables again, draws every figure and
    writes the report again, and compares each with what is there. Lists what differs, and what it could not check. Changes nothing.
    """
    from bench.cli.verify import run

    run(path, configfile, json=json)

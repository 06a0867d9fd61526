"""`bench pack` and `bench unpack`."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.commands.shared import STUDY, Configfile, Json, Select, command


@command(
    STUDY,
    "bench pack",
    "bench pack --configfile config/studies/h100.yaml --output h100.tar.gz",
)
def pack(
    configfile: Configfile = None,
    select: Select = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file.", show_default="results/packs/STUDY.tar.gz")
    ] = None,
    json: Json = False,
) -> None:
    """Put a study's measured runs into one file.

    With their deployments' facts and logs, as the sessions left them. `make pack` measures first. Runs that are missing are named and
    left out: a study that was interrupted can be packed too.
    """
    from bench.cli.pack import pack_study

    pack_study(configfile, select, output, json=json)


@command(
    STUDY,
    "bench unpack h100.tar.gz",
    "bench unpack monday.tar.gz tuesday.tar.gz",
)
def unpack(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `bench pack` wrote.")],
    json: Json = False,
) -> None:
    """Take in the runs that another machine packed.

    Checks every file of a pack and puts its runs among the results here. The next workflow on the pack's study parses and draws them,
    and measures nothing.
    """
    from bench.cli.pack import unpack_files

    unpack_files(files, json=json)

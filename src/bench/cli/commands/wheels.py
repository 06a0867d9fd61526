"""`bench wheels`."""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.cli.commands.shared import STUDY, Configfile, Json, Select, command

_OLDEST = 11  # as pyproject.toml has it


def _minor(text: str) -> str:
    """A version of Python 3 that Saturate runs on."""
    if not re.fullmatch(r"3\.\d+", text) or int(text[2:]) < _OLDEST:
        raise typer.BadParameter(f"{text!r} is not a version such as 3.12, from 3.{_OLDEST} on.")
    return text


@command(
    STUDY,
    "bench wheels --configfile config/studies/h100.yaml --python-version 3.12",
    "bench wheels --machine aarch64 --output-dir arm",
)
def wheels(
    configfile: Configfile = None,
    select: Select = None,
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where to put them; created if missing.")] = Path("wheels"),
    python_version: Annotated[
        str, typer.Option(metavar="X.Y", parser=_minor, help="Python of that machine; by default this one's.")
    ] = f"{sys.version_info.major}.{sys.version_info.minor}",
    machine: Annotated[Literal["x86_64", "aarch64"], typer.Option(help="Processor of that machine.")] = "x86_64",
    json: Json = False,
) -> None:
    """Fetch the packages that a study needs on a machine without network.

    The wheels of Saturate's own environment and of the engines that the study builds from locks, checked against the locks' hashes, for
    Linux. `make pack WHEELS=DIR` installs them there.
    """
    from bench.cli.wheels import run

    run(configfile, select, output_dir, python_version, machine, json=json)

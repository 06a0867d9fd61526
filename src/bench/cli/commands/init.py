"""`bench init`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.commands.shared import STUDY, command


class Template(StrEnum):
    """What a study can begin with; `bench.study.TEMPLATES` has the same names."""

    QUICK = "quick"
    SIZING = "sizing"
    RUNNING_SERVER = "running-server"
    TWO_SETTINGS = "two-settings"


@command(
    STUDY,
    "bench init my-study",
    "bench init my-study --template running-server",
)
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or an empty folder.")],
    template: Annotated[
        Template,
        typer.Option(
            help="The configuration to begin with. quick: llama.cpp on a CPU, in a minute. sizing: the GPUs that a peak needs. "
            "running-server: what a server carries that runs already. two-settings: whether one is better."
        ),
    ] = Template.QUICK,
) -> None:
    """Begin a study in a folder of its own.

    Writes a configuration, the workflow that measures it, profiles and a README, and prints the next command. In a folder that has
    some of these files, it adds those that are missing and changes none.
    """
    from bench.cli.init import begin_study

    begin_study(folder, template.value)

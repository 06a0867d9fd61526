"""`bench init`: begin a study in a folder of its own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.cli.entry import command
from bench.cli.options import option

#: What a study can begin with; `bench.study.begin.TEMPLATES` has the same names.
Template = Literal["quick", "sizing", "running-server", "two-settings"]


@command("bench init my-study", "bench init my-study --template running-server")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or an empty folder.")],
    template: Annotated[
        Template,
        option(
            None,
            "The configuration to begin with. quick: llama.cpp on a CPU, in a minute. sizing: the GPUs that a peak needs. "
            "running-server: what a server sustains that runs already. two-settings: whether one is better.",
        ),
    ] = "quick",
) -> None:
    """Writes a configuration, the workflow that measures it, profiles and a README, and prints the next command. In a folder that has
    some of these files, it adds those that are missing and changes none.
    """
    from bench.cli.study import installed
    from bench.study.begin import begin

    written, kept = begin(folder, template)
    for name in written:
        print(f"wrote {folder / name}")
    for name in kept:
        print(f"kept  {folder / name}")
    config = Path("config/config.yaml")
    edit = f"\n  edit the lines marked CHANGE in {config}" if "CHANGE" in (folder / config).read_text(encoding="utf-8") else ""
    print(f"\nNext:\n  cd {shlex.quote(str(folder))}{edit}\n  {installed('snakemake')} --cores 1 results/figures/all")

"""`bench unpack`: take in what another machine measured."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.entry import command
from bench.cli.options import Json
from bench.cli.output import print_json


@command(
    "bench unpack h100.tar.gz",
    "bench unpack monday.tar.gz tuesday.tar.gz",
)
def unpack(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `bench pack` wrote.")],
    json: Json = False,
) -> None:
    """Checks every file of a pack and puts its runs among the results here. The next workflow on the pack's study parses and draws
    them, and measures nothing.
    """
    from bench.beside.archive.pack import packed_text
    from bench.beside.archive.unpack import unpack
    from bench.cli.study import no_workflow
    from bench.runs.store import Store

    unpacked = []
    with no_workflow():
        for file in files:
            done = unpack(file, Store(owner="unpack"))
            unpacked.append({"file": str(file), "study": str(done.study), "runs": done.runs, "missing": done.missing})
            if not json:
                print(f"{file}: {packed_text(done)}\nNow: {_draw(done.study)}")
    if json:
        print_json(unpacked)


def _draw(study: Path | None) -> str:
    """The command that draws a pack's study: in a clone, in a study's own folder, or in one that holds nothing else."""
    from bench.cli.study import installed
    from bench.shipped import SNAKEFILE

    own = any(map(Path.exists, map(Path, ("Snakefile", "workflow/Snakefile"))))
    if own and Path("Makefile").exists():
        return f"make figures CONFIG={study}"
    snakefile = "" if own else f" --snakefile {shlex.quote(SNAKEFILE)}"
    return f"{installed('snakemake')}{snakefile} --cores 1 results/figures/all --configfile {study}"

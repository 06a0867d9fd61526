"""`bench verify`: whether a pack or a folder of results is what was measured."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.entry import command
from bench.cli.options import Json, option
from bench.cli.output import print_json, print_table, status
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.beside.archive.check import Check


_MOST_LINES = 20  # of what differs; JSON has all


@command(
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
        option("FILE", "The study's file.", default="the one that the workflow noted in the folder"),
    ] = None,
    json: Json = False,
) -> None:
    """Compares checksums and digests. It also parses the raw records again; of a folder it makes the summaries and draws the figures
    again, and compares their numbers with what is there. Lists what differs, and what it could not check. Changes nothing.
    """
    from bench.beside.archive.verify import verify_pack, verify_results

    if not path.exists():
        raise BenchError(f"{path}: no such file or folder; name a pack, or a folder of results.")
    if configfile is not None and path.is_file():
        raise BenchError("--configfile: a pack holds its study. Leave it out.")
    with status() as say:
        # On a pipe there is no line that progress could replace.
        progress = say if sys.stderr.isatty() else lambda _: None
        checks = verify_pack(path) if path.is_file() else verify_results(path, configfile and configfile.absolute(), progress)
    here = f"{Path.cwd()}/"
    for check in checks:
        check.differs = [text.replace(here, "") for text in check.differs]
        check.unchecked = [text.replace(here, "") for text in check.unchecked]
    differs = [text for check in checks for text in check.differs]
    if json:
        print_json({"path": str(path), "intact": not differs, "checks": [asdict(check) for check in checks]})
    else:
        _print(path, checks, differs)
    if differs:
        sys.exit(1)


def _print(path: Path, checks: list[Check], differs: list[str]) -> None:
    rows = [
        [check.what, str(check.checked), str(len(check.differs)), str(len(check.unchecked))]
        for check in checks[:-1]  # the last is what nobody could check
    ]
    print_table([["", "checked", "differ", "not checked"], *rows])
    if differs:
        print("\nDiffers:")
        for text in differs[:_MOST_LINES]:
            print(f"  {text}")
        if len(differs) > _MOST_LINES:
            print(f"  and {len(differs) - _MOST_LINES} more; --json has them all")
    print("\nNot checked:")
    for text in (text for check in checks for text in check.unchecked):
        print(f"  {text}")
    print(f"\n{path}: " + (f"{len(differs)} differences" if differs else "nothing differs in what was checked"))

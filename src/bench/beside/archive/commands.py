"""Commands of packs: a study's measured runs as one file, taken in elsewhere, and checked to be what was measured."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.entry import command
from bench.cli.options import Configfile, Json, Scale, Select, option
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, listed
from bench.terminal import live

if TYPE_CHECKING:
    from bench.beside.archive.check import Check


@command("bench pack", "bench pack --configfile config/studies/h200.yaml --output h200.tar.gz")
def pack(
    configfile: Configfile = None,
    select: Select = None,
    scale: Scale = None,
    output: Annotated[Path | None, option("FILE", "The file.", default="results/packs/STUDY.tar.gz")] = None,
    json: Json = False,
) -> None:
    """With their deployments' facts and logs, as the sessions left them. `make pack` measures first. Runs that are missing are named
    and left out: a study that was interrupted can be packed too.
    """
    from bench.beside.archive.pack import pack, packed_text
    from bench.cli.study import load_plan
    from bench.runs.paths import Paths
    from bench.runs.store import Store
    from bench.yaml_file import read_yaml

    file, plan = load_plan(configfile, select, scale, json=json)
    output = output or Path(Paths.RESULTS) / "packs" / f"{file.stem}.tar.gz"
    done = pack(plan, read_yaml(file), output, Store())
    if json:
        print_json({"file": str(output), "bytes": output.stat().st_size, "runs": list(done.runs), "missing": done.missing})
        return
    print(f"{output}: {packed_text(done)}, {output.stat().st_size / 2**20:.1f} MiB")


@command("bench unpack h100.tar.gz", "bench unpack monday.tar.gz tuesday.tar.gz")
def unpack(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What `bench pack` wrote.")], json: Json = False
) -> None:
    """Checks every file of a pack and puts its runs among the results here. The next workflow on the pack's study parses and draws
    them, and measures nothing.
    """
    from bench.beside.archive.pack import packed_text
    from bench.beside.archive.unpack import unpack
    from bench.cli.study import draws
    from bench.runs.store import Store
    from bench.workflow import lock_folder

    unpacked = []
    with lock_folder():
        for file in files:
            index, study = unpack(file, Store(owner="unpack"))
            unpacked.append({"file": str(file), "study": str(study), "runs": list(index.runs), "missing": index.missing})
            if not json:
                print(f"{file}: {packed_text(index)}\nNow: {draws(study)}")
    if json:
        print_json(unpacked)


_MOST_LINES = 20  # of what differs; JSON has all


@command(
    "bench verify results",
    "bench verify h100.tar.gz",
    "bench verify h100.tar.gz --json",
    after="Exit status: 0 if nothing differs; 1 if something does; 2 if there is nothing to check, or the pack cannot be read "
    "to its end. What could not be checked does not change the status: read the list. See docs/how-to/verify.md.",
)
def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A pack, or a folder of results.")],
    configfile: Annotated[
        Path | None, option("FILE", "The study's file.", default="the one noted in the folder by the workflow")
    ] = None,
    json: Json = False,
) -> None:
    """Compares checksums and digests. Of a folder it also parses the raw records again, makes the summaries and the figures' data, and
    compares their numbers with what is there. Lists what differs, and what it could not check. Changes nothing.
    """
    from bench.beside.archive.verify import verify_pack, verify_results

    if not path.exists():
        raise BenchError(f"{path}: no such file or folder; name a pack, or a folder of results.")
    if configfile is not None and path.is_file():
        raise BenchError("--configfile: a pack holds its study. Leave it out.")
    checks = verify_pack(path) if path.is_file() else verify_results(path, configfile and configfile.absolute(), live)
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
    *kinds, _ = checks  # the last is what nobody could check
    rows = [[check.what, str(check.checked), str(len(check.differs)), str(len(check.unchecked))] for check in kinds]
    print_table([["", "checked", "differ", "not checked"], *rows])
    if differs:
        print("\nDiffers:", *differs[:_MOST_LINES], sep="\n  ")
        if len(differs) > _MOST_LINES:
            print(f"  and {len(differs) - _MOST_LINES} more; --json has them all")
    print("\nNot checked:", *(text for check in checks for text in check.unchecked), sep="\n  ")
    none = listed([check.what for check in kinds if not check.checked])
    said = f"{len(differs)} differences" if differs else "nothing differs in what was checked"
    print(f"\n{path}: {said}" + (f"; nothing was checked of {none}" if none else ""))

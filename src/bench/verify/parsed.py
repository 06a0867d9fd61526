"""What is made of one run: its tables and its summary, made again from the raw records."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from bench.errors import BenchError
from bench.parse import parse_run
from bench.study import Paths
from bench.verify.check import Check, Tables

__all__ = ["check_parsed", "parse_again"]

# What `parse_run` writes, by its arguments.
_MADE = {
    "requests": Path(Paths.REQUESTS).name,
    "telemetry": Path(Paths.TELEMETRY).name,
    "wide": Path(Paths.WIDE).name,
    "summary": Path(Paths.RUN_SUMMARY).name,
}


def parse_again(runs: Collection[Path], again: Path, say: Callable[[str], None]) -> Check:
    """Parse the raw records of `runs`, each into a folder of its name below `again`."""
    check = Check("raw records parsed")
    for number, run in enumerate(runs, 1):
        say(f"parsing run {number} of {len(runs)}")
        to = again / run.parent.name / run.name
        try:
            parse_run(run, **{made: to / name for made, name in _MADE.items()})
        except BenchError as error:
            check.compare(str(error))
        else:
            check.compare(None)
    return check


def check_parsed(runs: Collection[Path], again: Path, made_by: str | None) -> Check:
    """Compare what lies beside the raw records with what `parse_again` made of them.

    Args:
        made_by: the sources that made it, where they are not these.
    """
    check = Check("tables and summaries of runs")
    tables = Tables(check, made_by)
    missing = []
    for run in runs:
        new = again / run.parent.name / run.name
        for name in _MADE.values():
            if not (new / name).is_file():
                continue  # its raw records cannot be parsed, which is counted there
            if not (run / name).is_file():
                missing.append(run)
                continue
            tables.compare(run / name, new / name)
    if missing:
        check.unchecked.append(f"{len({*missing})} runs are not parsed here, such as {missing[0]}")
    return tables.done()

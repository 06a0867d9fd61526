"""What commands print: results on standard output, progress on standard error, which is drawn on a terminal alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

_GAP = 2  # blanks between columns
T = TypeVar("T")


def print_json(content: Any) -> None:
    """Print a result for another program."""
    print(json.dumps(content, indent=2))


def note(text: str) -> None:
    """Print a line beside the result, at once."""
    print(text, file=sys.stderr, flush=True)


def print_table(rows: Sequence[Sequence[str]], align: str = "") -> None:
    """Print rows in columns. Args: align: `<` or `>` for each column; without it, the first is left and the others right."""
    align = align or "<" + ">" * (len(rows[0]) - 1)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True))
        print((" " * _GAP).join(cells).rstrip())


def headed(rows: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Rows for `print_table` of cells by what heads their columns."""
    return [list(rows[0]), *(list(row.values()) for row in rows)]


def tracked(items: Sequence[T], what: str) -> Iterable[T]:
    """The items, with a bar and the time left on a terminal."""
    if not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description=what, console=Console(stderr=True), transient=True)


@contextmanager
def progress(what: str, seconds: float | None) -> Iterator[None]:
    """The time so far on a terminal, for as long as the context lasts. Args: seconds: that it takes, where that is known.

    It is drawn once a second, since what is measured meanwhile needs the processor.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=1) as bar:
        bar.add_task(what if seconds is None else f"{what}, about {seconds:.0f} s", total=None)
        yield
